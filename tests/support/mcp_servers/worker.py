"""A worker that starts one server and then waits to be killed: ``python worker.py FOLDER``."""

import signal
import sys
from pathlib import Path

from tests.support.mcp_servers.stage import Stage, odd

if __name__ == "__main__":
    stage = Stage()
    stage.tools(odd("family", Path(sys.argv[1])))
    sys.stdout.write("up\n")
    sys.stdout.flush()
    signal.pause()
