"""Failed calls and turns: the whole error is stored; of a call's the model reads a line and can ask for the rest."""

import json
import logging
import re
import unicodedata
from collections.abc import Callable

from loom_worker.core.errors import NotFound, ToolFailed, Unavailable
from loom_worker.core.text import longest, storable
from loom_worker.core.values.chat import ToolSpec, object_schema
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json, rfc3339
from loom_worker.core.values.spans import span_id_of
from loom_worker.core.values.tools import Caller, Outcome, StoredError, Tool
from loom_worker.core.values.turns import Turn
from loom_worker.guard.findings import redacted
from loom_worker.llm.tokens import cl100k_tokens
from loom_worker.store.agent_errors import AgentErrors, NewAgentError

SUMMARY_CHARS = 100
"""Characters of a summary, its code and ellipsis included."""
LEAST_BYTES = 16
"""Kept of a summary in UTF-8, however many tokens the tool's name takes."""
TOLD_TOKENS = 60
"""Tokens by cl100k that the model reads of a failure whose tool has a name of usual length."""
FALLBACK_CHARS = 500
"""Characters of a failure that could not be stored, so that the model cannot ask for more."""
TEXT_BYTES = 32 * 1024
"""Stored of a message, and of its detail; the middle of longer ones is left out."""
READ_CHARS = 1_000_000
"""Characters of a message that are searched for secrets, from both ends: far more than is stored."""
CODE_CHARS = 40
DETAIL_BYTES = 12 * 1024
"""Bytes of an answer of get_error_detail, in UTF-8: less than what would become a reference itself."""
NOTHING_SAID = "failed without a message"

_ID = re.compile(r"err_[0-9]{8}_[0-9]{6}_[0-9a-f]{6}")
_TRACEBACK = "Traceback (most recent call last)"
_NOTE_BYTES = 60

log = logging.getLogger(__name__)


class Failures:
    """Keeps failures and words them for the model; never fails itself."""

    def __init__(
        self,
        errors: AgentErrors | None,
        *,
        clock_ms: Callable[[], int] = now_ms,
        count: Callable[[str], int] = cl100k_tokens,
    ) -> None:
        """Args: errors: None: nowhere; the model reads more of each failure instead; count: tokens of a text."""
        self._errors = errors
        self._clock_ms = clock_ms
        self._count = count

    def keep(self, caller: Caller, tool_name: str, outcome: Outcome) -> tuple[str, str | None]:
        """Keep a failed call; return what the model reads of it, and the error's id if it was kept."""
        raw = raw_error(outcome)
        summary, span_id = _summary(raw["message"], outcome.code), span_id_of(caller.turn_id, "tool", caller.call_id)
        new = NewAgentError(caller.lane, caller.turn_id, tool_name, summary, raw, span_id)
        error_id = self._stored(self._errors, new) if self._errors is not None else None
        if error_id is None:
            whole = _read(outcome.content).strip() or NOTHING_SAID
            return f"Tool '{tool_name}' failed: {shortened(_coded(whole, outcome.code), FALLBACK_CHARS)}", None
        return error_line(tool_name, new.short_summary, error_id, self._count), error_id

    def keep_turn(self, turn: Turn, why: Outcome, *, span_id: str) -> str | None:
        """Keep why a turn failed; return the error's id if it was kept."""
        raw = raw_error(why)
        new = NewAgentError(turn.lane, turn.id, "", _summary(raw["message"], why.code), raw, span_id)
        return None if self._errors is None else self._stored(self._errors, new)

    def _stored(self, errors: AgentErrors, new: NewAgentError) -> str | None:
        for _ in range(2):
            try:
                error_id = errors.store(new, now_ms=self._clock_ms())
            except NotFound:
                return None  # the session is being deleted, and its errors with it
            except Unavailable as error:
                whose = f"tool {new.tool_name}" if new.tool_name else "the turn"
                log.warning("an error of %s was not stored: %s", whose, error, extra={"turn": new.turn_id})
            else:
                ids = {"error_id": error_id, "tool_name": new.tool_name, "turn": new.turn_id}
                log.info("error_stored", extra=ids)
                return error_id
        return None


def error_line(tool: str, line: str, error_id: str, count: Callable[[str], int] = cl100k_tokens) -> str:
    """What the model reads of a stored failure; less of its summary in scripts with many tokens per character."""

    def written(chars: int) -> str:
        return f"Tool '{tool}' failed: {shortened(line, chars)} [Error ID: {error_id}]"

    def fits(chars: int) -> bool:
        return count(written(chars)) <= TOLD_TOKENS

    least_chars = len(line.encode()[:LEAST_BYTES].decode("utf-8", "ignore"))
    return written(len(line) if fits(len(line)) else max(least_chars, longest(len(line), fits)))


