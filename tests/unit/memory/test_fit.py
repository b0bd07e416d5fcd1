"""Packing the layers: a hard budget, the newest in, and pairs whole."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.errors import BudgetExceeded
from loom_worker.memory.fit import Context, fit
from loom_worker.memory.layers import Layers, message_tokens, system_text, tools_tokens
from loom_worker.values.chat import ChatMessage, ToolOutcome, ToolSpec, ToolUse
from loom_worker.values.sessions import Message

TOOLS = (ToolSpec("add", "Adds.", {"type": "object"}),)


def count(text: str) -> int:
    return len(text)


def user(text: str) -> ChatMessage:
    return ChatMessage("user", text=text)


def called(*contents: str) -> list[ChatMessage]:
    """An assistant's calls and their results."""
    uses = tuple(ToolUse(f"toolu_{n}", "add", {}) for n in range(len(contents)))
    outcomes = tuple(ToolOutcome(f"toolu_{n}", "add", content) for n, content in enumerate(contents))
    return [ChatMessage("assistant", tool_uses=uses), ChatMessage("tool", outcomes=outcomes)]


def kept_in_store(chats: list[ChatMessage]) -> tuple[Message, ...]:
    return tuple(Message(f"msg_{n}", "s", "t", chat, message_tokens(chat, count), n) for n, chat in enumerate(chats))


def layers(history: list[ChatMessage], current: list[ChatMessage], tools: tuple[ToolSpec, ...] = ()) -> Layers:
    return Layers(rom="ROM", kernel={}, history=kept_in_store(history), current=current, tools=tools)


def fixed(given: Layers) -> int:
    """Tokens of what cannot be left out, tool results apart."""
    return count(system_text(given)) + tools_tokens(given.tools, count)


def sent(context: Context) -> int:
    """What the context costs, counted anew."""
    return count(context.system) + sum(message_tokens(message, count) for message in context.messages)


texts = st.text("ab ", min_size=1, max_size=60)
exchanges = st.lists(
    st.one_of(
        texts.map(lambda text: [user(text), ChatMessage("assistant", text=text)]),
        texts.map(lambda text: [user(text)]),
        st.lists(texts, min_size=1, max_size=3).map(
            lambda ts: [user("go"), *called(*ts), ChatMessage("assistant", "ok")]
        ),
        st.lists(texts, min_size=1, max_size=2).map(lambda ts: [user("go"), *called(*ts)]),
    ),
    max_size=8,
).map(lambda found: [chat for one in found for chat in one])
cut_anywhere = st.tuples(exchanges, st.integers(0, 5)).map(lambda pair: pair[0][pair[1] :])
turns = st.lists(st.lists(st.text("ab ", max_size=120), min_size=1, max_size=3), max_size=3).map(
    lambda replies: [user("now"), *[chat for contents in replies for chat in called(*contents)]]
)
tools = st.sampled_from([(), TOOLS])


@given(cut_anywhere, turns, tools, st.integers(0, 2500))
def test_a_context_is_within_its_budget_and_whole(
    history: list[ChatMessage], current: list[ChatMessage], tools: tuple[ToolSpec, ...], budget_tokens: int
) -> None:
    given = layers(history, current, tools)
    try:
        context = fit(given, budget_tokens=budget_tokens, count=count)
    except BudgetExceeded:
        return
    assert sent(context) + tools_tokens(tools, count) == sum(context.tokens.values()) <= budget_tokens
    kept = context.messages[: len(context.messages) - len(current)]
    assert list(kept) == (history[-len(kept) :] if kept else []), "the newest, in order, none changed"
    assert not kept or kept[0].role == "user"
    assert [m.role for m in context.messages[len(kept) :]] == [m.role for m in current]
    for message, after in zip(context.messages, [*context.messages[1:], None], strict=True):
        asked = [use.id for use in message.tool_uses]
        assert not asked or (after is not None and [outcome.tool_use_id for outcome in after.outcomes] == asked)
    assert fit(given, budget_tokens=budget_tokens, count=count) == context


