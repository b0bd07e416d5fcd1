"""How many unfinished turns each session and each workspace has, kept by triggers on turns."""

from loom_worker.store.prepare import script_of

revision = "0017"
down_revision = "0016"
upgrade = script_of(__file__)
