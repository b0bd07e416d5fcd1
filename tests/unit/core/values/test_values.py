import json
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.budgets import NANO, usd
from loom_worker.core.values.calls import Call
from loom_worker.core.values.chat import ChatMessage, ToolOutcome, ToolUse, Usage
from loom_worker.core.values.json import rfc3339
from loom_worker.core.values.notifications import TERMINAL, Delivery, Event
from loom_worker.core.values.sessions import Message, Session
from loom_worker.core.values.turns import Turn

AT_MS = 1_800_000_000_007
TURN = Turn("turn_1", "lane-hidden", "s1", "acme", "default", 1, "queued", "hi", AT_MS)
CALL = Call("toolu_1", "look", {"n": 1}, position=0, reply_n=1)

TOKENS = st.integers(0, 10**9)
USAGES = st.builds(
    Usage, TOKENS, TOKENS, TOKENS, TOKENS, st.none() | st.integers(0, 10**15).map(lambda nano: nano * NANO), TOKENS
)


@given(USAGES, USAGES, USAGES)
def test_usages_add_up_in_any_order(a: Usage, b: Usage, c: Usage) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Usage() == a


@given(USAGES)
def test_a_usage_comes_back_from_json(usage: Usage) -> None:
    assert Usage.from_json(json.loads(json.dumps(usage.as_json()))) == usage


def test_a_usage_of_an_older_loom_has_zeros_for_what_it_did_not_count() -> None:
    assert Usage.from_json({"input_tokens": 3, "unknown": 1}) == Usage(input_tokens=3)


def test_an_unknown_price_makes_the_sum_unknown_and_never_zero() -> None:
    assert (Usage(cost_usd=usd(0.5)) + Usage(cost_usd=None)).cost_usd is None


@pytest.mark.cases(
    ("ms", "text"),
    [
        (None, None),
        (0, "1970-01-01T00:00:00.000Z"),
        (AT_MS, "2027-01-15T08:00:00.007Z"),
        (1_799_999_999_999, "2027-01-15T07:59:59.999Z"),
    ],
)
def test_a_time_is_told_in_utc_to_the_millisecond(ms: int | None, text: str | None) -> None:
    assert rfc3339(ms) == text


def test_a_turn_shows_every_field_but_its_lane_and_its_webhook_s_secret() -> None:
    shown = TURN.as_json()
    assert "hidden" not in json.dumps(shown)
    assert (shown["object"], shown["attempt"], shown["created_at"]) == ("turn", 0, "2027-01-15T08:00:00.007Z")
    assert shown["timings"] == {"queued_ms": None, "run_ms": None, "first_token_ms": None}


def test_a_turn_s_timings_grow_as_it_goes() -> None:
    started = replace(TURN, status="in_progress", started_ms=AT_MS + 40, run_ms=7)
    assert started.as_json()["timings"] == {"queued_ms": 40, "run_ms": None, "first_token_ms": None}
    ended = replace(started, status="completed", completed_ms=AT_MS + 90, first_token_ms=50)
    assert ended.as_json()["timings"] == {"queued_ms": 40, "run_ms": 7, "first_token_ms": 50}
    never_run = replace(TURN, status="cancelled", completed_ms=AT_MS + 90)
    assert never_run.as_json()["timings"]["queued_ms"] == 90


@pytest.mark.cases(
    ("status", "is_finished"),
    [
        ("queued", False),
        ("in_progress", False),
        ("requires_action", False),
        ("completed", True),
        ("failed", True),
        ("cancelled", True),
        ("incomplete", True),
    ],
)
def test_a_turn_is_finished_in_a_final_status_only(status: str, is_finished: bool) -> None:
    assert replace(TURN, status=status).is_finished == is_finished  # type: ignore[arg-type]
    assert (f"turn.{status}" in TERMINAL) == is_finished


def test_every_death_is_an_attempt_more() -> None:
    assert [replace(TURN, started_ms=1, deaths=deaths).attempt for deaths in (0, 1, 2)] == [1, 2, 3]


def test_a_call_is_open_until_it_has_a_result_and_long_results_are_cut_for_clients() -> None:
    assert CALL.is_open
    assert CALL.duration_ms is None
    done = replace(CALL, status="unknown", started_ms=5, finished_ms=9, content="x" * 3000)
    assert (done.is_open, done.duration_ms, len(done.as_json()["content"])) == (False, 4, 2000)


def test_a_session_does_not_show_its_lane_or_its_system_text() -> None:
    session = Session("lane-hidden", "s1", "acme", "default", "active", AT_MS, AT_MS, rom="hidden text", queue_depth=2)
    shown = session.as_json()
    assert "hidden" not in json.dumps(shown)
    assert (shown["id"], shown["queue_depth"], shown["busy"]) == ("s1", 2, False)


def test_a_delivery_does_not_show_its_secret() -> None:
    delivery = Delivery("whd_1", "acme", "turn_1", "https://x", "whsec_hidden", "{}", "pending", 0, AT_MS)
    assert "hidden" not in json.dumps(delivery.as_json())


def test_a_failed_tool_result_is_shown_as_an_error_and_another_as_content() -> None:
    outcomes = (ToolOutcome("t1", "look", "no", is_error=True), ToolOutcome("t2", "look", "4", duration_ms=3))
    chat = ChatMessage("tool", tool_uses=(ToolUse("t1", "look", {}),), outcomes=outcomes, opaque=({"x": "hidden"},))
    shown = Message("msg_1", "s1", "turn_1", chat, 3, AT_MS).as_json()
    assert [("error" in one, "content" in one) for one in shown["tool_results"]] == [(True, False), (False, True)]
    assert shown["tool_calls"] == [{"id": "t1", "name": "look", "arguments": {}}]
    assert "hidden" not in json.dumps(shown)


def test_an_event_knows_whether_it_is_the_last() -> None:
    assert Event(1, "turn.failed", {}).is_final
    assert not Event(1, "turn.started", {}).is_final


def test_values_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        TURN.status = "failed"  # type: ignore[misc]
