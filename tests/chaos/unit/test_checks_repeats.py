"""I8: each test repeats something in a good run, with or without an excuse."""

from dataclasses import replace

import pytest

from loom_worker.core.values.chat import ChatMessage, ToolOutcome, ToolUse
from loom_worker.core.values.turns import Ending
from loom_worker.memory.results import folded
from loom_worker.turn.state import TurnState
from tests.chaos.checker import check, figures
from tests.chaos.model_script import newest_question
from tests.chaos.records import Effect, Injection, ModelCall
from tests.chaos.unit.made import Run, assert_found

UNUSED = "was whole (request 7), unused, and asked for again"


def test_a_reply_that_was_lost_without_any_reason_is_found(run: Run) -> None:
    _lost_reply(run)
    assert_found(run.evidence(), "I8", UNUSED)


def test_a_reply_that_was_lost_with_its_process_is_allowed(run: Run) -> None:
    lost, kill = _lost_reply(run)
    calls = _gone(run, lost, kill.at_s)
    assert check(run.evidence(model_calls=calls, injections=(kill,))) == ()
    assert figures(run.evidence(model_calls=calls))["model_replies_repeated"] == 1


@pytest.mark.parametrize("kind", ["kill", "tree", "crash", "term"])
def test_every_kind_of_death_excuses(run: Run, kind: str) -> None:
    lost, kill = _lost_reply(run)
    evidence = run.evidence(
        model_calls=_gone(run, lost, kill.at_s), injections=(replace(kill, kind=kind, target="turn.replied"),)
    )
    assert check(evidence) == ()


def test_a_kill_of_another_process_does_not_excuse(run: Run) -> None:
    _, kill = _lost_reply(run)
    assert_found(run.evidence(injections=(kill,)), "I8", UNUSED)


def test_a_connection_that_ended_without_a_kill_does_not_excuse(run: Run) -> None:
    lost, kill = _lost_reply(run)
    early = replace(kill, at_s=kill.at_s - 60, until_s=kill.at_s - 60)
    assert_found(run.evidence(model_calls=_gone(run, lost, kill.at_s), injections=(early,)), "I8", UNUSED)


@pytest.mark.parametrize("later_s", [60, -0.5])
def test_a_kill_at_another_time_than_the_connections_end_does_not_excuse(run: Run, later_s: float) -> None:
    lost, kill = _lost_reply(run)
    gone_s = kill.at_s + 0.2
    other = replace(kill, at_s=gone_s + later_s, until_s=gone_s + later_s)
    assert_found(run.evidence(model_calls=_gone(run, lost, gone_s), injections=(other,)), "I8", UNUSED)


def test_a_kill_long_after_the_reply_does_not_excuse(run: Run) -> None:
    lost, kill = _lost_reply(run, later_s=10)
    late = replace(kill, at_s=lost.ended_s + 5, until_s=lost.ended_s + 5)
    assert_found(run.evidence(model_calls=_gone(run, lost, late.at_s), injections=(late,)), "I8", UNUSED)


@pytest.mark.parametrize("kind", ["broker", "flush", "swallow", "stop", "lock", "full"])
def test_what_takes_turns_from_the_living_excuses_at_its_time(run: Run, kind: str) -> None:
    lost, _ = _lost_reply(run)
    during = Injection(kind, "", lost.began_s, lost.ended_s)
    assert check(run.evidence(injections=(during,))) == ()
    before = Injection(kind, "", lost.began_s - 60, lost.began_s - 50)
    assert_found(run.evidence(injections=(before,)), "I8", UNUSED)
    after = Injection(kind, "", lost.ended_s + 50, lost.ended_s + 60)
    assert_found(run.evidence(injections=(after,)), "I8", UNUSED)


def test_a_process_that_was_asked_to_end_may_drain_and_one_that_was_killed_may_not(run: Run) -> None:
    lost, kill = _lost_reply(run)
    asked = replace(kill, kind="term", at_s=kill.at_s - 8, until_s=kill.at_s - 8)
    calls = _gone(run, lost, kill.at_s)
    assert check(run.evidence(model_calls=calls, injections=(asked,))) == ()
    assert_found(run.evidence(model_calls=calls, injections=(replace(asked, kind="kill"),)), "I8", UNUSED)


