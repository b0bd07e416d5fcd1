"""What models, tools, people and judges leave in a trace."""

import json
from dataclasses import replace

import pytest

from loom_worker.core.values.chat import Usage
from loom_worker.core.values.json import Json
from loom_worker.core.values.spans import TraceSpan, span_id_of
from loom_worker.core.values.traces import Interval, TurnTrace
from loom_worker.core.values.turns import Step
from loom_worker.trace.call_spans import CONTENT_CHARS
from loom_worker.trace.turn_spans import spans_of
from tests.unit.trace.made import (
    AT_MS,
    AT_US,
    ENDED,
    USAGE,
    between,
    call,
    named,
    one,
    parent_of,
    record,
    reply,
    times,
    tried,
    turn,
    verdict,
    waited,
)


def of_steps(*steps: Step, trace: TurnTrace = ENDED, **fields: object) -> list[TraceSpan]:
    """The requests to the model of a turn with these steps."""
    return named(spans_of(record(trace, steps=steps), **fields), "llm.completion")  # type: ignore[arg-type]


def test_a_reply_tells_its_model_its_tokens_its_cost_and_its_first_words() -> None:
    (span,) = of_steps(reply(0, times(tried(10, 30), first_text_us=AT_US + 15_000)))
    assert (span.start_us, span.end_us, span.status, span.kind) == (AT_US + 10_000, AT_US + 30_000, "OK", "client")
    assert span.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-test",
        "llm.model": "claude-test",
        "gen_ai.request.stream": True,
        "gen_ai.response.model": "claude-test-1",
        "gen_ai.response.finish_reasons": ["end_turn"],
        "gen_ai.usage.input_tokens": 130,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 30,
        "loom.tokens": 150,
        "loom.cost_usd": 0.5,
        "gen_ai.response.time_to_first_chunk": 0.005,
    }


def test_a_reply_of_unknown_price_has_no_cost() -> None:
    (span,) = of_steps(reply(0, times(tried(10, 30)), usage={**USAGE, "cost_usd": None}))
    assert "loom.cost_usd" not in span.attributes


def test_every_failed_request_is_a_span_of_its_own_with_its_error() -> None:
    spans = of_steps(reply(0, times(tried(10, 20, "Overloaded", "529: busy"), tried(25, 30))))
    assert [(span.status, span.status_message) for span in spans] == [("Error", "529: busy"), ("OK", "")]
    assert spans[0].attributes["error.type"] == "Overloaded"
    assert "loom.tokens" not in spans[0].attributes
    assert spans[1].attributes["loom.tokens"] == 150


def test_an_error_without_words_is_told_by_its_type() -> None:
    spans = of_steps(reply(0, times(tried(10, 20, "Overloaded"), tried(25, 30))))
    assert spans[0].status_message == "Overloaded"


def test_requests_that_led_to_a_wait_are_told_beside_the_reply_that_came_at_last() -> None:
    failed = times(tried(10, 20, "Overloaded", "busy"), tried(21, 22, "Overloaded", "busy"))
    spans = of_steps(waited(0, failed), waited(1, failed), reply(2, times(tried(30, 40))))
    assert [span.status for span in spans] == ["Error"] * 4 + ["OK"]
    assert len({span.span_id for span in spans}) == 5


def test_the_nth_reply_has_the_id_that_its_number_gives() -> None:
    steps = (reply(0, times(tried(10, 20))), waited(1), reply(2, times(tried(30, 40))))
    ids = [span.span_id for span in of_steps(*steps)]
    assert ids == [span_id_of("turn_1", "llm", "0"), span_id_of("turn_1", "llm", "1")]


def test_a_request_that_ended_the_turn_has_the_id_of_the_reply_that_it_owes() -> None:
    failed = times(tried(30, 40, "ProviderFailed", "401"), tried(50, 60, "ProviderFailed", "401"))
    spans = of_steps(reply(0, times(tried(10, 20))), trace=replace(ENDED, failed_call=failed))
    assert [span.status for span in spans] == ["OK", "Error", "Error"]
    assert spans[-1].span_id == span_id_of("turn_1", "llm", "1")
    assert len({span.span_id for span in spans}) == 3


def test_a_request_that_was_given_up_with_its_turn_is_neither_well_nor_an_error() -> None:
    (span,) = of_steps(trace=replace(ENDED, failed_call=times(tried(30, 40))))
    assert (span.status, "error.type" in span.attributes) == ("Unset", False)


def test_building_a_context_is_told_with_its_tokens_also_where_nothing_was_asked() -> None:
    built = times(built=between(6, 9), tokens=1234)
    spans = spans_of(record(replace(ENDED, failed_call=built)))
    span = one(spans, "context.build")
    assert (span.attributes, parent_of(spans, span)) == ({"loom.context.tokens": 1234}, "turn.run")
    assert not named(spans, "llm.completion")


