"""Tool results within a budget of their own: seldom a stub, always the same ones, and pairs whole."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.text import short
from loom_worker.core.values.chat import ChatMessage, ToolOutcome
from loom_worker.memory.results import (
    STUB_REFS,
    bounded,
    call_text,
    references,
    results_tokens,
    stubbed,
)
from tests.unit.memory.talk import called, count, pairs_are_whole, running, said, turns, user

REF = "ref_" + "0123456789abcdef" * 2


def turn_of(results: int, chars: int) -> list[ChatMessage]:
    """A question and so many replies with one call each."""
    return [user("go"), *(chat for n in range(results) for chat in called(str(n)[-1] * chars, first=n))]


def stubs(turn: tuple[ChatMessage, ...], whole: list[ChatMessage]) -> set[str]:
    """The ids of the calls whose results were left out."""
    pairs = zip(turn, whole, strict=False)
    outcomes = (both for new, old in pairs for both in zip(new.outcomes, old.outcomes, strict=True))
    return {new.tool_use_id for new, old in outcomes if new != old}


def kept_tokens(turn: tuple[ChatMessage, ...], whole: list[ChatMessage]) -> int:
    """Of the long results that are still there, those of the last message apart."""
    gone = stubs(turn, whole)
    *older, _ = [message for message in turn if message.outcomes] or [None]
    outcomes = [outcome for message in older if message for outcome in message.outcomes]
    return sum(len(o.content) for o in outcomes if o.tool_use_id not in gone and len(o.content) > 400)


def test_results_within_their_budget_stay_as_they_are() -> None:
    turn = turn_of(4, 500)
    assert bounded(turn, budget_tokens=2000, count=count) == tuple(turn)
    assert bounded([], budget_tokens=0, count=count) == ()


def test_the_oldest_results_go_until_half_of_the_budget_is_free() -> None:
    turn = turn_of(5, 500)
    short = bounded(turn, budget_tokens=2000, count=count)
    assert stubs(short, turn) == {"toolu_0", "toolu_1", "toolu_2"}
    assert kept_tokens(short, turn) + 500 == 1000


def test_the_latest_results_stay_whatever_their_size() -> None:
    turn = [user("go"), *called("a" * 500), *called("b" * 5000, "c" * 5000, first=1)]
    assert stubs(bounded(turn, budget_tokens=1000, count=count), turn) == {"toolu_0"}


def test_stubs_come_seldom() -> None:
    turn = turn_of(50, 1000)
    sent = [bounded(turn[: 3 + 2 * n], budget_tokens=10_000, count=count) for n in range(50)]
    breaks = [n for n, (one, after) in enumerate(pairwise(sent), 1) if after[: len(one)] != one]
    assert breaks == [10, 16, 22, 28, 34, 40, 46]


def test_a_stub_names_the_call_its_length_and_its_references() -> None:
    content = f"rows {REF} and {REF} " + "x" * 500
    stub = stubbed([user("go"), *called(content)], count=count)[2].outcomes[0]
    assert stub == ToolOutcome(
        "toolu_0",
        "add",
        f'[The result of add({{"a": 0}}), {len(content)} characters, was left out to save room. It named {REF}, '
        "which get_tool_result reads. Call the tool again, for no more than you need, if you need it.]",
    )


def test_a_stub_keeps_the_latest_references_of_many() -> None:
    refs = [f"ref_{n:032x}" for n in range(40)]
    stub = stubbed([user("go"), *called(" ".join(refs))], count=count)[2].outcomes[0]
    assert references(stub.content) == refs[-STUB_REFS:]


def test_a_result_without_its_call_can_be_left_out_too() -> None:
    lonely = ChatMessage("tool", outcomes=(ToolOutcome("toolu_9", "add", "x" * 999, is_error=True),))
    (stub,) = stubbed([lonely], count=count)
    assert stub.outcomes[0].content.startswith("[The result of add({}), 999 characters")
    assert stub.outcomes[0].is_error


def test_short_results_are_not_made_longer_by_leaving_them_out() -> None:
    turn = [user("go"), *called(*["1"] * 20), said("so"), *called("y" * 500, first=20)]
    assert stubs(stubbed(turn, count=count), turn) == {"toolu_20"}
    assert stubs(stubbed(turn, spare=[5], count=count), turn) == set()
    many = [user("go"), *(chat for n in range(30) for chat in called("12345", first=n))]
    assert bounded(many, budget_tokens=50, count=count) == tuple(many)


@pytest.mark.cases(
    ("text", "found"),
    [
        (f"[Large dataset stored: {REF}]", [REF]),
        (f"{REF},{REF}", [REF]),
        (f"x{REF} {REF}0 {REF[:-1]} {REF.upper()}", []),
        ("", []),
    ],
)
def test_a_reference_is_ref_and_32_hexadecimal_digits(text: str, found: list[str]) -> None:
    assert references(text) == found


def test_what_is_long_is_shortened_to_the_very_character() -> None:
    assert short("abcd", 4) == "abcd"
    assert short("abcde", 4) == "abc…"
    assert call_text("add", {"ü": "✓"}) == 'add({"ü": "✓"})'
    assert len(call_text("add", {"a": "x" * 999})) == 100


@given(turns, st.integers(0, 3000))
def test_a_growing_turn_keeps_its_stubs_and_gets_more_only_over_its_budget(
    turn: list[ChatMessage], budget: int
) -> None:
    before: tuple[ChatMessage, ...] = ()
    for length in range(1, len(turn) + 1):
        sent = bounded(turn[:length], budget_tokens=budget, count=count)
        assert stubs(before, turn) <= stubs(sent, turn)
        assert kept_tokens(sent, turn) <= budget
        if sent[: len(before)] != before:
            assert kept_tokens(sent, turn) <= budget // 2
            assert sent[-1].outcomes, "only new results drive older ones out"
        assert sent[-1] == turn[length - 1], "the latest results stay"
        before = sent
    assert bounded(turn, budget_tokens=budget, count=count) == before


@given(running, st.integers(0, 3000))
def test_only_the_texts_of_results_change_and_none_gets_longer(turn: list[ChatMessage], budget: int) -> None:
    for sent in (bounded(turn, budget_tokens=budget, count=count), stubbed(turn, count=count)):
        assert pairs_are_whole(sent)
        for new, old in zip(sent, turn, strict=True):
            assert (new.role, new.text, new.context, new.tool_uses) == (old.role, old.text, old.context, old.tool_uses)
            assert all(len(a.content) <= len(b.content) for a, b in zip(new.outcomes, old.outcomes, strict=True))


def test_results_have_three_tenths_of_the_input_budget() -> None:
    assert results_tokens(180_000) == 54_000
