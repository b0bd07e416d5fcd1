"""Packing the layers: a hard budget, the newest in, pairs whole, and the same beginning from call to call."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.errors import BudgetExceeded
from loom_worker.core.values.chat import ChatMessage, ToolSpec
from loom_worker.core.values.memory import Shares
from loom_worker.memory.fit import Context, fit
from loom_worker.memory.kernel import L2_CUT, kernel_text, memory_text
from loom_worker.memory.layers import REQUEST_OVERHEAD_TOKENS, Count, Layers, chat_tokens, message_tokens, tools_tokens
from loom_worker.memory.layers import turns as turns_of
from loom_worker.memory.recalled import as_text
from loom_worker.memory.results import Sizes
from tests.unit.memory.talk import (
    SONNET,
    called,
    conversations,
    count,
    pairs_are_whole,
    running,
    said,
    stored,
    texts,
    turns,
    user,
)


def mark(text: str) -> str:
    return f"<data>\n{text}\n</data>"


TOOLS = (ToolSpec("add", "Adds.", {"type": "object"}),)
PLENTY = 10_000_000
NAMES = {"tools", "rom", "kernel", "l2", "l1", "recalled", "patterns", "turn"}

layered = st.builds(
    Layers,
    rom=texts,
    kernel=st.sampled_from([{}, {"user": "Ada"}, {"user": "Ada", "goals": ["sell " * 30]}]),
    schemas=st.sampled_from([(), ({"name": "t", "text": "t(id)"}, {"name": "u", "text": f"u({'c' * 200})"})]),
    refs=st.sampled_from([(), ("ref_" + "0" * 32,)]),
    l2=st.one_of(texts, st.lists(texts, max_size=4).map("\n".join)),
    mark=st.sampled_from([str, mark]),
    history=conversations.map(lambda said_so_far: stored(*said_so_far)),
    recalled=st.sampled_from(["", "<recalled>\nuser: 42\n</recalled>", "r" * 500]),
    current=running,
    tools=st.sampled_from([(), TOOLS]),
)


def pack(layers: Layers, budget: int = PLENTY, *, count: Count = count, shares: Shares | None = None) -> Context:
    return fit(layers, budget_tokens=budget, shares=shares or Shares(), has_swap=True, sizes=Sizes(count))


def layers(current: Sequence[ChatMessage], *history: list[ChatMessage], **more: Any) -> Layers:
    return Layers(rom="ROM", kernel={}, history=stored(*history), current=current, **more)


def fixed(given: Layers, count: Count = count) -> int:
    """Tokens of what is always sent whole."""
    return tools_tokens(given.tools, count) + count(given.rom) + REQUEST_OVERHEAD_TOKENS


def sent_tokens(context: Context, given: Layers, count: Count) -> int:
    """What the request costs, counted anew."""
    return fixed(given, count) + count(context.memory) + chat_tokens(context.messages, count)


@pytest.mark.parametrize("count", [count, SONNET])
@given(layered, st.integers(0, 6000))
def test_a_context_is_within_its_budget_whole_and_the_same_every_time(count: Count, given: Layers, budget: int) -> None:
    try:
        context = pack(given, budget, count=count)
    except BudgetExceeded:
        return
    assert set(context.tokens) == NAMES
    assert all(tokens >= 0 for tokens in context.tokens.values())
    assert sent_tokens(context, given, count) <= sum(context.tokens.values()) <= budget
    assert pack(given, budget, count=count) == context
    assert context.system == given.rom
    facts = kernel_text(given.kernel, (), (), allowance_tokens=PLENTY, count=count)
    free = budget - fixed(given, count) - chat_tokens(context.messages[context.l1_messages :], count)
    assert context.memory.startswith(facts) or count(facts) > min(int(0.1 * budget), free)
    assert pairs_are_whole(context.messages)


@given(layered, st.integers(0, 6000))
def test_the_running_turn_is_always_in_and_the_messages_keep_their_order(given: Layers, budget: int) -> None:
    try:
        context = pack(given, budget)
    except BudgetExceeded:
        return
    l1, turn = context.messages[: context.l1_messages], context.messages[context.l1_messages :]
    left = len(given.current) - len(turn)  # the oldest calls, where their results alone were not enough
    for new, old in zip(turn, (given.current[0], *given.current[1 + left :]), strict=True):
        assert (new.role, new.text, new.tool_uses) == (old.role, old.text, old.tool_uses)
    assert turn[0].context.startswith(given.current[0].context)
    suffixes = [turns_of(given.history)[n:] for n in range(len(turns_of(given.history)) + 1)]
    texts = [(message.role, message.text, message.context, message.tool_uses) for message in l1]
    whole = [[(m.chat.role, m.chat.text, m.chat.context, m.chat.tool_uses) for t in s for m in t] for s in suffixes]
    assert texts in whole, "whole turns, the newest"
    assert not l1 or l1[0].role == "user"


@given(layered)
def test_with_room_for_all_everything_is_sent_as_it_is(given: Layers) -> None:
    context = pack(given)
    known = kernel_text(given.kernel, given.schemas, given.refs, allowance_tokens=PLENTY, count=count)
    l2 = given.mark(given.l2) if given.l2.strip() else ""
    assert context.memory == memory_text(known, l2, has_swap=True)
    beside = "\n\n".join(part for part in (given.current[0].context, given.recalled) if part)
    asked = replace(given.current[0], context=beside)
    assert list(context.messages) == [*(message.chat for message in given.history), asked, *given.current[1:]]
    assert sum(context.tokens.values()) == sent_tokens(context, given, count)


@given(layered, st.integers(0, 6000), st.integers(0, 2000))
def test_more_room_never_makes_a_turn_too_large(given: Layers, budget: int, more: int) -> None:
    try:
        pack(given, budget)
    except BudgetExceeded:
        return
    pack(given, budget + more)


@given(st.lists(turns, min_size=1, max_size=5), texts)
def test_each_call_begins_with_the_bytes_of_the_call_before(stream: list[list[ChatMessage]], l2: str) -> None:
    before: tuple[ChatMessage, ...] = ()
    memories = set()
    for place, turn in enumerate(stream):
        ends = [end for end in range(1, len(turn) + 1) if turn[end - 1].role != "assistant"]
        for end in ends:
            context = pack(layers(turn[:end], *stream[:place], l2=l2))
            assert context.messages[: len(before)] == before
            before = context.messages
            memories.add(context.memory)
    assert len(memories) == 1


def test_a_finished_turn_is_sent_as_it_was_when_it_ran() -> None:
    turn = [user("go"), *(chat for n in range(6) for chat in called("x" * 1000, first=n))]
    running = pack(layers(turn), 12_000)
    assert "was left out" in running.messages[2].outcomes[0].content
    after = pack(layers([user("and?")], [*turn, said("so")]), 12_000)
    assert after.messages[: len(turn)] == running.messages


def test_results_over_their_share_are_stubs_even_where_there_is_room() -> None:
    turn = [user("go"), *called("x" * 2000), *called("y" * 2000, first=1)]
    assert pack(layers(turn), 14_000).messages == tuple(turn)
    assert "was left out" in pack(layers(turn), 13_000).messages[2].outcomes[0].content


def test_the_running_turns_older_results_go_before_the_kernel_and_its_latest_after_it() -> None:
    turn = [user("go"), *called("x" * 500), *called("y" * 600, first=1)]
    given = layers(turn)
    given = replace(given, kernel={"user": "A" * 150})
    known = count(kernel_text(given.kernel, (), (), allowance_tokens=PLENTY, count=count))
    shares = Shares(kernel=0.2)
    whole = fixed(given) + chat_tokens(turn, count)

    def left_out(budget: int) -> tuple[list[bool], bool]:
        context = pack(given, budget, shares=shares)
        results = [message.outcomes[0].content for message in context.messages if message.outcomes]
        return ["was left out" in result for result in results], "A" * 150 in context.memory

    assert left_out(whole * 3) == ([False, False], True)
    assert left_out(whole + known - 1) == ([True, False], True)
    assert left_out(whole - 300) == ([True, False], False)
    assert left_out(whole - 600) == ([True, True], False)


def test_history_goes_before_any_result_of_the_running_turn() -> None:
    turn = [user("now" * 500), *called("x" * 200), *called("y" * 200, first=1)]
    given = layers(turn, [user("old"), said("older answer")])
    assert pack(given, fixed(given) + chat_tokens(turn, count)).messages == tuple(turn)


def test_a_turn_that_does_not_fit_whole_comes_without_its_results_and_ends_the_history() -> None:
    old, big = [user("old"), said("!")], [user("big"), *called("x" * 3000), said("done")]
    new = [user("new"), said("!")]
    given = layers([user("now")], old, big, new)
    needed = fixed(given) + chat_tokens([*new, user("now")], count)
    context = pack(given, PLENTY)
    assert [message.text for message in context.messages] == ["old", "!", "big", "", "", "done", "new", "!", "now"]
    context = pack(given, needed + 1000)
    assert [message.text for message in context.messages] == ["big", "", "", "done", "new", "!", "now"]
    assert "was left out" in context.messages[2].outcomes[0].content
    assert [message.text for message in pack(given, needed).messages] == ["new", "!", "now"]
    assert [message.text for message in pack(given, needed - 1).messages] == ["now"]


def test_a_turn_whose_question_was_not_read_is_left_out() -> None:
    given = layers([user("now")], [*called("3"), said("three")], [user("and?"), said("four")])
    assert [message.text for message in pack(given).messages] == ["and?", "four", "now"]


def test_the_recalled_block_stands_behind_the_context_of_the_current_message_if_it_fits() -> None:
    block = as_text(stored([user("It was 42.")]), lambda turn_id, text: text)
    given = layers([user("What was it?", context="Today is Monday.")], recalled=block)
    asked = user("What was it?", context=f"Today is Monday.\n\n{block}")
    needed = fixed(given) + message_tokens(asked, count)
    context = pack(given, needed)
    assert context.messages == (asked,)
    assert (context.tokens["recalled"], context.tokens["patterns"]) == (len(block) + 2, len("Today is Monday."))
    assert context.tokens["turn"] == message_tokens(user("What was it?"), count)
    context = pack(given, needed - 1)
    assert (context.messages, context.tokens["recalled"]) == (tuple(given.current), 0)


def test_where_no_turn_runs_the_layers_are_still_counted() -> None:
    context = pack(layers((), [user("q", context="pattern"), said("a")], recalled="r" * 50, l2="They met."))
    assert [message.text for message in context.messages] == ["q", "a"]
    assert (context.tokens["recalled"], context.tokens["patterns"], context.tokens["turn"]) == (50, 7, 0)


def test_a_summary_that_does_not_fit_loses_its_oldest_lines() -> None:
    summaries = [f"They spoke of matter {n}." for n in range(30)]
    given = layers([user("now")], l2="\n".join(summaries))
    whole = pack(given)
    assert whole.memory == memory_text("", given.l2, has_swap=True)
    short = pack(given, 2000)
    kept = [line.strip() for line in short.memory.partition(L2_CUT + "\n")[2].splitlines()]
    assert kept == summaries[-len(kept) :]
    assert sum(short.tokens.values()) <= 2000
    assert short.tokens["l2"] > 400 - len(summaries[0]) - len("\n  ")
    assert pack(given, fixed(given) + message_tokens(user("now"), count)).memory == ""


@pytest.mark.cases("budget", range(600, 5200, 200))
def test_a_summary_is_marked_whole_however_much_of_it_is_cut(budget: int) -> None:
    given = layers([user("now")], l2="\n".join(f"They spoke of matter {n}." for n in range(30)), mark=mark)
    context = pack(given, budget)
    head, opening, rest = context.memory.partition("\n  <data>\n")
    assert context.memory == "" or (opening and rest.endswith("\n  </data>") and "They" not in head)
    assert context.memory == "" or (L2_CUT in rest) != ("matter 0." in rest)
    assert sum(context.tokens.values()) == sent_tokens(context, given, count) <= budget


def test_a_summary_never_drives_the_last_messages_out() -> None:
    new = [user("q" * 300), said("a" * 300)]
    context = pack(layers([user("now")], new, l2="\n".join(["Long ago."] * 300)), 2000)
    assert context.l1_messages == 2
    assert context.tokens["l2"] <= 400


def test_a_turn_that_does_not_fit_says_what_it_needs_what_is_free_and_what_to_do() -> None:
    given = layers([user("x" * 1000)], tools=TOOLS)
    needed = message_tokens(given.current[0], count)
    pack(given, fixed(given) + needed)
    tools = rf"tools \({tools_tokens(TOOLS, count)} tokens\)"
    with pytest.raises(
        BudgetExceeded, match=f"needs {needed} tokens .* {needed - 1} remain after .*{tools}.*shorter message"
    ):
        pack(given, fixed(given) + needed - 1)
    with pytest.raises(BudgetExceeded, match="and 0 remain"):
        pack(given, 100)


def test_a_message_alone_in_a_turn_of_huge_results_still_fits() -> None:
    turn = [user("go"), *called(*["x" * 5000] * 5)]
    context = pack(layers(turn), 3000)
    assert all("was left out" in outcome.content for outcome in context.messages[-1].outcomes)
