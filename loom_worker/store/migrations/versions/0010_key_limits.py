"""How much may be done with an API key in a minute, and with which key a turn was submitted."""

from loom_worker.store.prepare import script_of

revision = "0010"
down_revision = "0009"
upgrade = script_of(__file__, between=";\n")
