import pytest

from bench.figures.cache import calls_of
from bench.prefix import Block, PrefixCache, request_blocks, shared
from loom_worker.core.values.chat import ChatMessage, Request, ToolOutcome, ToolSpec, ToolUse
from loom_worker.llm.anthropic_request import request_body

SPEC = ToolSpec("find", "Finds things.", {"type": "object"})
ROM = "r" * 2_000


def body(*messages, **fields):
    asked = {"tools": (SPEC,), "memory": "known", **fields}
    return request_body(Request(ROM, messages, **asked), "claude-sonnet-4-5")


def laid(*messages, **fields):
    return request_blocks(body(*messages, **fields), len)


def asked(text):
    return ChatMessage("user", text)


def said(text):
    return ChatMessage("assistant", text)


def called(count):
    uses = tuple(ToolUse(f"t{n}", "find", {}) for n in range(count))
    outcomes = tuple(ToolOutcome(f"t{n}", "find", "y" * 500) for n in range(count))
    return ChatMessage("assistant", tool_uses=uses), ChatMessage("tool", outcomes=outcomes)


def cost(usage):
    return usage.cache_read_tokens, usage.cache_write_tokens, usage.input_tokens


def test_blocks_come_in_the_order_that_prefixes_are_compared_in() -> None:
    places = [block.text[:14] for block in laid(asked("hello"))]
    assert [place.split('"')[1] for place in places] == ["tools", "system", "user", "user"]


def test_a_call_that_goes_on_shares_all_of_the_call_before() -> None:
    before, after = laid(asked("1")), laid(asked("1"), said("a" * 100), asked("2"))
    tokens = sum(block.tokens for block in after)
    assert shared(before, after) == pytest.approx(sum(block.tokens for block in before) / tokens)


def test_marks_are_no_part_of_what_is_compared() -> None:
    assert shared(laid(asked("1"), cache_marks=False), laid(asked("1"))) == 1


def test_what_comes_behind_a_difference_is_not_shared() -> None:
    before, after = laid(asked("1"), memory="known"), laid(asked("1"), memory="other")
    same = sum(block.tokens for block in after[:2])
    assert shared(before, after) == pytest.approx(same / sum(block.tokens for block in after))


def test_the_second_call_reads_what_the_first_wrote_and_writes_the_rest() -> None:
    cache = PrefixCache()
    first, second = laid(asked("1")), laid(asked("1"), said("a" * 100), asked("22"))
    tokens = sum(block.tokens for block in first)
    assert cost(cache.ask(first)) == (0, tokens, 0)
    after = sum(block.tokens for block in second)
    assert cost(cache.ask(second)) == (tokens, after - tokens, 0)


def test_without_marks_nothing_is_read_or_written() -> None:
    cache = PrefixCache()
    for _ in range(2):
        usage = cache.ask(laid(asked("1"), cache_marks=False))
        assert (usage.cache_read_tokens, usage.cache_write_tokens) == (0, 0)


def test_a_short_prefix_is_not_kept() -> None:
    cache = PrefixCache(least_tokens=10_000)
    cache.ask(laid(asked("1")))
    assert cache.ask(laid(asked("1"))).cache_read_tokens == 0


def test_what_changed_in_memory_leaves_tools_and_rom_in_the_cache() -> None:
    cache = PrefixCache()
    cache.ask(laid(asked("1"), memory="known"))
    read = cache.ask(laid(asked("1"), memory="other")).cache_read_tokens
    assert read == sum(block.tokens for block in laid(asked("1"))[:2])


def test_another_tool_choice_leaves_what_stands_before_the_messages_in_the_cache() -> None:
    cache = PrefixCache()
    cache.ask(laid(asked("1")))
    read = cache.ask(laid(asked("1"), may_call_tools=False)).cache_read_tokens
    assert read == sum(block.tokens for block in laid(asked("1"))[:2])


def test_a_reply_with_many_calls_does_not_lose_what_the_call_before_wrote() -> None:
    cache = PrefixCache()
    first = laid(asked("q" * 3_000))
    cache.ask(first)
    usage = cache.ask(laid(asked("q" * 3_000), *called(15)))
    assert usage.cache_read_tokens == sum(block.tokens for block in first)


def test_an_entry_more_than_20_blocks_before_every_mark_is_not_found() -> None:
    def row(count, marked):
        return [Block(f"b{n}", 2_000, is_marked=n in marked) for n in range(count)]

    cache = PrefixCache()
    cache.ask(row(1, {0}))
    assert cache.ask(row(20, {19})).cache_read_tokens == 2_000
    cache = PrefixCache()
    cache.ask(row(1, {0}))
    assert cache.ask(row(21, {20})).cache_read_tokens == 0


def test_calls_behind_a_compression_are_kept_apart() -> None:
    memory = "Summary of the conversation: 1"
    talk = [body(asked("1")), body(asked("1"), said("a"), asked("2")), body(asked("2"), memory=memory)]
    calls = calls_of(talk)
    assert (len(calls.steady), len(calls.compressed)) == (1, 1)
    assert calls.steady[0] > calls.compressed[0]
    assert calls.kept == [1.0]
    assert calls.plain.input_tokens == calls.cached.sent_tokens
