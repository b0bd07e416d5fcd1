"""Verdicts of judges on answers, and what came of them."""

from loom_worker.store.prepare import script_of

revision = "0015"
down_revision = "0014"
upgrade = script_of(__file__, between=";\n")
