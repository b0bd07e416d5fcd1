"""The messages of a turn: what a provider would refuse is never said."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.calls import CANCELLED, Call
from loom_worker.core.values.chat import Reply, ToolUse, Usage
from loom_worker.core.values.sessions import Choice
from loom_worker.core.values.turns import Claim, Turn
from loom_worker.turn.state import TurnState
from loom_worker.turn.transcript import conversation, said, usage_of

TURN = Turn("turn_1", "lane", "s1", "w", "default", 1, "in_progress", "How many?", 0)
NEW = TurnState.begin(Claim(TURN, (), rom=None, kernel={}, choice=Choice(), user=None))

replies = st.lists(
    st.tuples(
        st.text("a ", max_size=3),
        st.lists(st.sampled_from(["pending", "running", "completed", "failed", "unknown"]), max_size=3),
        st.booleans(),
    ),
    max_size=5,
)


def played(done: list[tuple[str, list[Any], bool]]) -> TurnState:
    work = NEW.matched("Today is Saturday.", "", ())
    for text, statuses, is_thinking in done:
        at = len(work.calls)
        uses = tuple(ToolUse(f"toolu_{at + n}", "add", {}) for n in range(len(statuses)))
        opaque = ({"type": "thinking"},) if is_thinking else ()
        calls = [
            Call(use.id, use.name, {}, at + n, work.next_n, status=status, content=content_of(status))
            for n, (use, status) in enumerate(zip(uses, statuses, strict=True))
        ]
        reply = Reply(text, "tool_use" if uses else "end_turn", Usage(llm_calls=1), "m", uses, opaque)
        work = work.replied(reply, calls, first_token_ms=None, estimated=100).with_events({"first": 1, "log": []})
    return work


def content_of(status: Any) -> str | None:
    return None if status in ("pending", "running") else ""


@given(replies)
def test_every_tool_use_is_followed_by_its_outcome_in_call_order(done: list[tuple[str, list[Any], bool]]) -> None:
    chats = conversation(played(done))
    assert (chats[0].role, chats[0].text, chats[0].context) == ("user", "How many?", "Today is Saturday.")
    for place, chat in enumerate(chats):
        if chat.tool_uses:
            outcomes = chats[place + 1].outcomes
            assert [outcome.tool_use_id for outcome in outcomes] == [use.id for use in chat.tool_uses]
            assert all(isinstance(outcome.content, str) for outcome in outcomes)
        if chat.role == "tool":
            assert chats[place - 1].tool_uses
        assert chat.text.strip() or chat.tool_uses or chat.outcomes or chat.opaque, "an empty message is refused"


def test_a_call_without_a_result_is_answered_with_why_it_has_none() -> None:
    [outcome] = conversation(played([("", ["running"], False)]))[-1].outcomes
    assert (outcome.content, outcome.is_error) == (CANCELLED, True)


def test_an_empty_result_is_a_result() -> None:
    [outcome] = conversation(played([("", ["completed"], False)]))[-1].outcomes
    assert (outcome.content, outcome.is_error) == ("", False)


def test_an_empty_reply_says_nothing() -> None:
    assert [chat.role for chat in conversation(played([(" ", [], False)]))] == ["user"]


def test_only_replies_have_a_cost() -> None:
    costs = [usage_of(usage) for _, usage in said(played([("Adding.", ["completed"], False), ("Done.", [], False)]))]
    assert [cost.llm_calls if cost else None for cost in costs] == [None, 1, None, 1]


def test_what_is_sent_again_is_what_was_sent_first() -> None:
    work = played([("Adding.", ["completed"], True)])
    later = replace(work, claim=replace(work.claim, turn=replace(TURN, deaths=2, fence=9)))
    assert conversation(work) == conversation(later)
