"""Logs for people or for machines, each line with the ids it is about and never with what a user wrote."""

import json
import logging
import sys
import time
from collections.abc import Callable

from loom_worker.core.settings import LogSettings

IDS = (
    *("session", "turn", "call", "request", "lane", "worker", "task", "error_id", "tool_name"),
    *("late", "lost", "due", "status", "duration_ms"),
)
"""Extra fields that are written if a record has them."""
Redactor = Callable[[str], str]


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, redact: Redactor = str) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        """Render a record."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": self._redact(record.getMessage()),
            **_ids(record),
        }
        if record.exc_info:
            line["exception"] = self._redact(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False, default=str)


class Console(logging.Formatter):
    """A line for a person: local time, level, message, ids. With the date, as a log goes on for days and starts."""

    def __init__(self, redact: Redactor = str) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%d %H:%M:%S")
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        """Render a record."""
        ids = " ".join(f"{name}={value}" for name, value in _ids(record).items())
        text = self._redact(super().format(record))
        return f"{text}  {ids}" if ids else text


def set_up(settings: LogSettings, redact: Redactor = str) -> None:
    """Send all logs of this process to standard error, in the chosen form.

    Args:
        redact: removes secrets from what libraries and tracebacks say.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(redact) if settings.format == "json" else Console(redact))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level)
    # Each says one line a task or request; what matters of it, Loom's own lines say with ids.
    for name in ("celery.app.trace", "celery.worker.strategy", "httpx2", "httpcore2", "waitress.queue"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _ids(record: logging.LogRecord) -> dict[str, object]:
    return {name: getattr(record, name) for name in IDS if hasattr(record, name)}
