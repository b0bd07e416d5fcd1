"""What attempts at a webhook and compressions leave in the trace of the turn before them."""

from dataclasses import replace

import pytest

from loom_worker.core.values.chat import Usage
from loom_worker.core.values.memory import Change, Summary
from loom_worker.core.values.spans import span_id_of
from loom_worker.core.values.traces import TracedTurn
from loom_worker.trace.later import of_attempt, of_compression, traceparent
from loom_worker.trace.turn_spans import spans_of
from tests.unit.trace.generated import DELIVERY, SECRET
from tests.unit.trace.made import AT_US, TRACE_ID, USAGE, between, call, record, turn

CHANGE = Change(4, "compressed", "warning", 6, from_tokens=500, to_tokens=50, by="small")
TURN = TracedTurn("turn_1", TRACE_ID)
AT = between(1100, 1200)


def test_the_receiver_is_told_the_span_of_the_very_attempt() -> None:
    told = of_attempt(DELIVERY, AT, error=None)
    assert told is not None
    (span,) = told.spans
    assert traceparent(DELIVERY, AT.began_us) == f"00-{TRACE_ID}-{span.span_id}-01"
    assert traceparent(DELIVERY, AT.began_us + 1) != traceparent(DELIVERY, AT.began_us)


def test_a_turn_without_a_trace_has_none_that_a_receiver_could_go_on_with() -> None:
    untraced = replace(DELIVERY, trace_id=None)
    assert (traceparent(untraced, AT_US), of_attempt(untraced, AT, error=None)) == (None, None)


@pytest.mark.parametrize(
    ("status", "error", "error_type"),
    [(200, None, None), (500, "HTTP 500", "500"), (None, "refused", "no_response")],
)
def test_an_attempt_tells_how_it_was_answered(status: int | None, error: str | None, error_type: str | None) -> None:
    told = of_attempt(replace(DELIVERY, last_status=status, attempts=2), AT, error=error)
    assert told is not None
    (span,) = told.spans
    assert (span.name, span.kind, span.parent_id) == ("webhook.deliver", "client", span_id_of("turn_1"))
    assert (span.status, span.status_message) == (("OK", "") if error is None else ("Error", error))
    assert (span.attributes.get("error.type"), span.attributes["loom.delivery.attempt"]) == (error_type, 2)
    assert span.attributes.get("http.response.status_code") == status
    assert (span.start_us, span.end_us) == (AT.began_us, AT.ended_us)


def test_the_address_and_the_body_of_a_webhook_are_not_in_the_trace() -> None:
    told = str(of_attempt(DELIVERY, AT, error=None))
    assert SECRET in DELIVERY.body
    assert SECRET not in told
    assert "example.com" not in told


def test_a_compression_by_a_model_tells_what_was_asked_of_it() -> None:
    summary = Summary(SECRET, "small", Usage.from_json(USAGE), asked="small-1")
    told = of_compression(TURN, CHANGE, summary, AT)
    compressed, asked = told.spans
    assert (compressed.name, compressed.parent_id) == ("memory.compress", span_id_of("turn_1"))
    assert (asked.name, asked.parent_id, asked.attributes["llm.model"]) == (
        *("llm.completion", compressed.span_id),
        "small-1",
    )
    assert asked.attributes["loom.tokens"] == 150
    (event,) = compressed.events
    assert (event.name, event.at_us) == ("memory.l2_compression_triggered", AT.began_us)
    assert compressed.attributes["loom.memory.from_tokens"] == 500
    assert SECRET not in str(told)


def test_a_compression_without_a_model_asks_none() -> None:
    told = of_compression(TURN, replace(CHANGE, level=None), Summary(SECRET, "heuristic"), AT)
    assert [span.name for span in told.spans] == ["memory.compress"]
    assert "loom.memory.level" not in told.spans[0].attributes


def test_what_a_model_was_asked_stands_below_the_turn_where_its_compression_is_too_long_ago() -> None:
    _, asked = of_compression(TURN, CHANGE, Summary("", "small", Usage.from_json(USAGE), asked="small"), AT).spans
    spans = spans_of(record(later=(asked,)))
    assert spans[-1] == replace(asked, parent_id=span_id_of("turn_1"))


def test_a_stored_span_stays_below_the_call_that_made_it() -> None:
    attempt = of_attempt(DELIVERY, AT, error=None)
    assert attempt is not None
    made = replace(attempt.spans[0], name="made by a tool", parent_id=span_id_of("turn_1", "tool", "toolu_0"))
    assert made in spans_of(record(turn=turn(calls=(call(),)), later=(made,)))


def test_attempts_and_compressions_stand_in_the_trace_below_the_turn() -> None:
    attempt = of_attempt(DELIVERY, AT, error=None)
    assert attempt is not None
    compressed = of_compression(TURN, CHANGE, Summary("", "heuristic"), between(1300, 1400))
    spans = spans_of(record(later=(*attempt.spans, *compressed.spans)))
    assert [span.name for span in spans[-2:]] == ["webhook.deliver", "memory.compress"]
    assert {span.parent_id for span in spans[-2:]} == {span.span_id for span in spans if span.name == "agent.chat"}