def summary(message: str, code: str | None = None) -> str:
    """The code and first line of a message, redacted; the last line of a Python traceback.

    Returns:
        1 to SUMMARY_CHARS characters without line breaks and control characters.
    """
    return _summary(_read(message), code)


def _summary(text: str, code: str | None) -> str:
    lines = text.splitlines()
    line = next(filter(None, map(_visible, lines)), NOTHING_SAID)
    if line.startswith(_TRACEBACK):
        line = next(filter(None, map(_visible, reversed(lines))), NOTHING_SAID)
    return shortened(_coded(line, code), SUMMARY_CHARS)


def shortened(text: str, most_chars: int) -> str:
    """Cut text to so many characters including the ellipsis, never between a letter and its accents."""
    if len(text) <= most_chars:
        return text
    cut = most_chars - 1
    while cut > 0 and unicodedata.category(text[cut]).startswith("M"):
        cut -= 1
    return text[: max(cut, 0)].rstrip() + "…"


def raw_error(outcome: Outcome) -> Json:
    """A failure as it is stored: ``message``, and ``code`` and ``detail`` if there are any; redacted."""
    raw = {"message": _cut(_read(outcome.content), TEXT_BYTES)}
    if outcome.code:
        raw["code"] = outcome.code
    if outcome.detail:
        raw["detail"] = _cut(_read(outcome.detail), TEXT_BYTES)
    return raw


def error_detail_tool(errors: AgentErrors) -> Tool:
    """The tool ``get_error_detail``; it only reads errors of the caller's own session."""

    def run(arguments: Json, caller: Caller) -> Json:
        error_id = str(arguments["error_id"]).strip()
        if not _ID.fullmatch(error_id):
            raise ToolFailed("error_id must look like err_20261121_230334_abc123", "INVALID_INPUT")
        try:
            return shown(errors.get_in_lane(caller.lane, error_id))
        except NotFound as error:
            raise ToolFailed(f"This session has no error {error_id}", "ERROR_NOT_FOUND") from error
        except Unavailable as error:
            raise ToolFailed(f"The error could not be read: {error}", "DATABASE_ERROR") from error

    return Tool(_SPEC, run, is_bounded=True, occasion="error")


def shown(error: StoredError) -> Json:
    """An error for the model, at most DETAIL_BYTES; ``is_cut`` if that is not the whole error."""

    def answer(most_bytes: int) -> Json:
        raw = {name: _cut(text, most_bytes) for name, text in error.raw_error.items()}
        return {
            "error_id": error.id,
            "timestamp": rfc3339(error.at_ms),
            "tool_name": error.tool_name or None,
            "short_summary": error.short_summary,
            "raw_error": raw,
            **({"is_cut": True} if raw != error.raw_error else {}),
        }

    def fits(most_bytes: int) -> bool:
        return len(json.dumps(answer(most_bytes), ensure_ascii=False, separators=(",", ":")).encode()) <= DETAIL_BYTES

    return answer(longest(TEXT_BYTES, fits))


def _coded(text: str, code: str | None) -> str:
    return f"Code {_visible(code)[:CODE_CHARS]}: {text}" if code else text


def _read(text: str) -> str:
    """Clean and redact a text; the middle of a very long one is dropped unread."""
    if len(text) > READ_CHARS:
        text = text[: READ_CHARS // 2] + text[-READ_CHARS // 2 :]
    return redacted(storable(text))


def _visible(line: str) -> str:
    """A line without invisible characters, such as control characters and marks of the direction of writing."""
    seen = ("" if (kind := unicodedata.category(char)) == "Cf" else " " if kind[0] in "CZ" else char for char in line)
    return " ".join("".join(seen).split())


def _cut(text: str, most_bytes: int) -> str:
    """At most so many bytes of a text in UTF-8: the beginning and end of a longer one, and how much is left out."""
    raw = text.encode()
    if len(raw) <= most_bytes:
        return text
    half = max(0, most_bytes - _NOTE_BYTES) // 2
    head, tail = raw[:half].decode("utf-8", "ignore"), raw[len(raw) - half :].decode("utf-8", "ignore")
    return f"{head}\n… [{len(raw) - 2 * half:,} bytes left out] …\n{tail}"


_SPEC = ToolSpec(
    name="get_error_detail",
    description=(
        "Read the whole of a tool call's error: message, code, stack trace. Use it when the summary does not tell "
        "enough to correct the call."
    ),
    input_schema=object_schema(
        "error_id",
        error_id={
            "type": "string",
            "description": "from the failed call, such as err_20261121_230334_abc123",
        },
    ),
)
