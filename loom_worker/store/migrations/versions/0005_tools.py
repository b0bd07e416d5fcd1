"""Large results, errors of tools, the agents' shared memory, and calls that wait for a person."""

from loom_worker.store.prepare import script_of

revision = "0005"
down_revision = "0004"
upgrade = script_of(__file__, between=";\n")
