"""What a turn needs next, as a table of situations; and never an exception on any journal."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.settings import LimitSettings
from loom_worker.core.values.budgets import usd
from loom_worker.core.values.calls import Call, CallStatus
from loom_worker.core.values.chat import Reply, StopReason, ToolSpec, ToolUse, Usage
from loom_worker.core.values.json import Json
from loom_worker.core.values.sessions import Choice
from loom_worker.core.values.tools import Tool
from loom_worker.core.values.turns import Claim, Turn
from loom_worker.turn.decide import (
    MAX_WAITS,
    Approve,
    Ask,
    AskPerson,
    CallHere,
    Close,
    Decision,
    End,
    FanOut,
    Match,
    Situation,
    Wait,
    decide,
    problem,
)
from loom_worker.turn.state import Bill, TurnState
from loom_worker.turn.tool_plan import CallRules, Check, check

LIMITS = LimitSettings()
NOW_MS = 1_000_000
USE = ToolUse("toolu_1", "add", {})
CALL = Call("toolu_1", "add", {}, position=0, reply_n=1)
STOPS: tuple[StopReason, ...] = ("end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause_turn")


def begun(**turn: Any) -> TurnState:
    row = Turn("turn_1", "lane", "s1", "w", "default", 1, "in_progress", "How many?", NOW_MS, **turn)
    return TurnState.begin(Claim(row, (), rom=None, kernel={}, choice=Choice(), user=None))


def matched(**turn: Any) -> TurnState:
    return begun(**turn).matched("Today.", "", ())


def replied(
    work: TurnState, text: str = "42", stop: StopReason = "end_turn", *calls: Call, cost_usd: float = 0.1
) -> TurnState:
    uses = tuple(ToolUse(call.id, call.name, call.arguments) for call in calls)
    usage = Usage(input_tokens=60, output_tokens=40, cost_usd=usd(cost_usd), llm_calls=1)
    return work.replied(Reply(text, stop, usage, "m", uses), calls, first_token_ms=None, estimated=100)


def situation(work: TurnState, **changes: Any) -> Situation:
    now = Situation(
        now_ms=NOW_MS,
        run_ms=0,
        check=looked_after(work),
        bounded=frozenset({"note"}),
    )
    return replace(now, **changes)


def looked_after(work: TurnState, alive: frozenset[str] = frozenset({"w1"})) -> Check:
    return check(work.calls, CallRules(alive, Tools(), timeout_s=30.0, concurrency=10), now_ms=NOW_MS)


class Tools:
    """Every name is a tool; ``pay`` must not run twice."""

    def get(self, name: str) -> Tool:
        return Tool(ToolSpec(name, "", {}), lambda arguments, caller: "", is_idempotent=name != "pay")


def after(work: TurnState, **changes: Any) -> Decision:
    limits = replace(LIMITS, max_llm_calls=changes.pop("max_llm_calls", LIMITS.max_llm_calls))
    return decide(work, limits, situation(work, **changes))


def ended(decision: Decision) -> tuple[str, str | None]:
    assert isinstance(decision, End)
    return decision.ending.status, decision.ending.reason


def test_a_new_turn_looks_for_patterns_then_asks_then_ends() -> None:
    assert after(begun()) == Match()
    assert after(matched()) == Ask(may_call_tools=True)
    assert ended(after(replied(matched()))) == ("completed", None)


@pytest.mark.cases(
    ("deaths", "most", "is_dead"), [(0, 1, False), (1, 1, True), (2, 3, False), (3, 3, True), (4, 3, True)]
)
def test_a_turn_is_dead_after_as_many_deaths_as_it_may_have_attempts(deaths: int, most: int, is_dead: bool) -> None:
    decision = after(begun(deaths=deaths, max_attempts=most))
    assert isinstance(decision, End) == is_dead
    assert not is_dead or ended(decision) == ("failed", "dead")


@pytest.mark.parametrize(("deadline_ms", "is_over"), [(NOW_MS, True), (NOW_MS - 1, True), (NOW_MS + 1, False)])
def test_a_deadline_ends_a_turn_whatever_it_waits_for(deadline_ms: int, is_over: bool) -> None:
    work = replied(matched(deadline_ms=deadline_ms), "", "tool_use", CALL)
    decision = after(work)
    assert isinstance(decision, End) == is_over
    assert not is_over or ended(decision) == ("incomplete", "deadline")


@pytest.mark.parametrize(("run_ms", "is_over"), [(299_999, False), (300_000, True)])
def test_a_turn_may_run_for_its_timeout(run_ms: int, is_over: bool) -> None:
    assert (after(matched(), run_ms=run_ms) != Ask(may_call_tools=True)) == is_over


def test_a_provider_that_is_busy_too_often_fails_the_turn_with_its_last_words() -> None:
    work = matched()
    for n in range(MAX_WAITS):
        assert after(work) == Ask(may_call_tools=True)
        work = work.waited(f"busy {n}").with_events({"first": 9, "log": []})
    decision = after(work)
    assert ended(decision) == ("failed", "provider")
    assert f"busy {MAX_WAITS - 1}" in str(decision)


@pytest.mark.parametrize(("over", "words"), [({"run_ms": 300_000}, "ran for 300 s"), ({}, "deadline has passed")])
def test_a_turn_whose_time_is_over_names_the_models_last_error(over: dict[str, int], words: str) -> None:
    work = matched(deadline_ms=None if over else NOW_MS)
    assert "last error" not in str(after(work, **over))
    work = work.waited("It is left alone.", {"last_error": "The reply was cut."})
    text = str(after(work, **over))
    assert words in text
    assert "The model's last error was: The reply was cut." in text
    answered = replied(work, "", "tool_use", replace(CALL, status="completed", content="3"))
    assert "last error" not in str(after(answered, **over))


def test_a_reply_takes_the_waits_back() -> None:
    work = matched()
    for _ in range(MAX_WAITS - 1):
        work = work.waited("busy")
    work = replied(work, "", "tool_use", replace(CALL, status="completed", content="3"))
    assert after(work.waited("busy")) == Ask(may_call_tools=True)


CALLS: dict[str, tuple[Call, type[object]]] = {
    "not sent yet": (CALL, FanOut),
    "sent just now": (replace(CALL, sends=1, sent_ms=NOW_MS), Wait),
    "on its way": (replace(CALL, sends=1, sent_ms=NOW_MS - 5_000), Wait),
    "not picked up": (replace(CALL, sends=1, sent_ms=NOW_MS - 5_001), FanOut),
    "waiting in a long queue": (replace(CALL, sends=3, sent_ms=NOW_MS - 20_000), Wait),
    "running": (replace(CALL, sends=1, status="running", worker="w1", started_ms=NOW_MS), Wait),
    "running too long": (replace(CALL, sends=1, status="running", worker="w1", started_ms=NOW_MS - 35_001), Close),
    "worker dead": (replace(CALL, sends=1, status="running", worker="w9", started_ms=NOW_MS), FanOut),
    "worker dead, not idempotent": (
        replace(CALL, name="pay", sends=1, status="running", worker="w9", started_ms=NOW_MS),
        Close,
    ),
    "worker dead once too often": (
        replace(CALL, sends=5, status="running", worker="w9", started_ms=NOW_MS),
        Close,
    ),
    "bounded": (replace(CALL, name="note"), CallHere),
    "bounded, in another's hands": (
        replace(CALL, name="note", sends=1, status="running", worker="w1", started_ms=NOW_MS),
        Wait,
    ),
}


@pytest.mark.cases("case", CALLS)
def test_an_open_call_is_tended(case: str) -> None:
    call, expected = CALLS[case]
    assert type(after(replied(matched(), "", "tool_use", call))) is expected


def test_a_bounded_call_beside_another_is_not_run_here() -> None:
    running = replace(CALL, position=1, status="running", worker="w1", started_ms=NOW_MS)
    work = replied(matched(), "", "tool_use", replace(CALL, name="note"), running)
    assert isinstance(after(work), FanOut)


def test_calls_are_closed_before_others_are_sent() -> None:
    dead = replace(CALL, name="pay", position=1, status="running", worker="w9", started_ms=NOW_MS)
    decision = after(replied(matched(), "", "tool_use", CALL, dead))
    assert isinstance(decision, Close)
    assert [call.status for call in decision.calls] == ["unknown"]


WAITS = replace(CALL, approval="waiting", approve_by_ms=NOW_MS + 50)


def test_a_turn_waits_for_a_person_until_its_first_question_or_its_deadline_runs_out() -> None:
    later = replace(WAITS, id="t2", position=1, approve_by_ms=NOW_MS + 90)
    assert after(replied(matched(), "", "tool_use", WAITS, later)) == AskPerson(NOW_MS + 50)
    assert after(replied(matched(deadline_ms=NOW_MS + 20), "", "tool_use", WAITS)) == AskPerson(NOW_MS + 20)


def test_what_needs_nobody_goes_on_beside_what_does() -> None:
    free = replace(CALL, name="sub", position=1)
    assert after(replied(matched(), "", "tool_use", WAITS, free)) == FanOut((free,))
    running = replace(free, sends=1, sent_ms=NOW_MS)
    assert after(replied(matched(), "", "tool_use", WAITS, running)) == Wait()


def test_a_question_nobody_answered_is_decided_by_the_policy() -> None:
    work = replied(matched(), "", "tool_use", replace(WAITS, approve_by_ms=NOW_MS))
    decision = after(work)
    assert isinstance(decision, Close)
    assert [call.status for call in decision.calls] == ["denied"]
    rules = CallRules(frozenset(), Tools(), timeout_s=30.0, concurrency=10, on_timeout="approve")
    assert isinstance(after(work, check=check(work.calls, rules, now_ms=NOW_MS)), Approve)


def test_the_last_call_of_the_model_may_not_use_tools() -> None:
    assert after(matched(), max_llm_calls=1) == Ask(may_call_tools=False)
    done = replace(CALL, status="completed", content="3")
    once = replied(matched(), "", "tool_use", done)
    assert after(once, max_llm_calls=2) == Ask(may_call_tools=False)
    assert ended(after(once, max_llm_calls=1)) == ("incomplete", "limits")


def test_a_turn_that_used_up_its_tool_calls_is_asked_for_text() -> None:
    done = replace(CALL, status="completed", content="3")
    work = replied(matched(), "", "tool_use", done)
    now = situation(work)
    assert decide(work, replace(LIMITS, max_tool_calls=1), now) == Ask(may_call_tools=False)
    assert decide(work, replace(LIMITS, max_tool_calls=2), now) == Ask(may_call_tools=True)


def test_calls_that_no_budget_allows_end_the_turn_with_what_the_budget_says() -> None:
    denied = replace(CALL, status="denied", content="Not run.")
    uses = (ToolUse(CALL.id, CALL.name, CALL.arguments),)
    reply = Reply("Let me see.", "tool_use", Usage(llm_calls=1), "m", uses)
    bill = Bill(refused="The budget of this turn is used up.")
    decision = after(matched().replied(reply, (denied,), first_token_ms=None, estimated=1, bill=bill))
    assert ended(decision) == ("incomplete", "budget")
    assert isinstance(decision, End)
    assert decision.ending.output_text == "Let me see."
    assert decision.ending.error == problem("budget", "The budget of this turn is used up.")


def test_a_reply_that_a_budget_cut_short_is_not_an_answer() -> None:
    cut = Reply("It is", "max_tokens", Usage(llm_calls=1), "m")
    bill = Bill(narrowed="The next call may need more than is left.")
    assert ended(after(matched().replied(cut, (), first_token_ms=None, estimated=1, bill=bill))) == (
        "incomplete",
        "budget",
    )
    whole = replace(cut, stop_reason="end_turn")
    assert ended(after(matched().replied(whole, (), first_token_ms=None, estimated=1, bill=bill))) == (
        "completed",
        None,
    )


def test_a_limit_is_named_after_where_it_is_set() -> None:
    work = replied(matched(), "", "pause_turn")
    for own, source in ((frozenset[str](), "LOOM_MAX_LLM_CALLS"), (frozenset({"max_turns"}), "max_turns of the agent")):
        decision = after(work, max_llm_calls=1, own_limits=own)
        assert isinstance(decision, End)
        assert source in (decision.ending.error or {})["message"]
    for own, source in (
        (frozenset[str](), "LOOM_TURN_TIMEOUT_S"),
        (frozenset({"timeout_seconds"}), "timeout_seconds of"),
    ):
        decision = after(work, run_ms=10_000_000, own_limits=own)
        assert isinstance(decision, End)
        assert source in (decision.ending.error or {})["message"]


@pytest.mark.cases(
    ("text", "stop", "expected"),
    [
        ("42", "end_turn", ("completed", None)),
        ("42", "stop_sequence", ("completed", None)),
        ("4", "max_tokens", ("incomplete", "max_tokens")),
        ("", "refusal", ("incomplete", "refusal")),
        ("4", "reply_too_large", ("incomplete", "reply_too_large")),
        (" \n", "end_turn", ("incomplete", "limits")),
    ],
)
def test_what_was_said_is_kept_with_the_reason_it_ended(
    text: str, stop: StopReason, expected: tuple[str, str | None]
) -> None:
    decision = after(replied(matched(), text, stop))
    assert ended(decision) == expected
    assert isinstance(decision, End)
    assert decision.ending.output_text == (text if text.strip() else "")


def test_a_paused_reply_goes_on_by_itself() -> None:
    assert after(replied(matched(), "Hm", "pause_turn")) == Ask(may_call_tools=True)


statuses: st.SearchStrategy[CallStatus] = st.sampled_from(
    ["pending", "running", "completed", "failed", "timeout", "unknown", "cancelled"]
)
any_call = st.builds(
    Call,
    id=st.just("toolu_1"),
    name=st.sampled_from(["add", "pay", "note", "gone"]),
    arguments=st.just({}),
    position=st.just(0),
    reply_n=st.just(1),
    status=statuses,
    sends=st.integers(1, 12),
    sent_ms=st.none() | st.integers(0, NOW_MS),
    worker=st.sampled_from(["w1", "w9"]),
    started_ms=st.none() | st.integers(0, NOW_MS),
    content=st.just("x"),
    approval=st.sampled_from([None, "waiting", "approved"]),
    approve_by_ms=st.integers(NOW_MS - 1, NOW_MS + 1),
)
moves = st.lists(
    st.one_of(
        st.tuples(st.just("reply"), st.sampled_from(STOPS), st.text("a ", max_size=3), st.lists(any_call, max_size=3)),
        st.just(("waited",)),
        st.just(("told",)),
        st.just(("matched",)),
    ),
    max_size=12,
)


def played(work: TurnState, done: list[tuple[Any, ...]]) -> TurnState:
    """A journal out of moves; calls get their places."""
    for move in done:
        match move:
            case ("reply", stop, text, list(calls)):
                at = len(work.calls)
                placed = [replace(call, position=at + n, reply_n=work.next_n) for n, call in enumerate(calls)]
                work = replied(work, str(text), stop, *placed)
            case ("waited",):
                work = work.waited("busy")
            case ("told",):
                work = work.with_events({"first": 1, "log": []})
            case _:
                work = work.matched("", "", ())
    return work


@given(
    moves,
    st.integers(0, 4),
    st.none() | st.integers(NOW_MS - 5, NOW_MS + 5),
    st.integers(0, 400_000),
    st.integers(1, 5),
    st.sampled_from([None, {}, {"tokens": 100}, {"usd": 0.1, "tokens": None}]),
)
def test_every_journal_has_a_next_step(
    done: list[tuple[Any, ...]],
    deaths: int,
    deadline_ms: int | None,
    run_ms: int,
    most_calls: int,
    budget: Json | None,
) -> None:
    work = played(begun(deaths=deaths, deadline_ms=deadline_ms, budget=budget), done)
    decision = after(work, run_ms=run_ms, max_llm_calls=most_calls)
    if isinstance(decision, Ask):
        assert not work.open_calls
        assert work.usage.llm_calls < most_calls
    if isinstance(decision, FanOut | Wait | CallHere | Close | AskPerson):
        assert work.open_calls
    if isinstance(decision, FanOut | Close):
        assert decision.calls