def test_replies_of_an_earlier_version_leave_no_spans() -> None:
    assert not of_steps(reply(0), waited(1))


def test_the_provider_is_called_as_the_conventions_call_it() -> None:
    known = {**times(tried(10, 20)), "provider": "bedrock"}
    (span,) = of_steps(reply(0, known))
    assert span.attributes["gen_ai.provider.name"] == "aws.bedrock"


def test_a_reply_is_shown_where_contents_are_and_cut() -> None:
    (hidden,) = of_steps(reply(0, times(tried(10, 20)), text="y" * 9_000))
    assert "gen_ai.output.messages" not in hidden.attributes
    (shown,) = of_steps(reply(0, times(tried(10, 20)), text="y" * 9_000), shows_content=True)
    [told] = json.loads(shown.attributes["gen_ai.output.messages"])
    assert told == {"role": "assistant", "parts": [{"type": "text", "content": "y" * CONTENT_CHARS}]}


def test_a_tool_call_lasts_from_its_claim_to_its_result() -> None:
    spans = spans_of(record(ENDED, turn=turn(calls=(call(),))))
    span = one(spans, "tool.execute")
    assert (span.start_us, span.end_us, span.status) == ((AT_MS + 100) * 1000, (AT_MS + 200) * 1000, "OK")
    assert (span.span_id, parent_of(spans, span)) == (span_id_of("turn_1", "tool", "toolu_0"), "agent.chat")
    assert span.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "toolu_0",
        "gen_ai.tool.type": "function",
        "loom.worker": "worker-9",
        "loom.tool.sends": 1,
        "loom.tool.queue_ms": 10,
    }


@pytest.mark.parametrize("status", ["failed", "timeout", "denied", "cancelled", "unknown"])
def test_a_call_without_a_result_is_an_error_of_its_status(status: str) -> None:
    span = one(spans_of(record(ENDED, turn=turn(calls=(call(status=status),)))), "tool.execute")
    assert (span.status, span.status_message, span.attributes["error.type"]) == ("Error", status, status)


def test_a_call_that_nobody_took_is_a_moment_and_one_that_waits_to_be_taken_nothing() -> None:
    closed, pending = call(0, status="cancelled", started_ms=None), call(1, status="pending", started_ms=None)
    running = turn(status="in_progress", calls=(closed, replace(pending, finished_ms=None)))
    span = one(spans_of(record(turn=running)), "tool.execute")
    assert (span.attributes["gen_ai.tool.call.id"], span.start_us, span.end_us) == (
        "toolu_0",
        *((AT_MS + 200) * 1000,) * 2,
    )
    assert "loom.tool.queue_ms" not in span.attributes


def test_a_call_under_way_has_no_end() -> None:
    running = turn(status="in_progress", calls=(call(status="running", finished_ms=None),))
    span = one(spans_of(record(turn=running)), "tool.execute")
    assert (span.end_us, span.status, "error.type" in span.attributes) == (None, "Unset", False)


def test_the_process_of_a_call_and_its_stored_error_hang_on_the_call() -> None:
    trace = {"process": {"pid": 77, "at": between(110, 150).as_json()}, "error_stored": between(160, 170).as_json()}
    failed = call(status="failed", error_id="err_1", trace=trace)
    spans = spans_of(record(ENDED, turn=turn(calls=(failed,))))
    process, stored = one(spans, "tool.process"), one(spans, "error_store.store")
    assert {parent_of(spans, process), parent_of(spans, stored)} == {"tool.execute"}
    assert process.attributes == {"process.pid": 77}
    assert [event.name for event in stored.events] == ["error_stored"]
    assert stored.attributes == {"loom.error_id": "err_1", "gen_ai.tool.name": "look"}


@pytest.mark.cases(
    "fields, status, more",
    [
        ({}, "OK", {}),
        ({"status": "failed", "error_id": "err_2"}, "Error", {"error.type": "failed"}),
    ],
)
def test_reading_a_stored_error_hangs_on_the_call_that_read_it(fields: Json, status: str, more: Json) -> None:
    read = {"error_read": {"error_id": "err_1", "at": between(110, 120).as_json()}}
    spans = spans_of(record(ENDED, turn=turn(calls=(call(trace=read, **fields),))))
    got = one(spans, "error_store.get")
    assert (parent_of(spans, got), got.status) == ("tool.execute", status)
    assert (got.start_us, got.end_us) == (AT_US + 110_000, AT_US + 120_000)
    assert got.attributes == {"loom.error_id": "err_1", **more}


