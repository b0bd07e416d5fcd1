"""Workspaces are rows, budgets have accounts, and costs are whole numbers: billionths of a USD."""

from loom_worker.store.prepare import script_of

revision = "0008"
down_revision = "0007"
# Costs that were booked as binary fractions become the decimals that they stood for.
upgrade = script_of(__file__, between=";\n")
