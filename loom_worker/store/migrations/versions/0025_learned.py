"""Learned layers of agents in numbered versions, which of them is active, and which of them sessions and turns had."""

from loom_worker.store.prepare import script_of

revision = "0025"
down_revision = "0024"
# Sessions that have begun have no learned layer.
upgrade = script_of(__file__)
