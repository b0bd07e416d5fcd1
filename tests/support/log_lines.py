"""Logs in tests: what a process' logging was before, and what it says."""

import json
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from loom_worker.core import log_context
from loom_worker.core.logs import OWN, QUIET

Json = dict[str, Any]


@contextmanager
def logging_as_it_was() -> Iterator[None]:
    """Put back afterwards all that ``logs.set_up`` and entry points change in this process."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    levels = {name: logging.getLogger(name).level for name in ("", *OWN, *QUIET)}
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook, warnings.showwarning
    ids = log_context.ids()
    try:
        yield
    finally:
        root.handlers[:] = handlers
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        sys.excepthook, threading.excepthook, sys.unraisablehook, warnings.showwarning = hooks
        log_context.begin(ids)


def records(text: str) -> list[Json]:
    """The lines of a log with LOOM_LOG_FORMAT=json; a line that is no JSON object is an error."""
    found = [json.loads(line) for line in text.split("\n") if line]
    assert all(isinstance(line, dict) for line in found)
    return found
