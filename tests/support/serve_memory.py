"""The front end as a process over the service in memory: ``python -m tests.support.serve_memory PORT``."""

import logging
import sys

from loom_worker.core.settings import Settings, WebSettings
from tests.support.memory_service import MemoryService
from web.serve import serve

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    serve(MemoryService(Settings(web=WebSettings(port=int(sys.argv[1]), threads=8))))  # type: ignore[arg-type]