@pytest.mark.parametrize("kind", ["duplicate", "clock", "race"])
def test_what_must_cost_nothing_excuses_nothing(run: Run, kind: str) -> None:
    lost, _ = _lost_reply(run)
    assert_found(run.evidence(injections=(Injection(kind, "", lost.began_s, lost.ended_s),)), "I8", UNUSED)


def test_replies_that_were_not_sent_whole_may_be_asked_for_again(run: Run) -> None:
    _lost_reply(run, is_complete=False, fault="cut")
    assert check(run.evidence()) == ()


def test_a_reply_that_the_journal_has_may_not_be_asked_for_again(run: Run) -> None:
    kill = Injection("kill", "worker-1", run.calls[-1].ended_s, run.calls[-1].ended_s)
    again = replace(run.calls[-1], number=99, nth=2, began_s=run.now_s(), ended_s=run.now_s())
    evidence = run.evidence(model_calls=(*_gone(run, run.calls[-1], kill.at_s), again), injections=(kill,))
    assert_found(evidence, "I8", "T00004: reply 1 is journaled and was asked for again, request 99")


def test_a_request_for_a_journaled_reply_is_found_even_if_it_fails(run: Run) -> None:
    again = replace(run.calls[-1], number=99, nth=2, began_s=run.now_s(), ended_s=1e9, is_complete=False)
    assert_found(run.evidence(model_calls=(*run.calls, again)), "I8", "reply 1 is journaled and was asked for again")


def test_a_request_without_room_for_the_turns_first_replies_is_not_taken_for_a_repeat(run: Run) -> None:
    asked = ChatMessage("assistant", "", tool_uses=(ToolUse("toolu_1", "note", {}),))
    told = ChatMessage("user", "", outcomes=(ToolOutcome("toolu_1", "note", "done"),))
    [question] = folded((ChatMessage("user", "T00004 plain", context="Today."), asked, told), 1)
    body = dict(run.calls[-1].body)
    texts = [{"type": "text", "text": text} for text in (question.context, newest_question(body))]
    body["messages"] = [*body["messages"][:-1], {"role": "user", "content": texts}]
    again = replace(run.calls[-1], number=99, nth=2, began_s=run.now_s(), ended_s=run.now_s(), body=body)
    assert check(run.evidence(model_calls=(*run.calls, again))) == ()


def test_a_reply_lost_between_two_tools_is_found_too(run: Run) -> None:
    work = run.ran_tools(run.asked(TurnState.begin(run.accepted("T00005 tools=note")).matched("", "", ())))
    run.model_call(work)
    work = run.asked(work)
    run.ended(work, Ending("completed", output_text=work.said))
    assert_found(run.evidence(), "I8", "T00005: reply 2 was whole (request 8), unused, and asked for again")


def test_an_unused_reply_of_a_turn_that_its_client_ended_is_allowed(run: Run) -> None:
    work = TurnState.begin(run.accepted("T00005 plain", cancel_actions=("finish",))).matched("", "", ())
    run.model_call(work)
    work = run.asked(work)
    run.ended(work, Ending("completed", output_text=work.said))
    assert check(run.evidence()) == ()


def test_an_unused_reply_that_nobody_asked_for_again_is_allowed(run: Run) -> None:
    work = TurnState.begin(run.accepted("T00005 plain", may_fail=True)).matched("", "", ())
    run.model_call(work)
    run.ended(work, Ending("failed", "dead"))
    assert check(run.evidence()) == ()


def test_a_journaled_reply_is_not_lost_because_a_stopped_worker_asks_late(run: Run) -> None:
    kept = run.calls[-1]
    stop = Injection("stop", "worker-1", kept.ended_s + 5, kept.ended_s + 9)
    late = replace(kept, number=99, nth=2, began_s=stop.until_s + 1, ended_s=stop.until_s + 2)
    assert check(run.evidence(model_calls=(*run.calls, late), injections=(stop,))) == ()


