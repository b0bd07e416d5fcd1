"""Runs a tool's function in this process, and makes an outcome of whatever it returns or raises."""

import dataclasses
import json
import math
import re
import traceback
from collections.abc import Mapping

from loom_worker.core.errors import ToolFailed
from loom_worker.core.text import clean
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Outcome, Tool

JSON = "application/json"
PLAIN = "text/plain"
FAULTS = frozenset({"UNAVAILABLE"})
"""Codes for a failure of what is behind the tool, not of the request."""
CODE = re.compile("[A-Z][A-Z0-9_]{0,39}")
"""A valid code; anything else that a tool gives as a code is appended to its text."""
DIED = "the tool's process died"
BUSY = "all tool processes are busy; try again later"
NO_PROCESS = "no process could be started for it"


def run(tool: Tool, arguments: Json, caller: Caller, *, max_bytes: int) -> Outcome:
    """Run a tool whose arguments passed its schema; never raises, whatever the tool does.

    Args:
        max_bytes: of the result, in UTF-8; the rest is cut.
    """
    try:
        content, content_type = encoded(tool.run(arguments, caller))
        whole = clean(content)
    except ToolFailed as error:
        text, code = str(error.args[0]) if error.args else "failed", error.code
        if code is not None and not (isinstance(code, str) and CODE.fullmatch(code)):
            text, code = f"{text}\nCode: {code}", None
        return failed(cut(clean(text), max_bytes), detail=_trace(error, max_bytes), code=code)
    except (Exception, SystemExit) as error:  # the top of a task: a tool's bug must close the call, not the turn
        text = str(traceback.TracebackException.from_exception(error))  # works even if its own __str__ raises
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
        return failed(cut(clean(text), max_bytes), detail=_trace(error, max_bytes), is_fault=True)
    kept = cut(whole, max_bytes)
    return Outcome("completed", kept, content_type if kept is whole else PLAIN)


def failed(text: str, *, detail: str = "", code: str | None = None, is_fault: bool = False) -> Outcome:
    """A failure; some codes make it a fault by themselves."""
    return Outcome("failed", text, code=code, detail=detail, is_fault=is_fault or code in FAULTS)


def timed_out(timeout_s: float) -> Outcome:
    """The outcome of a tool that did not return in time."""
    return Outcome("timeout", f"timed out after {timeout_s:g} s", is_fault=True)


def cut(text: str, max_bytes: int) -> str:
    """Cut text between two characters to so many bytes of UTF-8; a note at its end says how much is missing."""
    if len(text) * 4 <= max_bytes:
        return text
    raw = text.encode()
    if len(raw) <= max_bytes:
        return text
    note = (
        f"\n… [cut: this is the beginning of {len(raw):,} bytes, a result may have {max_bytes:,}; ask for less, or for"
        " it in parts]"
    )
    return raw[: max(0, max_bytes - len(note.encode()))].decode("utf-8", "ignore") + note


def _trace(error: BaseException, max_bytes: int) -> str:
    return cut(clean("".join(traceback.format_exception(error))), max_bytes)


def encoded(result: object) -> tuple[str, str]:
    """Text and content type of a result: text is kept as it is, anything else becomes JSON.

    NaN and infinity become null, and keys become text; a value that JSON cannot express becomes its ``str``.

    Raises:
        Exception: whatever the ``__str__`` of a foreign object raises.
    """
    if isinstance(result, str):
        return result, (JSON if _is_json(result) else PLAIN)
    try:
        return _dumps(result), JSON
    except (TypeError, ValueError, RecursionError):  # keys that are not text, NaN, a value that contains itself
        pass
    try:
        return _dumps(_jsonable(result)), JSON
    except (TypeError, ValueError, RecursionError):
        return str(result), PLAIN


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, set | frozenset):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else str(value)


def _jsonable(value: object) -> object:
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {key if isinstance(key, str) else str(key): _jsonable(inner) for key, inner in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_jsonable(inner) for inner in value]
        case str() | int() | float() | None:
            return value
    return _jsonable(_plain(value))


def _is_json(text: str) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    if text[:1] + text[-1:] not in ("{}", "[]"):
        return False
    try:
        json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return False
    return True
