"""Which run and workflow each call was made for, and which model and user a turn has."""

from loom_worker.store.prepare import script_of

revision = "0028"
down_revision = "0027"
# A run that is deleted by now has no workflow.
upgrade = script_of(__file__)
