"""API keys that are made at run time, and whose user costs are."""

from loom_worker.store.prepare import script_of

revision = "0009"
down_revision = "0008"
# Costs get the user of their session; those of sessions that are deleted belong to the workspace alone.
upgrade = script_of(__file__, between=";\n")
