"""Versions of agents, their labels, and which version each turn ran.

Sessions of before get the version that is newest when they go on; their system text stays.
"""

from loom_worker.store.prepare import script_of

revision = "0024"
down_revision = "0023"
upgrade = script_of(__file__)
