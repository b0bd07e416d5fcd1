"""Schedules: which due times are dealt with, what was begun last, and what an operator has said."""

from loom_worker.store.prepare import script_of

revision = "0020"
down_revision = "0019"
upgrade = script_of(__file__)
