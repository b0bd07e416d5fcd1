"""A reply's tool calls, and what becomes of those under way."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loom_worker.settings import LimitSettings
from loom_worker.turn.plan import MAX_PICKUP_MS, PICKUP_MS, check, planned
from loom_worker.values.chat import ToolUse
from loom_worker.values.turns import Call

LIMITS = LimitSettings(max_tool_calls=5, max_calls_per_reply=3)


def uses(n: int) -> list[ToolUse]:
    return [ToolUse(f"toolu_{place}", "add", {"n": place}) for place in range(n)]


@given(st.integers(0, 8), st.integers(0, 8))
def test_every_use_becomes_one_call_in_order_and_none_beyond_the_limits_is_open(wanted: int, earlier: int) -> None:
    calls = planned(uses(wanted), lambda use: None, LIMITS, position=earlier, reply_n=4)
    assert [call.id for call in calls] == [use.id for use in uses(wanted)]
    assert [call.position for call in calls] == list(range(earlier, earlier + wanted))
    assert sum(call.is_open for call in calls) == max(0, min(wanted, 3, 5 - earlier))
    assert all(call.content and call.status == "failed" for call in calls if not call.is_open)


def test_calls_beyond_a_limit_are_closed_with_the_limit_as_their_reason() -> None:
    per_reply = planned(uses(4), lambda use: None, LIMITS, position=0, reply_n=1)
    assert "at most 3 tool calls in one reply" in str(per_reply[3].content)
    per_turn = planned(uses(1), lambda use: None, LIMITS, position=5, reply_n=1)
    assert "at most 5 tool calls in one turn" in str(per_turn[0].content)


def test_a_call_that_cannot_run_is_closed_with_its_flaw() -> None:
    calls = planned(uses(2), lambda use: "no" if use.id == "toolu_0" else None, LIMITS, position=0, reply_n=1)
    assert [(call.status, call.content) for call in calls] == [("failed", "no"), ("pending", None)]


def sent_again(sends: int, waited_ms: int) -> bool:
    call = Call("t", "add", {}, 0, 1, sends=sends, sent_ms=0)
    return bool(check([call], frozenset(), lambda name: True, now_ms=waited_ms, timeout_s=1).send)


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


def test_a_late_call_is_closed_as_timed_out_and_an_orphan_as_unknown() -> None:
    late = Call("t1", "pay", {}, 0, 1, status="running", worker="w1", started_ms=1, sends=1)
    orphan = Call("t2", "pay", {}, 1, 1, status="running", worker="w9", started_ms=0, sends=1)
    found = check([late, orphan], frozenset({"w1"}), lambda name: False, now_ms=40_000, timeout_s=30)
    assert [(call.status, call.finished_ms) for call in found.close] == [("timeout", 40_000), ("unknown", 40_000)]
    assert "may or may not have taken effect" in str(found.close[1].content)


@given(st.lists(st.sampled_from(["pending", "running"]), max_size=5), st.booleans(), st.integers(0, 10**6))
def test_no_call_is_both_sent_and_closed(statuses: list[Any], is_idempotent: bool, now_ms: int) -> None:
    calls = [
        Call(f"t{n}", "add", {}, n, 1, status=status, worker="w9", sends=n + 1, sent_ms=0)
        for n, status in enumerate(statuses)
    ]
    found = check(calls, frozenset(), lambda name: is_idempotent, now_ms=now_ms, timeout_s=30)
    assert not {call.position for call in found.send} & {call.position for call in found.close}
    assert not any(call.is_open for call in found.close)
