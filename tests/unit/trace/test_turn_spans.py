"""What holds of every trace, and what each part of a turn leaves in one."""

from dataclasses import replace

import pytest
from hypothesis import given

from loom_worker.core.values.spans import TraceSpan
from loom_worker.core.values.traces import NO_TRACE, TurnTrace
from loom_worker.core.values.turns import Step
from loom_worker.store.turn_records import TurnRecord
from loom_worker.trace.turn_spans import spans_of
from tests.unit.trace import generated
from tests.unit.trace.made import (
    ACCEPTED,
    AT_MS,
    AT_US,
    ENDED,
    PARENT_ID,
    TRACE_ID,
    between,
    one,
    parent_of,
    record,
    reply,
    run,
    times,
    tried,
    turn,
    waited,
)


@given(generated.records())
def test_a_trace_has_one_root_and_every_other_span_a_parent_before_it(record: TurnRecord) -> None:
    spans = spans_of(record)
    known: set[str] = set()
    outside = [span for span in spans if span.parent_id not in {each.span_id for each in spans}]
    assert outside == [spans[0]]
    assert outside[0].parent_id in (None, record.parent_id)
    for span in spans:
        assert span is spans[0] or span.parent_id in known, span.name
        known.add(span.span_id)


@given(generated.records())
def test_no_two_spans_of_a_trace_have_the_same_id(record: TurnRecord) -> None:
    ids = [span.span_id for span in spans_of(record)]
    assert len(ids) == len(set(ids))
    assert {span.trace_id for span in spans_of(record)} == {record.trace_id}


@given(generated.records())
def test_no_span_ends_before_it_began_and_none_of_an_ended_turn_goes_on(record: TurnRecord) -> None:
    for span in spans_of(record):
        assert span.end_us is None or span.start_us <= span.end_us, span
        assert span.end_us is not None or not record.turn.is_finished, span
        assert span.start_us > 0, span


@given(generated.records())
def test_the_spans_of_a_record_are_the_same_whenever_they_are_made(record: TurnRecord) -> None:
    assert spans_of(record) == spans_of(replace(record))


@given(generated.records())
def test_what_somebody_wrote_is_in_no_span_unless_it_is_to_be_shown(record: TurnRecord) -> None:
    assert generated.SECRET not in str(spans_of(record))
    assert generated.SECRET in str(spans_of(record, shows_content=True))


@given(generated.records())
def test_attributes_hold_what_a_backend_can_take(record: TurnRecord) -> None:
    for span in spans_of(record, shows_content=True):
        for attributes in (span.attributes, *(event.attributes for event in span.events)):
            for name, value in attributes.items():
                assert _is_plain(value), (span.name, name, value)


@given(generated.records())
def test_what_is_exported_of_a_journal_is_all_but_what_is_stored_as_spans(record: TurnRecord) -> None:
    later = {span.span_id for span in record.later}
    assert spans_of(replace(record, later=())) == tuple(span for span in spans_of(record) if span.span_id not in later)


@given(generated.records())
def test_what_is_stored_as_a_span_comes_back_as_it_was(record: TurnRecord) -> None:
    for span in spans_of(record):
        assert TraceSpan.of_row(span.as_row()) == span


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float) or (isinstance(value, list) and all(isinstance(x, str) for x in value))


def test_a_request_of_a_client_without_a_trace_is_the_root() -> None:
    request, chat, *_ = spans_of(record())
    assert (request.name, request.span_id, request.parent_id) == ("http.request", PARENT_ID, None)
    assert (chat.name, chat.parent_id) == ("agent.chat", PARENT_ID)
    assert (request.kind, request.start_us, request.end_us) == ("server", AT_US, AT_US + 1000)
    assert request.attributes["http.route"] == "/v1/sessions/{session_id}/turns"
    assert spans_of(record(turn=turn(retry_of="turn_0")))[0].attributes["http.route"] == "/v1/turns/{turn_id}/retry"


def test_a_request_of_a_client_with_a_trace_hangs_on_the_clients_span() -> None:
    request, chat, *_ = spans_of(record(replace(ACCEPTED, has_client_span=True)))
    assert request.parent_id == PARENT_ID != request.span_id
    assert chat.parent_id == request.span_id


@pytest.mark.parametrize(
    ("trace", "parent_id"),
    [(NO_TRACE, None), (TurnTrace(accepted_us=AT_US), None), (TurnTrace(AT_US, has_client_span=True), PARENT_ID)],
    ids=["of an earlier version", "did not come by HTTP", "was never stored"],
)
def test_a_turn_without_a_request_is_the_root_itself(trace: TurnTrace, parent_id: str | None) -> None:
    chat, *_ = spans_of(record(trace))
    assert (chat.name, chat.parent_id) == ("agent.chat", parent_id)


