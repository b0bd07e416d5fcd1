"""Logs for people or for machines, each line with the ids it is about and never with what a user wrote.

Nobody can forge a line: what could end one, move a cursor or turn the direction of text is escaped in both forms.
"""

import json
import logging
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TextIO

from loom_worker.core import log_context
from loom_worker.core.settings_tree import LogSettings

log = logging.getLogger(__name__)

IDS = (
    *("workspace", "session", "turn", "call", "tool_name", "judge", "error_id", "delivery", "key", "rotated_from"),
    *("run", "workflow", "agent", "version", "former"),
    *("status", "duration_ms", "attempt", "http_status", "late", "lost", "due", "full", "sessions", "keys"),
    *("kind", "messages", "from_tokens", "to_tokens", "by"),
    *("request", "lane", "task", "trace_id", "span_id"),
)
"""Extra fields that are written if a record or its thread (``log_context``) has them."""
MOST_ID_CHARS = 200
OWN = ("loom_worker", "loom", "web")
"""Loggers of Loom's own. Others never log below INFO, where some log whole requests: keys, and what users wrote."""
QUIET = (
    *("celery.app.trace", "celery.worker.strategy", "httpx2", "httpcore2", "uvicorn.error", "urllib3"),
    *("botocore", "tornado.access", "mcp"),
)
"""Each says one line a task or request, some with an address; what matters of it, Loom's own lines say with ids."""
Redactor = Callable[[str], str]

# C0 and C1, which hold line ends and what begins a terminal's sequences; line and paragraph separators; marks,
# embeddings, overrides and isolates of direction; what nobody sees; lone surrogates, which no stream can encode.
_UNSAFE = re.compile(
    "[\0-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e0fff]"
)
_PLAIN = re.compile(r"[\w.:/@|+-]+")
INDENT = "    | "
"""Begins each line of a traceback; a line of the log begins with its date."""


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, redact: Redactor = str) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": self._redact(record.getMessage()),
            **_ids(record),
        }
        if trace := _traceback(self, record):
            line["exception"] = self._redact(trace)
        return _UNSAFE.sub(_json_escape, json.dumps(line, ensure_ascii=False, default=str))


class Console(logging.Formatter):
    """A line for a person: local time, level, message, ids. With the date, as a log goes on for days and starts."""

    def __init__(self, redact: Redactor = str) -> None:
        super().__init__("%(asctime)s %(levelname)-7s", "%Y-%m-%d %H:%M:%S")
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        """Render a record; below it, indented, a traceback."""
        head = f"{self.formatTime(record, self.datefmt)} {record.levelname:7}"
        ids = " ".join(f"{name}={_shown(value)}" for name, value in _ids(record).items())
        text = escaped(self._redact(record.getMessage()))
        line = f"{head} {text}  {ids}" if ids else f"{head} {text}"
        trace = self._redact(_traceback(self, record))
        return "\n".join([line, *(f"{INDENT}{escaped(part)}" for part in trace.split("\n") if part)])


class Lines(logging.StreamHandler[TextIO]):
    """Writes lines; of one that cannot be written it says so, without what was to be said."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # the name that logging calls
        """In place of Python's own text, which holds the message's arguments in lines of plain text."""
        error = sys.exc_info()[0]
        where, why = f"{record.pathname}:{record.lineno}", error.__name__ if error else "unknown"
        told = logging.LogRecord(__name__, logging.ERROR, "", 0, "a line of %s was not logged: %s", (where, why), None)
        with suppress(Exception):  # what cannot be written at all is lost, as with any full disk
            self.stream.write(f"{self.format(told)}\n")


def set_up(settings: LogSettings, redact: Redactor = str) -> None:
    """Send all that this process logs to standard error, in the chosen form.

    Also what libraries say and warn of, and exceptions that nothing catches, in whichever thread.

    Args:
        redact: removes secrets from what libraries and tracebacks say.
    """
    handler = Lines(sys.stderr)
    handler.setFormatter(JsonLines(redact) if settings.format == "json" else Console(redact))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    level = logging.getLevelNamesMapping()[settings.level]
    root.setLevel(max(level, logging.INFO))
    for name in OWN:
        logging.getLogger(name).setLevel(level)
    for name in QUIET:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread
    sys.unraisablehook = _unraisable
    warnings.showwarning = _warned


def escaped(text: str) -> str:
    """Text on one line, with nothing in it that a terminal or a reader could take for something else."""
    return _UNSAFE.sub(_escape, text)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        log.info("interrupted")
        return
    log.critical("ended by an error that nothing caught", exc_info=(kind, error, trace))


def _uncaught_in_thread(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_value is None or isinstance(ended.exc_value, SystemExit):
        return
    name = ended.thread.name if ended.thread else "that is gone"
    found = (ended.exc_type, ended.exc_value, ended.exc_traceback)
    log.error("thread %s ended by an error that nothing caught", name, exc_info=found)


def _unraisable(ended: "sys.UnraisableHookArgs") -> None:
    log.error("%s", ended.err_msg or "an error where none can be raised", exc_info=ended.exc_value)


def _warned(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """In place of ``warnings.showwarning``, which writes two lines of plain text."""
    logging.getLogger("py.warnings").warning("%s:%d: %s: %s", filename, lineno, category.__name__, message)


def _ids(record: logging.LogRecord) -> dict[str, object]:
    """Those that the record was given, else those of what its thread works on; of long ones the beginning."""
    found = {**log_context.ids(), **record.__dict__}
    return {name: _short(found[name]) for name in IDS if name in found}


def _short(value: object) -> object:
    if value is None or isinstance(value, int | float):
        return value
    text = str(value)
    return text if len(text) <= MOST_ID_CHARS else f"{text[: MOST_ID_CHARS - 1]}…"


def _shown(value: object) -> str:
    """In quotes where a reader could take it for several words; so no id passes for another one."""
    text = str(value)
    return text if _PLAIN.fullmatch(text) else escaped(json.dumps(text, ensure_ascii=False))


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """The traceback of an exception, or of where the record was made if it asks for that; empty for most."""
    parts = [formatter.formatException(record.exc_info)] if record.exc_info and record.exc_info[0] else []
    parts += [formatter.formatStack(record.stack_info)] if record.stack_info else []
    return "\n".join(parts)


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _escape(found: re.Match[str]) -> str:
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(found[0]) or ascii(found[0])[1:-1]
