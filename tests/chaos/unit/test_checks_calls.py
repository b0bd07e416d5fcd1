"""I3, I6 and I7 at the model: each test breaks a good run in one way, or does what is allowed."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

from loom_worker.core.values.turns import Ending
from loom_worker.turn.state import TurnState
from tests.chaos.checker import check
from tests.chaos.checks_calls import body_tokens
from tests.chaos.records import Injection, ModelCall
from tests.chaos.unit.made import Run, assert_found, changed

RAN = "ran while a later turn had begun"


def test_a_turn_that_begins_before_the_one_before_has_its_answer_is_found(run: Run) -> None:
    calls = changed(run.calls, {"mark": "T00001"}, ended_s=_of(run, "T00002").began_s + 0.001)
    assert_found(run.evidence(model_calls=calls), "I3", RAN)


def test_a_turn_that_asks_after_a_later_one_has_begun_is_found(run: Run) -> None:
    late = _of(run, "T00004").ended_s
    calls = changed(run.calls, {"mark": "T00001"}, began_s=late + 1, ended_s=late + 2)
    assert_found(run.evidence(model_calls=calls), "I3", RAN)


def test_a_turn_that_asks_in_vain_after_a_later_one_has_begun_is_found(run: Run) -> None:
    late_s = _of(run, "T00004").ended_s
    failed = replace(_of(run, "T00001"), nth=0, began_s=late_s + 1, ended_s=late_s + 2, is_complete=False)
    assert_found(run.evidence(model_calls=(*run.calls, failed)), "I3", RAN)


def test_turns_of_two_sessions_may_run_at_once(run: Run) -> None:
    first, last = run.calls[0], run.calls[-1]
    calls = changed(run.calls, {"mark": "T00003"}, began_s=first.began_s, ended_s=last.ended_s)
    assert check(run.evidence(model_calls=calls)) == ()


def test_a_request_that_was_given_up_may_outlive_its_turn(run: Run) -> None:
    given_up = replace(_of(run, "T00001"), nth=0, fault="hang", is_complete=False, ended_s=1e9, began_s=999.0)
    assert check(run.evidence(model_calls=(given_up, *run.calls))) == ()


def test_a_worker_that_was_stopped_may_ask_for_a_turn_that_others_ended(run: Run) -> None:
    late, stop = _zombie(run)
    assert check(run.evidence(model_calls=(*run.calls, late), injections=(stop,))) == ()


def test_a_worker_that_nobody_stopped_may_not(run: Run) -> None:
    late, stop = _zombie(run)
    long_before = replace(stop, at_s=500.0, until_s=505.0)
    assert_found(run.evidence(model_calls=(*run.calls, late), injections=(long_before,)), "I3", RAN)


def test_a_stopped_worker_whose_reply_got_in_is_found(run: Run) -> None:
    late, stop = _zombie(run)
    got_in = replace(late, nth=1)
    calls = (*(call for call in run.calls if call.mark != "T00001"), got_in)
    assert_found(run.evidence(model_calls=calls, injections=(stop,)), "I3", RAN)


def test_a_cancelled_turn_may_be_given_up_late_if_its_reply_stays_out(run: Run) -> None:
    claim = run.accepted("T00005 plain", cancel_actions=("interrupt",))
    cut = run.model_call(TurnState.begin(claim), is_complete=False)
    run.ended(TurnState.begin(claim), Ending("cancelled", "interrupt"))
    run.turn("T00006 plain")
    late = replace(cut, began_s=run.now_s(), ended_s=run.now_s())
    assert check(run.evidence(model_calls=(*run.calls[:-2], late, run.calls[-1]))) == ()


def test_a_request_without_the_turn_before_is_found(run: Run) -> None:
    def forget(body: dict[str, Any]) -> None:
        del body["messages"][2:-1]

    assert_found(_with_body(run, "T00004", forget), "I3", "shows ['T00001', 'T00004'] after ['T00001', 'T00002']")


def test_a_request_with_turns_in_another_order_is_found(run: Run) -> None:
    def swap(body: dict[str, Any]) -> None:
        first, last = body["messages"][:2], body["messages"][-1:]
        body["messages"] = [*body["messages"][2:-1], *first, *last]

    assert_found(_with_body(run, "T00004", swap), "I3", "shows ['T00002', 'T00001', 'T00004']")


def test_a_request_with_another_session_in_it_is_found(run: Run) -> None:
    def mix(body: dict[str, Any]) -> None:
        body["messages"] = [*_of(run, "T00003").body["messages"], *body["messages"]]

    assert_found(_with_body(run, "T00004", mix), "I3", "shows ['T00003', 'T00001', 'T00002', 'T00004']")


def test_a_request_without_the_oldest_turns_is_allowed_where_they_do_not_fit(run: Run) -> None:
    def shorten(body: dict[str, Any]) -> None:
        del body["messages"][:2]

    evidence = _with_body(run, "T00004", shorten)
    most = max(body_tokens(call.body, {}) for call in evidence.model_calls)
    assert check(replace(evidence, budget_tokens=most)) == ()
    assert_found(evidence, "I11", "lacks T00001, which was not summarized and would have fitted")


def test_a_reply_that_is_shown_and_was_never_journaled_is_found(run: Run) -> None:
    run.sql("UPDATE steps SET payload = replace(payload, 'T00001.1', 'T00001.9') WHERE payload LIKE '%T00001.1%'")
    assert_found(run.evidence(), "I3", "shows T00001.1, never journaled")


def test_a_refused_request_is_found(run: Run) -> None:
    calls = changed(run.calls, {"mark": "T00001"}, complaint="messages.1: `tool_use` ids", status=400)
    assert_found(run.evidence(model_calls=calls), "I6", "was refused: messages.1")


def test_a_stored_call_without_its_result_is_found(run: Run) -> None:
    run.sql("DELETE FROM messages WHERE n = (SELECT max(n) FROM messages WHERE role = 'tool')")
    assert_found(run.evidence(), "I6", "are followed by results of []")


def test_a_stored_call_with_too_few_results_is_found(run: Run) -> None:
    run.sql(
        "UPDATE messages SET tool_result_json = json_remove(tool_result_json, '$[1]')"
        " WHERE json_array_length(tool_result_json) = 2"
    )
    assert_found(run.evidence(), "I6", "are followed by results of ['toolu_T00002-1-0']")


def test_stored_results_of_no_calls_are_found(run: Run) -> None:
    run.sql(
        "UPDATE messages SET tool_calls_json = NULL WHERE n = (SELECT min(n) FROM messages WHERE role = 'tool') - 1"
    )
    assert_found(run.evidence(), "I6", "calls [] are followed by results of ['toolu_T00002-1-0', 'toolu_T00002-1-1']")


def test_a_request_over_the_budget_is_found(run: Run) -> None:
    assert_found(run.evidence(budget_tokens=60), "I7", "tokens, allowed are 60")


def test_everything_in_a_request_counts_against_the_budget(run: Run) -> None:
    long = "word " * 2_000
    hidden = (
        lambda body: body["system"][0].update(text=long),
        lambda body: body["tools"][0].update(description=long),
        lambda body: body["tools"][0].update(input_schema={"type": "object", "description": long}),
        lambda body: body["messages"][0]["content"][0].update(text=long),
        lambda body: _block(body, "tool_use").update(input={"nonce": long}),
        lambda body: _block(body, "tool_result").update(content=long),
    )
    for hide in hidden:
        evidence = replace(_with_body(run, "T00004", hide), budget_tokens=2_000)
        assert_found(evidence, "I7", "tokens, allowed are 2000")


def test_a_request_without_the_end_of_the_newest_message_is_found(run: Run) -> None:
    def shorten(body: dict[str, Any]) -> None:
        body["messages"][-1]["content"][-1]["text"] = "T00004 pla"

    assert_found(_with_body(run, "T00004", shorten), "I7", "lacks the newest message as it was sent")


def test_a_request_for_no_turn_is_not_blamed_for_its_text(run: Run) -> None:
    stranger = replace(_of(run, "T00001"), mark="T99999")
    assert "I7" not in {each.invariant for each in check(run.evidence(model_calls=(*run.calls, stranger)))}


def test_a_run_that_does_not_know_its_budget_is_found(run: Run) -> None:
    assert_found(run.evidence(budget_tokens=0), "I7", "allowed are 0")


def _of(run: Run, mark: str) -> ModelCall:
    return next(call for call in run.calls if call.mark == mark)


def _zombie(run: Run) -> tuple[ModelCall, Injection]:
    """A worker was stopped in the first turn and goes on after the last one has ended."""
    began_s = run.calls[-1].ended_s + 1
    late = replace(_of(run, "T00001"), number=99, nth=2, began_s=began_s, ended_s=began_s + 0.5)
    return late, Injection("stop", "worker-1", 1000.0, began_s - 0.5)


def _with_body(run: Run, mark: str, change: Any) -> Any:
    body = deepcopy(_of(run, mark).body)
    change(body)
    return run.evidence(model_calls=changed(run.calls, {"mark": mark}, body=body))


def _block(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(block for each in body["messages"] for block in each["content"] if block["type"] == kind)
