"""What the tools of memory find, facts and summaries among it, is not searched: it repeats what was said."""

from loom_worker.store.prepare import script_of

revision = "0026"
down_revision = "0025"
upgrade = script_of(__file__, between=";;\n")
