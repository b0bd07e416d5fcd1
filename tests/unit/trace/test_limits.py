import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.spans import SpanEvent, TraceSpan
from loom_worker.trace import otlp
from loom_worker.trace.limits import MOST_BYTES, TRUNCATED, fitted
from tests.unit.trace.made_spans import START_US, span


def size(each: TraceSpan) -> int:
    return len(otlp.encoded_span(each))


def test_a_small_span_stays_as_it_is() -> None:
    assert fitted(span(), size) is not None
    assert fitted(span(), size) == span()


def test_a_long_value_is_cut_and_the_others_stay() -> None:
    whole = span(attributes={"text": "x" * 50_000, "model": "m", "n": 7})
    small = fitted(whole, size)
    assert small.attributes == {"text": "x" * 3_999 + "…", "model": "m", "n": 7, TRUNCATED: True}
    assert small.events == whole.events


def test_of_many_values_the_largest_are_left_out() -> None:
    many = {f"long.{n}": "x" * 300 for n in range(200)} | {f"n.{n}": n for n in range(20)}
    small = fitted(span(attributes=many), size)
    assert small.attributes[TRUNCATED] is True
    assert {f"n.{n}" for n in range(20)} <= small.attributes.keys()
    assert size(small) <= MOST_BYTES


def test_the_first_events_stay_when_there_are_too_many() -> None:
    events = tuple(SpanEvent(f"event {n}", START_US, {"text": "x" * 200}) for n in range(1_000))
    small = fitted(span(events=events), size)
    assert 10 <= len(small.events) < 1_000
    assert [event.name for event in small.events] == [f"event {n}" for n in range(len(small.events))]
    assert small.attributes[TRUNCATED] is True


@pytest.mark.parametrize("text", ["\0" * 100_000, "\U0001f600" * 100_000, "\ud800" * 100_000, '"' * 100_000])
def test_the_size_counts_as_it_is_sent(text: str) -> None:
    small = fitted(
        span(name=text, status_message=text, attributes={text: text}, events=(SpanEvent(text, 0, {text: [text] * 9}),)),
        size,
    )
    assert size(small) <= MOST_BYTES
    assert small.attributes[TRUNCATED] is True


LONG = st.text(max_size=20).map(lambda text: text * 700)


@given(st.dictionaries(LONG, st.one_of(LONG, st.lists(LONG), st.integers())), st.lists(LONG, max_size=20))
def test_no_span_is_too_large(attributes: dict[str, object], names: list[str]) -> None:
    events = tuple(SpanEvent(name, START_US, attributes) for name in names)
    small = fitted(span(attributes=attributes, events=events), size)
    assert size(small) <= MOST_BYTES
    assert (small == span(attributes=attributes, events=events)) != (TRUNCATED in small.attributes)