def test_arguments_and_results_are_shown_as_json_where_contents_are() -> None:
    made = call(arguments={"city": "Köln", "all": True}, content="rain")
    hidden = one(spans_of(record(ENDED, turn=turn(calls=(made,)))), "tool.execute")
    assert not {name for name in hidden.attributes if name.startswith("gen_ai.tool.call.") and name[-2:] != "id"}
    shown = one(spans_of(record(ENDED, turn=turn(calls=(made,))), shows_content=True), "tool.execute")
    assert shown.attributes["gen_ai.tool.call.arguments"] == '{"city":"Köln","all":true}'
    assert shown.attributes["gen_ai.tool.call.result"] == "rain"


def approval(**fields: object) -> list[TraceSpan]:
    """The wait for a person, of a call that was asked for at 20 ms."""
    steps = (Step(0, "matched", {}), reply(1, times(tried(10, 20))))
    status = "in_progress" if fields.get("finished_ms", 1) is None else "completed"
    made = turn(status=status, calls=(call(**fields),))
    return named(spans_of(record(ENDED, turn=made, steps=steps)), "approval.wait")


@pytest.mark.parametrize(
    ("fields", "end_us"),
    [
        ({"approval": "approved"}, (AT_MS + 90) * 1000),
        ({"approval": "edited"}, (AT_MS + 90) * 1000),
        ({"approval": "rejected", "sent_ms": None, "started_ms": None, "status": "denied"}, (AT_MS + 200) * 1000),
        ({"approval": "expired", "sent_ms": None, "started_ms": None, "status": "denied"}, (AT_MS + 200) * 1000),
        ({"approval": "approved", "sent_ms": None, "started_ms": None, "status": "cancelled"}, (AT_MS + 200) * 1000),
        ({"approval": "waiting", "status": "pending", "sent_ms": None, "started_ms": None, "finished_ms": None}, None),
    ],
    ids=["approved", "edited", "rejected", "expired", "approved, but cancelled before it was sent", "waiting"],
)
def test_a_call_waits_for_a_person_from_the_reply_until_the_decision(fields: Json, end_us: int | None) -> None:
    (span,) = approval(**fields)
    assert (span.start_us, span.end_us) == (AT_US + 20_000, end_us)
    assert span.attributes["loom.approval"] == fields["approval"]


def test_a_wait_of_unknown_beginning_is_not_made_up() -> None:
    assert not named(spans_of(record(ENDED, turn=turn(calls=(call(approval="approved"),)))), "approval.wait")


def test_a_judge_is_told_with_its_score_and_what_its_model_used() -> None:
    used = Usage.from_json(USAGE)
    spans = spans_of(record(ENDED, verdicts=(verdict(model="claude-judge", usage=used, critique="too long"),)))
    judge, asked = one(spans, "judge.score"), one(spans, "llm.completion")
    assert judge.attributes == {
        "gen_ai.evaluation.name": "judge-0",
        "gen_ai.evaluation.score.value": 0.5,
        "loom.judge.type": "llm",
        "loom.judge.queue_ms": 10,
        "loom.worker": "worker-8",
    }
    assert (judge.start_us, judge.end_us) == ((AT_MS + 300) * 1000, (AT_MS + 400) * 1000)
    assert (asked.parent_id, asked.attributes["llm.model"]) == (judge.span_id, "claude-judge")
    assert (asked.attributes["loom.tokens"], asked.attributes["loom.llm_calls"]) == (150, 1)


@pytest.mark.parametrize(
    ("fields", "status", "count"),
    [
        ({"status": "dead", "score": None}, "Error", 1),
        ({"status": "cancelled", "score": None}, "Error", 1),
        ({"status": "running", "score": None, "finished_ms": None}, "Unset", 1),
        ({"status": "pending", "score": None, "started_ms": None, "finished_ms": None}, "", 0),
    ],
)
def test_a_judge_without_a_score(fields: Json, status: str, count: int) -> None:
    is_over = fields.get("finished_ms", 1) is not None
    made = record(ENDED, turn=turn(status="completed" if is_over else "in_progress"), verdicts=(verdict(**fields),))
    found = named(spans_of(made), "judge.score")
    assert [span.status for span in found] == [status] * count
    assert all(("error.type" in span.attributes) == (status == "Error") for span in found)


def test_judges_of_one_answer_and_the_next_are_spans_of_their_own() -> None:
    verdicts = tuple(verdict(position, reply_n=n) for n in (1, 4) for position in (0, 1))
    assert len({span.span_id for span in named(spans_of(record(ENDED, verdicts=verdicts)), "judge.score")}) == 4


@pytest.mark.parametrize("stored", [None, "x", [1], [1, "2"], [1, 2, 3]])
def test_an_interval_that_cannot_be_read_leaves_no_span(stored: object) -> None:
    assert Interval.of(stored) is None
    trace = {"process": {"pid": 1, "at": stored}, "error_stored": stored, "error_read": {"at": stored}}
    spans = spans_of(record(ENDED, turn=turn(calls=(call(trace=trace, error_id="err_1"),))))
    assert not {span.name for span in spans} & {"tool.process", "error_store.store", "error_store.get"}