def test_a_turn_is_a_span_from_its_acceptance_until_its_end_was_stored() -> None:
    session = {"turns": 3, "tokens": 450, "cost_usd": 1.5}
    steps = (reply(0, times(tried(10, 20))),)
    chat = one(spans_of(record(replace(ENDED, session=session), steps=steps)), "agent.chat")
    assert (chat.start_us, chat.end_us, chat.status) == (AT_US + 1000, AT_US + 900_000, "OK")
    known = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "helper",
        "gen_ai.conversation.id": "s1",
        "gen_ai.provider.name": "anthropic",
        "llm.model": "claude-test",
        "conversation.turns": 3,
        "conversation.tokens.total": 450,
        "conversation.cost.usd": 1.5,
        "loom.turn.id": "turn_1",
        "loom.turn.status": "completed",
    }
    assert {name: chat.attributes.get(name) for name in known} == known


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({}, "OK", ""),
        ({"status": "cancelled"}, "Unset", ""),
        ({"status": "failed", "reason": "dead"}, "Error", "dead"),
        ({"status": "failed", "reason": "provider", "error": {"message": "401"}}, "Error", "provider: 401"),
        (
            {"status": "incomplete", "reason": "limits", "error": {"message": "x" * 500}},
            "Error",
            f"limits: {'x' * 200}",
        ),
        ({"status": "in_progress", "completed_ms": None}, "Unset", ""),
    ],
)
def test_the_status_of_a_trace_is_that_of_its_turn(fields: dict[str, object], status: str, message: str) -> None:
    chat = one(spans_of(record(turn=turn(**fields))), "agent.chat")
    assert (chat.status, chat.status_message) == (status, message)


def test_a_queued_turn_waits_and_nothing_else() -> None:
    queued = turn(status="queued", completed_ms=None, output_text=None)
    spans = spans_of(record(turn=queued, claimed_us=None))
    assert [(span.name, span.end_us) for span in spans[1:]] == [("agent.chat", None), ("lane.wait", None)]


def test_a_turn_that_was_cancelled_in_the_queue_waited_until_then() -> None:
    spans = spans_of(record(turn=turn(status="cancelled"), claimed_us=None))
    assert (one(spans, "lane.wait").end_us, one(spans, "agent.chat").end_us) == ((AT_MS + 1000) * 1000,) * 2


def test_the_wait_in_the_queue_ends_with_the_first_run() -> None:
    runs = (run(1, end="died", ended_us=AT_US + 50_000), run(2, began_us=AT_US + 50_000))
    spans = spans_of(record(replace(ENDED, runs=runs), claimed_us=AT_US + 50_000))
    assert one(spans, "lane.wait").end_us == AT_US + 5000
    first, second = [span for span in spans if span.name == "turn.run"]
    assert (first.status, first.status_message, first.end_us) == ("Error", "the worker died", second.start_us)
    assert (second.status, second.attributes["loom.run.end"], second.attributes["loom.worker"]) == (
        *("OK", "ended"),
        "worker-2",
    )


def test_the_run_under_way_has_no_end_and_its_parts_hang_on_it() -> None:
    running = turn(status="in_progress", completed_ms=None, held_by="worker-2", fence=2)
    steps = (Step(0, "matched", {"times": {"run": 2, "at": between(60, 70).as_json()}}),)
    runs = (run(1, end="parked", ended_us=AT_US + 50_000),)
    spans = spans_of(record(replace(ACCEPTED, runs=runs), turn=running, steps=steps, claimed_us=AT_US + 55_000))
    _, current = [span for span in spans if span.name == "turn.run"]
    assert (current.start_us, current.end_us, current.attributes["loom.worker"]) == (AT_US + 55_000, None, "worker-2")
    assert one(spans, "pattern.match").parent_id == current.span_id


def test_patterns_that_were_matched_are_named_and_those_that_the_model_loaded_are_not() -> None:
    matched = turn(patterns=({"id": "sales", "how": "matched"}, {"id": "stock", "how": "loaded"}))
    steps = (Step(0, "matched", {"times": {"run": 1, "at": between(6, 7).as_json()}}),)
    span = one(spans_of(record(ENDED, turn=matched, steps=steps)), "pattern.match")
    assert span.attributes == {"loom.patterns": ["sales"], "loom.patterns.count": 1}
    none = one(spans_of(record(ENDED, steps=steps)), "pattern.match")
    assert none.attributes == {"loom.patterns.count": 0}


def test_what_happened_in_a_run_that_is_not_kept_hangs_on_the_turn() -> None:
    steps = (reply(0, times(tried(10, 20), fence=77)),)
    spans = spans_of(record(ENDED, steps=steps))
    assert parent_of(spans, one(spans, "llm.completion")) == "agent.chat"


def test_storing_the_end_is_a_part_of_the_last_run() -> None:
    spans = spans_of(record(replace(ENDED, runs=(run(1, end="parked"), run(4)))))
    finish = one(spans, "store.finish")
    assert [run.attributes["loom.run.fence"] for run in spans if run.span_id == finish.parent_id] == [4]


def test_storing_why_a_turn_failed_is_told_with_the_error() -> None:
    failed = turn(status="failed", reason="provider", error={"type": "provider", "message": "no", "error_id": "err_9"})
    span = one(spans_of(record(replace(ENDED, error_stored=between(880, 885)), turn=failed)), "error_store.store")
    assert [(event.name, event.attributes) for event in span.events] == [("error_stored", {"loom.error_id": "err_9"})]
    none = spans_of(record(replace(ENDED, error_stored=between(880, 885))))
    assert "error_store.store" not in {span.name for span in none}


def test_once_the_journal_is_gone_the_request_the_turn_and_its_runs_are_left() -> None:
    spans = spans_of(record(ENDED))
    assert {span.name for span in spans} == {"http.request", "agent.chat", "lane.wait", "turn.run", "store.finish"}


def test_spans_stand_in_the_order_in_which_they_began() -> None:
    steps = (waited(0, times(tried(10, 20, "Transient", "busy"))), reply(1, times(tried(30, 40))))
    began = [span.start_us for span in spans_of(record(ENDED, steps=steps))]
    assert began == sorted(began)


def test_a_trace_has_one_id_in_all_its_spans() -> None:
    assert {span.trace_id for span in spans_of(record(ENDED))} == {TRACE_ID}
