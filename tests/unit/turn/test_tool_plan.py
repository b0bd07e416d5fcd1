"""A reply's tool calls, and what becomes of those under way."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.settings import LimitSettings
from loom_worker.core.values.calls import Call
from loom_worker.core.values.chat import ToolSpec, ToolUse
from loom_worker.core.values.tools import Tool
from loom_worker.turn.tool_plan import (
    MAX_PICKUP_MS,
    PICKUP_MS,
    CallRules,
    Check,
    Checked,
    check,
    named,
    planned,
    used_up,
)

LIMITS = LimitSettings(max_tool_calls=5, max_calls_per_reply=3)


def runs(use: ToolUse) -> Checked:
    return Checked(use.arguments)


class AnyTool:
    """Every name is a tool; ``pay`` changes the world."""

    def __init__(self, **facts: Any) -> None:
        self._facts = facts

    def get(self, name: str) -> Tool:
        facts = {"is_read_only": name != "pay", **self._facts}
        return Tool(ToolSpec(name, "", {}), lambda arguments, caller: "", **facts)


def looked(calls: Sequence[Call], *alive: str, now_ms: int = 0, **rules: Any) -> Check:
    usual = {"tools": AnyTool(), "timeout_s": 30.0, "concurrency": 10}
    return check(calls, CallRules(frozenset(alive), **{**usual, **rules}), now_ms=now_ms)


def uses(n: int) -> list[ToolUse]:
    return [ToolUse(f"toolu_{place}", "add", {"n": place}) for place in range(n)]


@given(st.integers(0, 8), st.integers(0, 8))
def test_every_use_becomes_one_call_in_order_and_none_beyond_the_limits_is_open(wanted: int, earlier: int) -> None:
    calls = planned(uses(wanted), runs, LIMITS, position=earlier, reply_n=4)
    assert [call.id for call in calls] == [use.id for use in uses(wanted)]
    assert [call.position for call in calls] == list(range(earlier, earlier + wanted))
    assert sum(call.is_open for call in calls) == max(0, min(wanted, 3, 5 - earlier))
    assert all(call.content and call.status == "failed" for call in calls if not call.is_open)


def test_calls_beyond_a_limit_are_closed_with_the_limit_as_their_reason() -> None:
    per_reply = planned(uses(4), runs, LIMITS, position=0, reply_n=1)
    assert "at most 3 tool calls in one reply" in str(per_reply[3].content)
    per_turn = planned(uses(1), runs, LIMITS, position=5, reply_n=1)
    assert "at most 5 tool calls in one turn" in str(per_turn[0].content)


def test_a_call_that_cannot_run_is_closed_with_its_flaw() -> None:
    calls = planned(
        uses(2),
        lambda use: Checked(use.arguments, "no" if use.id == "toolu_0" else None),
        LIMITS,
        position=0,
        reply_n=1,
    )
    assert [(call.status, call.content) for call in calls] == [("failed", "no"), ("pending", None)]


def sent_again(sends: int, waited_ms: int) -> bool:
    call = Call("t", "add", {}, 0, 1, sends=sends, sent_ms=0)
    return bool(looked([call], now_ms=waited_ms).send)


def test_a_call_that_waits_in_a_queue_is_sent_again_ever_more_rarely() -> None:
    for sends, pause_ms in [
        (1, PICKUP_MS),
        (2, 2 * PICKUP_MS),
        (3, 4 * PICKUP_MS),
        (5, MAX_PICKUP_MS),
        (99, MAX_PICKUP_MS),
    ]:
        assert not sent_again(sends, pause_ms)
        assert sent_again(sends, pause_ms + 1)


def test_a_call_that_a_clock_an_hour_ahead_has_sent_is_not_waited_for_until_then() -> None:
    assert not sent_again(1, -PICKUP_MS)
    assert sent_again(1, -PICKUP_MS - 1)


def test_a_late_call_is_closed_as_timed_out_and_an_orphan_as_unknown() -> None:
    late = Call("t1", "pay", {}, 0, 1, status="running", worker="w1", started_ms=1, sends=1)
    orphan = Call("t2", "pay", {}, 1, 1, status="running", worker="w9", started_ms=0, sends=1)
    found = looked([late, orphan], "w1", now_ms=40_000, tools=AnyTool(is_idempotent=False))
    assert [(call.status, call.finished_ms) for call in found.close] == [("timeout", 40_000), ("unknown", 40_000)]
    assert "may or may not have taken effect" in str(found.close[1].content)


@given(st.lists(st.sampled_from(["pending", "running"]), max_size=5), st.booleans(), st.integers(0, 10**6))
def test_no_call_is_both_sent_and_closed(statuses: list[Any], is_idempotent: bool, now_ms: int) -> None:
    calls = [
        Call(f"t{n}", "add", {}, n, 1, status=status, worker="w9", sends=n + 1, sent_ms=0)
        for n, status in enumerate(statuses)
    ]
    found = looked(calls, now_ms=now_ms, tools=AnyTool(is_idempotent=is_idempotent))
    assert not {call.position for call in found.send} & {call.position for call in found.close}
    assert not any(call.is_open for call in found.close)


def asked(*asked: tuple[str, int], **facts: Any) -> list[Call]:
    """Calls by name and argument, none of them sent."""
    return [Call(f"t{n}", name, {"n": ask}, n, 1, **facts) for n, (name, ask) in enumerate(asked)]


@given(st.integers(1, 12), st.integers(0, 12), st.integers(0, 12))
def test_no_more_calls_are_under_way_than_may_be(most: int, running: int, waiting: int) -> None:
    calls = asked(*(("add", n) for n in range(running + waiting)))
    calls[:running] = [replace(each, status="running", worker="w", sends=1, sent_ms=0) for each in calls[:running]]
    sent = looked(calls, "w", concurrency=most).send
    assert len(sent) == min(waiting, max(most - running, 0))
    assert [call.position for call in sent] == list(range(running, running + len(sent)))


def test_the_same_call_is_answered_once_and_the_second_gets_the_first_one_s_answer() -> None:
    first, second = asked(("add", 1), ("add", 1))
    assert [call.id for call in looked([first, second]).send] == ["t0"]
    done = replace(first, status="completed", content="3", ref="ref_1")
    closed = looked([done, second], now_ms=7).close
    assert [(call.id, call.status, call.content, call.ref, call.finished_ms) for call in closed] == [
        ("t1", "completed", "3", "ref_1", 7)
    ]


def test_a_call_is_made_again_if_the_first_one_failed_or_may_have_another_answer_now() -> None:
    first, second = asked(("add", 1), ("add", 1))
    failed = replace(first, status="failed", content="busy")
    assert [call.id for call in looked([failed, second]).send] == ["t1"]
    done = replace(first, status="completed", content="3")
    assert [call.id for call in looked([done, second], tools=AnyTool(is_repeatable=False)).send] == ["t1"]
    assert [call.id for call in looked([done, second], tools=AnyTool(is_idempotent=False)).send] == ["t1"]
    calls = asked(("add", 1), ("pay", 1), ("add", 1))
    calls[:2] = [replace(each, status="completed", content="x", sends=1) for each in calls[:2]]
    assert [call.id for call in looked(calls).send] == ["t2"]


def test_a_failed_change_makes_the_next_look_a_new_one_unless_it_never_left() -> None:
    calls = asked(("add", 1), ("pay", 1), ("add", 1))
    calls[0] = replace(calls[0], status="completed", content="x", sends=1)
    lost = replace(calls[1], status="failed", content="broken off", sends=1)
    assert [call.id for call in looked([calls[0], lost, calls[2]]).send] == ["t2"]
    refused = replace(calls[1], status="failed", content="INVALID_INPUT")
    assert [call.id for call in looked([calls[0], refused, calls[2]]).close] == ["t2"]


def test_another_argument_is_another_call() -> None:
    first, second = asked(("add", 1), ("add", 2))
    done = replace(first, status="completed", content="3")
    assert [call.id for call in looked([done, second]).send] == ["t1"]


def test_a_call_that_waits_for_a_person_is_not_sent_until_its_time_is_over() -> None:
    (call,) = asked(("pay", 1), approval="waiting", approve_by_ms=100)
    assert looked([call], now_ms=99) == Check()
    (denied,) = looked([call], now_ms=100).close
    assert (denied.status, denied.approval) == ("denied", "expired")
    (approved,) = looked([call], now_ms=100, on_timeout="approve").approve
    assert (approved.status, approved.approval) == ("pending", "expired")
    assert looked([approved], now_ms=100, on_timeout="approve").send == (approved,)


def test_a_call_that_needs_a_person_waits_for_one_from_the_start() -> None:
    calls = planned(uses(1), lambda use: Checked({"n": 5}, approve_by_ms=9), LIMITS, position=0, reply_n=1)
    assert [(call.is_waiting, call.approve_by_ms, call.arguments) for call in calls] == [(True, 9, {"n": 5})]


def test_the_model_is_told_of_a_limit_from_three_quarters_of_it_on() -> None:
    limits = LimitSettings(max_tool_calls=8, max_llm_calls=4)
    assert used_up(5, 2, limits) == ""
    assert "6 of 8 tool calls" in used_up(6, 2, limits)
    assert "3 of 4 replies" in used_up(0, 3, limits)
    assert "8 of 8 tool calls and 4 of 4 replies" in used_up(11, 4, limits)


def use(given: str) -> ToolUse:
    return ToolUse(given, "add", {})


def test_an_id_that_comes_again_or_fits_no_url_is_replaced() -> None:
    given = [use("toolu_1"), use("toolu_1"), use("functions.refund:0"), use("a/b"), use("x" * 65), use("é")]
    ids = [each.id for each in named(given, frozenset({"call_4_0"}), position=2)]
    assert ids[0] == "toolu_1"
    assert ids[1:] == ["call_3_0", "call_4_1", "call_5_0", "call_6_0", "call_7_0"]
    assert [each.id for each in named([use("toolu_1")], frozenset({"toolu_1"}), position=9)] == ["call_9_0"]


@given(st.lists(st.text(max_size=5)), st.lists(st.text(max_size=5)))
def test_all_calls_of_a_turn_have_ids_that_tell_them_apart(first: list[str], second: list[str]) -> None:
    one = named([use(each) for each in first], frozenset(), position=0)
    two = named([use(each) for each in second], frozenset(each.id for each in one), position=len(one))
    ids = [each.id for each in (*one, *two)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[A-Za-z0-9_-]{1,64}", each) for each in ids)
