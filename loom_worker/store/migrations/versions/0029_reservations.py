"""What is set aside on budgets has rows, so that it can be settled once whoever set it aside has died."""

from loom_worker.store.prepare import script_of

revision = "0029"
down_revision = "0028"
# What was set aside before counts as spent.
upgrade = script_of(__file__)
