"""Channels: what a turn's answer must look like, and who of a channel is which user."""

from loom_worker.store.prepare import script_of

revision = "0013"
down_revision = "0012"
upgrade = script_of(__file__, between=";\n")
