"""An error of a tool as it is kept: whole, and in a line."""

from dataclasses import dataclass, replace

from loom_worker.core.values.cutting import FIELD_BYTES, cut_mark, entries, fit
from loom_worker.core.values.json import Json, rfc3339


@dataclass(frozen=True, slots=True)
class StoredError:
    """One failed call; secrets are already taken out."""

    id: str
    """``err_YYYYMMDD_HHMMSS_xxxxxx`` (UTC, six hexadecimal digits by chance): 26 characters."""
    workspace: str
    session_id: str
    turn_id: str
    tool_name: str
    at_ms: int
    short_summary: str
    """At most 100 characters."""
    raw_error: Json
    """``message``, and ``code`` and ``detail`` where there are some."""
    is_cut: bool = False
    """True for an error in a list whose texts are longer than shown."""

    def brief(self) -> "StoredError":
        """As lists hold it."""
        raw_error = fit(self.raw_error, FIELD_BYTES, entries)
        return self if raw_error is self.raw_error else replace(self, raw_error=raw_error, is_cut=True)

    def as_json(self) -> Json:
        """The error for programs."""
        return {
            "id": self.id,
            "object": "error",
            "session_id": self.session_id,
            "turn_id": self.turn_id,
            "tool_name": self.tool_name,
            "timestamp": rfc3339(self.at_ms),
            "short_summary": self.short_summary,
            "raw_error": self.raw_error,
            **cut_mark(self.is_cut, f"/v1/errors/{self.id}"),
        }


@dataclass(frozen=True, slots=True)
class ErrorFilter:
    """Which errors are wanted; None: whichever."""

    session_id: str | None = None
    tool: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
