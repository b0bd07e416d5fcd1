"""Fits a span into its size: long values are cut, then left out, and the span says so. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from loom_worker.core.values.json import Json
from loom_worker.core.values.spans import SpanEvent, TraceSpan

MOST_BYTES = 10_000
"""Of an encoded span."""
TRUNCATED = "loom.truncated"
"""Attribute of a span that is not whole."""
LONGEST_CHARS = (4_000, 1_000, 250)
"""Of each text, tried in this order."""
NAME_CHARS = 200
_ELLIPSIS = "…"

Size = Callable[[TraceSpan], int]


def fitted(span: TraceSpan, size_of: Size, *, most: int = MOST_BYTES) -> TraceSpan:
    """The span if it is small enough; else with texts cut, then without its largest attributes, then its last events.

    Args:
        size_of: bytes of a span as it is sent.
    """
    if size_of(span) <= most:
        return span
    return next(smaller for smaller in _smaller(span) if size_of(smaller) <= most)


def _smaller(span: TraceSpan) -> Iterator[TraceSpan]:
    """The span in smaller and smaller versions, down to one without attributes and events."""
    cut = span
    for chars in LONGEST_CHARS:
        cut = _cut(span, chars)
        yield cut
    while len(cut.attributes) > 1:
        others = sorted((name for name in cut.attributes if name != TRUNCATED), key=lambda name: _chars(cut, name))
        kept = {*others[: len(others) // 2], TRUNCATED}
        cut = replace(cut, attributes={name: value for name, value in cut.attributes.items() if name in kept})
        yield cut
    while cut.events:
        cut = replace(cut, events=cut.events[: len(cut.events) // 2])
        yield cut


def _cut(span: TraceSpan, chars: int) -> TraceSpan:
    return replace(
        span,
        name=_shortened(span.name, NAME_CHARS),
        attributes={**_cut_object(span.attributes, chars), TRUNCATED: True},
        events=tuple(_cut_event(event, chars) for event in span.events),
        status_message=_shortened(span.status_message, chars),
    )


def _cut_event(event: SpanEvent, chars: int) -> SpanEvent:
    return replace(event, name=_shortened(event.name, NAME_CHARS), attributes=_cut_object(event.attributes, chars))


def _cut_object(values: Json, chars: int) -> Json:
    return {_shortened(name, NAME_CHARS): _cut_value(value, chars) for name, value in values.items()}


def _cut_value(value: Any, chars: int) -> Any:
    match value:
        case str():
            return _shortened(value, chars)
        case list() | tuple():
            most = max(1, chars // 100)
            return [_cut_value(each, chars // most) for each in value[:most]]
        case dict():
            return _shortened(str(value), chars)
        case _:
            return value


def _shortened(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[: chars - 1] + _ELLIPSIS


def _chars(span: TraceSpan, name: str) -> int:
    return len(name) + len(str(span.attributes[name]))
