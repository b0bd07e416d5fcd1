"""Turns that other turns wait for, and messages between agents."""

from loom_worker.store.prepare import script_of

revision = "0019"
down_revision = "0018"
upgrade = script_of(__file__)
