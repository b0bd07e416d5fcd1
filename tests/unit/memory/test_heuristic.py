"""Summaries without a model: what they keep, what they cost, and that nothing makes them fail."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.chat import ChatMessage, ToolOutcome, ToolUse
from loom_worker.core.values.sessions import Message
from loom_worker.memory.heuristic import shorten, summarize
from tests.support.until import AT_ONCE_S

FILLER = "That sounds nice and I think we could well do it like this. Oh yes, that would be great for all of us. "


def count(text: str) -> int:
    """Four characters a token, never too few."""
    return -(-len(text) // 4)


def said(*texts: str) -> list[Message]:
    """The user first, then in turn."""
    chats = [ChatMessage("assistant" if n % 2 else "user", text) for n, text in enumerate(texts)]
    return [stored(chat) for chat in chats]


def stored(chat: ChatMessage) -> Message:
    return Message("msg_1", "s1", "turn_1", chat, token_count=1, created_ms=1)


def summary(*texts: str, most_tokens: int) -> str:
    return summarize(said(*texts), most_tokens=most_tokens, count=count)


@pytest.mark.cases(
    "fact",
    [
        "My sister Henrietta lives in Oslo.",
        "The invoice was 48,250.75 euros.",
        "We meet on 2027-03-14 at noon.",
        "The ticket is PROJ-1847.",
        "Write to ada@example.com about it.",
        "We decided to drop the old warehouse.",
        "I prefer answers in short tables.",
        "I promise to send the contract tomorrow.",
        "I am allergic to peanuts.",
        "Die Rechnung bezahlt Herr Grünwald.",
    ],
)
def test_what_matters_outlives_what_is_said_around_it(fact: str) -> None:
    text = summary(FILLER, f"{FILLER}{fact} {FILLER}", FILLER, most_tokens=15)
    assert fact in text


def test_what_fits_is_kept_whole_with_who_said_it() -> None:
    assert summary("Where is it? I need it.", "Under the mat.", most_tokens=50) == (
        "User: Where is it? I need it.\nAssistant: Under the mat."
    )


def test_sentences_stand_in_the_order_of_the_conversation() -> None:
    facts = [f"Customer{n} ordered {n * 37} boxes." for n in range(12)]
    text = summary(*(FILLER + fact for fact in facts), most_tokens=60)
    places = [text.find(fact) for fact in facts if fact in text]
    assert len(places) >= 4
    assert places == sorted(places)


def test_what_was_said_twice_is_kept_once() -> None:
    text = summary("Order 4711 is late.", "Order 4711 is late.", "order 4711 is late. Yes.", most_tokens=50)
    assert text.casefold().count("4711") == 1


def test_dots_within_names_and_numbers_end_no_sentence() -> None:
    kept = "Ask Dr. Smith, e.g. about v3.5 of J. Doe."
    assert kept in summary(f"{FILLER}{kept} {FILLER}", FILLER, most_tokens=15)


def test_a_table_does_not_push_out_what_others_said() -> None:
    table = "\n".join(f"| {n} | {n * 17} | {n * 31}.5 |" for n in range(200))
    text = summary("Please keep Bergen in the report.", table, most_tokens=80)
    assert "Please keep Bergen in the report." in text


def test_calls_and_results_are_told_in_a_few_words_with_their_figures() -> None:
    use = ToolUse("toolu_1", "execute_sql", {"sql": "SELECT country FROM orders"})
    reference = "ref_" + "0a" * 16
    content = '{"rows": [["Norway", 1234.5]' + ', ["x", 0]' * 300 + f'], "row_count": 301, "stored": "{reference}"}}'
    outcome = ToolOutcome("toolu_1", "execute_sql", content)
    wrong = ToolOutcome("toolu_2", "load", "no such file", is_error=True)
    chats = [ChatMessage("assistant", "Looking.", tool_uses=(use,)), ChatMessage("tool", outcomes=(outcome, wrong))]
    text = summarize([stored(chat) for chat in chats], most_tokens=150, count=count)
    for expected in ("SELECT country", "Norway", "1234.5", "row_count 301", reference, "load failed: no such file"):
        assert expected in text
    assert len(text) < 500


@pytest.mark.parametrize("most_tokens", [-1, 0])
def test_no_room_gives_no_summary(most_tokens: int) -> None:
    assert summary("Order 4711 is late.", most_tokens=most_tokens) == ""


def test_a_sentence_that_alone_is_too_long_is_cut_to_what_fits() -> None:
    text = summary("Deliver 4711 boxes of the very best quality to Bergen before Friday noon", most_tokens=5)
    assert text.startswith("User: Deliver")
    assert count(text) <= 5


def test_a_shortened_text_keeps_who_said_what_and_unmarked_lines() -> None:
    lines = [f"User: {FILLER}I want delivery to Bergen.", f"Assistant: {FILLER}", f"- {FILLER}", "- Budget: 48,250 EUR"]
    text = shorten("\n".join(lines), most_tokens=17, count=count)
    assert "User: I want delivery to Bergen." in text
    assert "- Budget: 48,250 EUR" in text


def test_shortening_what_is_short_enough_changes_nothing() -> None:
    text = "User: Deliver 48 boxes. Be quick.\nAssistant: I will.\n- Decided: Bergen\n- Open: the price"
    assert shorten(text, most_tokens=100, count=count) == text


@given(st.lists(st.text(max_size=200), max_size=6), st.integers(-2, 60))
def test_no_text_raises_and_none_is_over_the_limit_or_differs_the_second_time(texts: list[str], most: int) -> None:
    messages = said(*texts)
    text = summarize(messages, most_tokens=most, count=count)
    assert count(text) <= max(0, most)
    assert text == summarize(messages, most_tokens=most, count=count)
    assert count(shorten("\n".join(texts), most_tokens=most, count=count)) <= max(0, most)


@pytest.mark.heavy
@pytest.mark.cases(
    "piece",
    ["word and other Words 12. ", "a", ".", ".\"' ", "我们下个月去北京。", "🎉", "x-", "count", "\n", "a.b@", "((("],
    ids=repr,
)
def test_a_megabyte_is_summarized_in_linear_time(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    outcome = ToolOutcome("toolu_1", "look", text)
    messages = [*said(text), stored(ChatMessage("tool", outcomes=(outcome,)))]
    began_s = time.process_time()
    assert count(summarize(messages, most_tokens=500, count=count)) <= 500
    assert time.process_time() - began_s < AT_ONCE_S


@pytest.mark.heavy
@pytest.mark.parametrize("alphabet", [range(0x4E00, 0x9FFF), range(97, 123)], ids=["Chinese", "Latin"])
def test_a_megabyte_of_different_words_is_shortened_in_linear_time(alphabet: range) -> None:
    chance = random.Random(1)
    text = "".join(map(chr, chance.choices([*alphabet, 32], k=1_000_000)))
    began_s = time.process_time()
    assert count(shorten(text, most_tokens=1000, count=count)) <= 1000
    assert time.process_time() - began_s < AT_ONCE_S
