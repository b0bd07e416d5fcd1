"""Spans: the parts of a turn as its trace shows them, and their ids, which its errors and logs name, too."""

import secrets
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal, Self

from loom_worker.core.values.json import Json, rfc3339_us

SpanStatus = Literal["OK", "Error", "Unset"]
SpanKind = Literal["internal", "server", "client", "producer", "consumer"]
"""As OpenTelemetry has them, in lower case."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened at one moment of a span."""

    name: str
    at_us: int
    """Microseconds since 1970."""
    attributes: Json = field(default_factory=dict)

    def as_json(self) -> Json:
        """An entry of a TraceSpan's ``events``."""
        return {"name": self.name, "time": rfc3339_us(self.at_us), "attributes": self.attributes}


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """One part of a trace, from its beginning to its end."""

    trace_id: str
    """32 hexadecimal digits."""
    span_id: str
    """16 hexadecimal digits; see span_id_of."""
    parent_id: str | None
    """None: the root. The parent may be a span of the client, which Loom never sees."""
    name: str
    start_us: int
    """Microseconds since 1970."""
    end_us: int | None
    """None while it goes on."""
    attributes: Json = field(default_factory=dict)
    """Strings, numbers, booleans, and lists of strings."""
    events: tuple[SpanEvent, ...] = ()
    status: SpanStatus = "Unset"
    status_message: str = ""
    kind: SpanKind = "internal"

    @property
    def duration_ms(self) -> float | None:
        """Milliseconds, to the microsecond; None while it goes on."""
        return None if self.end_us is None else (self.end_us - self.start_us) / 1000

    def as_json(self) -> Json:
        return {
            "trace_id": self.trace_id,
            "span_id": self.span_id,
            "parent_id": self.parent_id,
            "name": self.name,
            "kind": self.kind,
            "start_time": rfc3339_us(self.start_us),
            "end_time": None if self.end_us is None else rfc3339_us(self.end_us),
            "duration_ms": self.duration_ms,
            "attributes": self.attributes,
            "events": [event.as_json() for event in self.events],
            "status": self.status,
            "status_message": self.status_message,
        }

    def as_row(self) -> Json:
        events = [{"name": event.name, "at_us": event.at_us, "attributes": event.attributes} for event in self.events]
        return {**{name: getattr(self, name) for name in self.__slots__}, "events": events}

    @classmethod
    def of_row(cls, row: Json) -> Self:
        return cls(**{**row, "events": tuple(SpanEvent(**event) for event in row["events"])})


@dataclass(frozen=True, slots=True)
class LaterSpans:
    """Spans of what follows a turn's end, or goes on beside it; they are stored as such."""

    turn_id: str
    spans: tuple[TraceSpan, ...]
    is_exported: bool = False
    """True: they are exported, too, unless the client records no trace of the turn."""


def span_id_of(turn_id: str, *part: str) -> str:
    """The id of a span as W3C Trace Context has it: 16 hexadecimal digits.

    It follows from what the span stands for, so that every process that names it, and whoever goes on with the turn
    after a crash, gives it the same id.

    Args:
        part: of the turn, such as ``("tool", call_id)``; empty: the whole turn.
    """
    return blake2b("\0".join((turn_id, *part)).encode(), digest_size=8).hexdigest()


def new_traceparent() -> str:
    """The ``traceparent`` of the root of a new, sampled trace."""
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"


def traceparent_of(trace_id: str | None, turn_id: str, *part: str) -> str | None:
    """The W3C ``traceparent`` that names a part of a turn to another service; None: the turn has no trace."""
    return None if trace_id is None else f"00-{trace_id}-{span_id_of(turn_id, *part)}-01"
