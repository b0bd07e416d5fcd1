"""What traces need to know of turns and calls, what is to be exported of them, and figures that outlive processes."""

from loom_worker.store.prepare import script_of

revision = "0016"
down_revision = "0015"
# The traces of earlier turns have no more than their journals tell.
upgrade = script_of(__file__, between=";\n")