@given(cut_anywhere, turns, tools)
def test_history_never_costs_a_turn_its_place(
    history: list[ChatMessage], current: list[ChatMessage], tools: tuple[ToolSpec, ...]
) -> None:
    given = layers(history, current, tools)
    exact = fixed(given) + sum(message_tokens(message, count) for message in current)
    assert list(fit(given, budget_tokens=exact, count=count).messages) == current


@given(turns, st.integers(0, 1500))
def test_a_budget_that_a_turn_fits_into_is_never_exceeded(current: list[ChatMessage], budget_tokens: int) -> None:
    given = layers([], current)
    try:
        fit(given, budget_tokens=budget_tokens, count=count)
    except BudgetExceeded:
        whole = fixed(given) + sum(message_tokens(message, count) for message in current)
        assert whole > budget_tokens
        wider = fit(given, budget_tokens=whole, count=count)
        assert list(wider.messages) == current


@given(turns, st.integers(0, 1500), st.integers(0, 300))
def test_more_room_never_makes_a_turn_too_large(current: list[ChatMessage], budget_tokens: int, more: int) -> None:
    given = layers([], current)
    try:
        fit(given, budget_tokens=budget_tokens, count=count)
    except BudgetExceeded:
        return
    fit(given, budget_tokens=budget_tokens + more, count=count)


def test_the_oldest_results_of_the_running_turn_are_left_out_first() -> None:
    current = [user("now"), *called("x" * 500), *called("y" * 500)]
    given = layers([], current)
    room = fixed(given) + sum(message_tokens(message, count) for message in current) - 1
    context = fit(given, budget_tokens=room, count=count)
    assert context.messages[2].outcomes[0].content == "[500 characters left out to fit]"
    assert context.messages[4] == current[4]


def test_short_results_are_not_made_longer_by_leaving_them_out() -> None:
    current = [user("now"), *called(*["1"] * 20), *called("y" * 500)]
    given = layers([], current)
    room = fixed(given) + sum(message_tokens(message, count) for message in current) - 400
    context = fit(given, budget_tokens=room, count=count)
    assert context.messages[:4] == tuple(current[:4])
    assert "left out" in context.messages[4].outcomes[0].content


def test_history_goes_before_any_result_of_the_running_turn() -> None:
    current = [user("now"), *called("x" * 500)]
    given = layers([user("old"), ChatMessage("assistant", text="older answer")], current)
    exact = fixed(given) + sum(message_tokens(message, count) for message in current)
    assert fit(given, budget_tokens=exact, count=count).messages == tuple(current)


def test_a_history_begins_with_a_user_even_where_more_would_fit() -> None:
    history = [*called("3")[1:], ChatMessage("assistant", "three"), user("and?"), ChatMessage("assistant", "four")]
    context = fit(layers(history, [user("now")]), budget_tokens=10_000, count=count)
    assert [message.text for message in context.messages] == ["and?", "four", "now"]


@pytest.mark.parametrize("over", [1, 10_000])
def test_a_turn_that_does_not_fit_says_what_it_needs_and_what_is_free(over: int) -> None:
    given = layers([], [user("x" * 100)])
    needed = message_tokens(given.current[0], count)
    with pytest.raises(BudgetExceeded, match=f"needs {needed} tokens .* and {max(needed - over, 0)} are free"):
        fit(given, budget_tokens=fixed(given) + needed - over, count=count)


def test_the_first_message_that_does_not_fit_ends_the_history() -> None:
    history = [user("a"), user("x" * 400), user("b")]
    given = layers(history, [user("now")])
    small = replace(given, history=kept_in_store([user("b")]))
    room = fixed(given) + sum(message_tokens(user(text), count) for text in ("a", "b", "now"))
    assert fit(given, budget_tokens=room, count=count) == fit(small, budget_tokens=room, count=count)
