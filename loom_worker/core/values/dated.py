"""A summary by date: what was said in a part of a session that has left the active window."""

from dataclasses import dataclass

from loom_worker.core.values.json import Json, rfc3339


@dataclass(frozen=True, slots=True)
class DatedSummary:
    """A part of a conversation in a few sentences, with the time that it is about."""

    id: str
    """``sum_…``; sorts by the time it was written."""
    session_id: str
    content: str
    by_model: str
    """The model that wrote it, or ``heuristic``."""
    token_count: int
    messages: int
    """How many it is about."""
    from_n: int
    to_n: int
    """Numbers of the first and the last of them."""
    from_ms: int
    to_ms: int
    """When the first and the last of them were said."""
    created_ms: int

    def as_json(self) -> Json:
        """As the tool ``memory_summary`` shows it."""
        return {
            "session": self.session_id,
            "from": (rfc3339(self.from_ms) or "")[:10],
            "to": (rfc3339(self.to_ms) or "")[:10],
            "messages": self.messages,
            "summary": self.content,
        }