def test_a_turn_that_was_never_claimed_may_not_be_asked_for(run: Run) -> None:
    stranger = replace(run.calls[0], number=99, mark="T99999")
    assert_found(run.evidence(model_calls=(*run.calls, stranger)), "I8", "T99999: the model was asked for a turn")


def test_a_tool_that_must_not_run_twice_has_no_excuse(run: Run) -> None:
    charge = _effect(run, "charge")
    kill = Injection("kill", "worker-1", charge.at_s, charge.at_s + 1)
    evidence = run.evidence(effects=(*run.effects, replace(charge, at_s=run.now_s())), injections=(kill,))
    assert_found(evidence, "I8", f"charge {charge.nonce} ran 2 times and must not run twice")


def test_a_tool_that_ran_again_after_a_death_is_allowed(run: Run) -> None:
    note = _effect(run, "note")
    for kind in ("kill", "crash", "flush"):
        injected = Injection(kind, "worker-1", note.at_s + 0.5, note.at_s + 0.5)
        again = replace(note, at_s=note.at_s + 3)
        assert check(run.evidence(effects=(*run.effects, again), injections=(injected,))) == ()


def test_a_tool_that_ran_again_for_no_reason_is_found(run: Run) -> None:
    note = _effect(run, "note")
    evidence = run.evidence(effects=(*run.effects, replace(note, at_s=note.at_s + 3)))
    assert_found(evidence, "I8", f"note {note.nonce} ran 2 times, and no process died over it")


def test_each_repeat_of_a_tool_needs_its_own_death(run: Run) -> None:
    note = _effect(run, "note")
    kill = Injection("kill", "worker-1", note.at_s, note.at_s)
    again = (replace(note, at_s=note.at_s + 30), replace(note, at_s=note.at_s + 60))
    assert_found(run.evidence(effects=(*run.effects, *again), injections=(kill,)), "I8", "ran 3 times")


def test_a_completed_call_without_an_effect_is_found(run: Run) -> None:
    note = _effect(run, "note")
    effects = tuple(effect for effect in run.effects if effect is not note)
    assert_found(run.evidence(effects=effects), "I8", f"note {note.nonce} is stored as completed and had no effect")


def test_an_unknown_outcome_may_have_had_an_effect_or_none(run: Run) -> None:
    charge = _effect(run, "charge")
    run.sql("UPDATE calls SET status = 'unknown' WHERE name = 'charge'")
    for effects in (tuple(run.effects), tuple(each for each in run.effects if each is not charge)):
        assert not [each for each in check(run.evidence(effects=effects)) if each.invariant == "I8"]


def test_an_effect_before_the_reply_is_journaled_is_found(run: Run) -> None:
    effects = (*run.effects, Effect("note", "T00001-1-0", 1.0))
    assert_found(run.evidence(effects=effects), "I8", "note T00001-1-0 ran for no call of the database")


def _lost_reply(run: Run, *, later_s: float = 0.0, **fields: object) -> tuple[ModelCall, Injection]:
    """A fifth turn whose first reply came whole and did not get into the journal; and the kill just after it."""
    work = TurnState.begin(run.accepted("T00005 plain")).matched("", "", ())
    lost = run.model_call(work, **fields)
    killed_s = run.now_s()
    work = run.asked(work)
    if later_s:
        run.calls[-1] = replace(run.calls[-1], began_s=lost.ended_s + later_s, ended_s=lost.ended_s + later_s + 1)
    run.ended(work, Ending("completed", output_text=work.said))
    return lost, Injection("kill", "worker-1", killed_s, killed_s)


def _gone(run: Run, call: ModelCall, at_s: float) -> tuple[ModelCall, ...]:
    """The call's connection ended at that time."""
    return tuple(replace(each, connection_gone_s=at_s) if each is call else each for each in run.calls)


def _effect(run: Run, tool: str) -> Effect:
    return next(effect for effect in run.effects if effect.tool == tool)
