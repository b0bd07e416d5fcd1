"""The first schema."""

from loom_worker.store.prepare import script_of

revision = "0001"
down_revision = None
upgrade = script_of(__file__, between=";")
