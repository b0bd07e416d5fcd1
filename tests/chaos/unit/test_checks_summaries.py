"""I8, I9 and I11 at the model: each test breaks a good run with summaries in one way, or does what is allowed."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.checker import check, figures
from tests.chaos.records import Injection, ModelCall
from tests.chaos.unit.compressed import long_run, seen
from tests.chaos.unit.made import Run, assert_found

AGAIN = "was whole, unused, and asked for again"


@pytest.fixture
def summed(run: Run) -> Run:
    """The good run, with a session of eleven turns of which the oldest are summarized."""
    return long_run(run, turns=8)


def test_a_summary_that_is_asked_for_again_without_any_reason_is_found(summed: Run) -> None:
    first, again = _repeat(summed)
    evidence = seen(summed, model_calls=(*summed.calls, again))
    assert_found(evidence, "I8", f"summary {first.number} {AGAIN}")
    assert figures(evidence)["summary_replies_repeated"] == 1


def test_a_summary_whose_worker_died_may_be_asked_for_again(summed: Run) -> None:
    first, again = _repeat(summed)
    gone = replace(first, connection_gone_s=first.ended_s + 0.1)
    kill = Injection("crash", "summary.made", first.ended_s + 0.05, first.ended_s + 0.2)
    calls = (*(call for call in summed.calls if call is not first), gone, again)
    assert check(seen(summed, model_calls=calls, injections=(kill,))) == ()


def test_a_summary_that_came_in_part_may_be_asked_for_again(summed: Run) -> None:
    first, again = _repeat(summed)
    cut = replace(first, number=98, is_complete=False, fault="cut", began_s=first.began_s - 0.001)
    calls = (*(call for call in summed.calls if call is not first), cut, replace(again, began_s=first.began_s))
    assert check(seen(summed, model_calls=calls)) == ()


def test_a_summary_request_over_the_budget_is_found(summed: Run) -> None:
    def lengthen(body: dict[str, Any]) -> None:
        body["messages"][0]["content"][0]["text"] += " word" * 12_000

    first = _first(summed)
    assert_found(_with_body(summed, first, lengthen), "I7", f"{first.mark}: request {first.number} has")


def test_a_summary_request_that_the_server_refused_is_found(summed: Run) -> None:
    first = _first(summed)
    calls = tuple(replace(call, complaint="no", status=400) if call is first else call for call in summed.calls)
    assert_found(seen(summed, model_calls=calls), "I6", "was refused: no")


def test_a_summary_of_two_sessions_is_found(summed: Run) -> None:
    def mix(body: dict[str, Any]) -> None:
        body["messages"][0]["content"][0]["text"] += " T00003 plain"

    assert_found(_with_body(summed, _first(summed), mix), "I11", "is for a summary of the sessions ['s1', 's2']")


def test_a_summary_that_was_charged_twice_is_found(summed: Run) -> None:
    columns = (
        "workspace, session_id, turn_id, agent, model, input_tokens, output_tokens, cache_read_tokens, "
        "cache_write_tokens, llm_calls, cost_nano, at_ms, kind, tool_calls"
    )
    summed.sql(f"INSERT INTO usage ({columns}) SELECT {columns} FROM usage WHERE turn_id = '' LIMIT 1")
    assert_found(seen(summed), "I9", "summaries, ")
    assert_found(seen(summed), "I9", "its turns and summaries used")


def test_a_turn_that_is_gone_before_anybody_summarized_it_is_found(summed: Run) -> None:
    calls = tuple(call for call in summed.calls if call.part is None)
    assert_found(seen(summed, model_calls=calls), "I11", "which was not summarized and would have fitted")


def test_a_turn_of_a_session_on_a_budget_may_be_summarized_without_asking_anybody(summed: Run) -> None:
    summed.sql("""UPDATE sessions SET budget = '{"tokens": 1000000}' WHERE id = 's1'""")
    calls = tuple(call for call in summed.calls if call.part is None)
    assert "I11" not in {each.invariant for each in check(seen(summed, model_calls=calls))}


def test_a_turn_that_is_gone_and_in_no_block_of_memory_is_found(summed: Run) -> None:
    def forget(body: dict[str, Any]) -> None:
        del body["messages"][0]["content"][0]

    assert_found(_with_body(summed, _last_turn(summed), forget), "I11", "which was not summarized")


def test_a_request_that_begins_behind_no_summary_is_found(summed: Run) -> None:
    def shorten(body: dict[str, Any]) -> None:
        del body["messages"][:2]

    assert_found(_with_body(summed, _last_turn(summed), shorten), "I11", "which was not summarized")


def test_a_turn_that_is_shown_beside_its_summary_is_found(summed: Run) -> None:
    def remember(body: dict[str, Any]) -> None:
        body["messages"][0]["content"][0]["text"] += " Note-77 speaks of T00012."

    last = _last_turn(summed)
    assert "T00012" in str(last.body["messages"][:-1]) or last.mark == "T00012"
    assert_found(_with_body(summed, last, remember), "I11", "shows T00012 and a summary of it")


def _first(run: Run) -> ModelCall:
    return next(call for call in run.calls if call.part is not None)


def _last_turn(run: Run) -> ModelCall:
    return [call for call in run.calls if call.part is None][-1]


def _repeat(run: Run) -> tuple[ModelCall, ModelCall]:
    first = _first(run)
    return first, replace(first, number=99, began_s=run.now_s(), ended_s=run.now_s())


def _with_body(run: Run, call: ModelCall, change: Any) -> Any:
    body = deepcopy(call.body)
    change(body)
    calls = tuple(replace(each, body=body) if each is call else each for each in run.calls)
    return seen(run, model_calls=calls)
