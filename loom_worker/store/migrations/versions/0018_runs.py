"""Runs of workflows: their rows, journals and event logs; turns that are stages of one mark it as due when they end."""

from loom_worker.store.prepare import script_of

revision = "0018"
down_revision = "0017"
upgrade = script_of(__file__)
