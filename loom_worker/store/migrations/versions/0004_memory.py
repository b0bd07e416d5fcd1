"""A session's memory apart from its messages, and its choice of the agent's tools and databases."""

from loom_worker.store.prepare import script_of

revision = "0004"
down_revision = "0003"
# Sessions that are there keep all their messages in L1 until they are compressed.
upgrade = script_of(__file__, between=";\n")
