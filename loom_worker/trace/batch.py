"""Spans as they leave, as many together as one request may have. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from loom_worker.core.values.spans import TraceSpan
from loom_worker.store.trace_outbox import TraceEntry
from loom_worker.trace import limits, otlp
from loom_worker.trace.limits import fitted
from loom_worker.trace.redact import redacted_span

MOST_SPANS = 100
MOST_BYTES = 1_000_000
"""Of one request."""
MOST_BYTES_OF_SPAN = limits.MOST_BYTES
ENVELOPE_BYTES = 4_000
"""Kept free for what stands around the spans."""


@dataclass(frozen=True, slots=True)
class EncodedSpan:
    """A span as it leaves."""

    span: TraceSpan
    encoded: bytes
    """In JSON."""

    @classmethod
    def of(cls, span: TraceSpan) -> "EncodedSpan":
        """Redacted, small enough, encoded."""
        whole = redacted_span(span)
        encoded = otlp.encoded_span(whole)
        if len(encoded) <= MOST_BYTES_OF_SPAN:
            return cls(whole, encoded)
        small = fitted(whole, lambda each: len(otlp.encoded_span(each)), most=MOST_BYTES_OF_SPAN)
        return cls(small, otlp.encoded_span(small))


@dataclass(slots=True)
class SpanBatch:
    """The spans of one request."""

    spans: list[EncodedSpan] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    """Entries of the outbox of which all spans are in this batch or an earlier one."""
    partial: int | None = None
    """The entry of which more spans follow."""
    following: int = 0
    """How many."""
    size_bytes: int = ENVELOPE_BYTES

    def has_room_for(self, each: EncodedSpan) -> bool:
        """True if it fits in."""
        return len(self.spans) < MOST_SPANS and self.size_bytes + len(each.encoded) + 1 <= MOST_BYTES

    def add(self, each: EncodedSpan) -> None:
        """Add a span."""
        self.spans.append(each)
        self.size_bytes += len(each.encoded) + 1

    def cut(self, entry: TraceEntry, *, following: int) -> Self:
        """The batch itself, which ends in the middle of an entry; so many of its spans follow."""
        self.partial, self.following = entry.n, following
        return self


def batches(entries: Sequence[TraceEntry], made: Mapping[str, tuple[TraceSpan, ...]]) -> Iterator[SpanBatch]:
    """All spans of these entries; each once, though a turn's end and a later span may both name it.

    Args:
        made: the spans of each turn.
    """
    batch, seen = SpanBatch(), set[tuple[str, str]]()
    for entry in entries:
        own = made.get(entry.turn_id, ()) if entry.later is None else (entry.later,)
        new = {(span.trace_id, span.span_id): span for span in own if span.end_us is not None}
        left = [span for key, span in new.items() if key not in seen]
        seen.update(new)
        for position, span in enumerate(left):
            each = EncodedSpan.of(span)
            if not batch.has_room_for(each):
                yield batch.cut(entry, following=len(left) - position) if position else batch
                batch = SpanBatch()
            batch.add(each)
        batch.done.append(entry.n)
    yield batch
