"""What came of turns that used a pattern."""

from loom_worker.store.prepare import script_of

revision = "0006"
down_revision = "0005"
upgrade = script_of(__file__, between=";\n")
