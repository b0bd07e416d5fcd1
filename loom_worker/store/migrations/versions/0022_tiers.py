"""Tiers of memory: summaries by date, facts with the sessions that say them, and what people had forgotten."""

from loom_worker.store.prepare import script_of

revision = "0022"
down_revision = "0021"
upgrade = script_of(__file__)
