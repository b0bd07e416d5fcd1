"""What turns only add to, and is folded later: their depths, the uses of patterns, the audit."""

from loom_worker.store.prepare import script_of

revision = "0033"
down_revision = "0032"
upgrade = script_of(__file__)
