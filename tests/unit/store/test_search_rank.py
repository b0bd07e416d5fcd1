"""Which hit comes first, and what is shown of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.store import search_rank
from loom_worker.store.search_rank import (
    SNIPPET,
    Position,
    alone,
    best,
    fold,
    gist,
    holders,
    is_repeat,
    with_neighbours,
    worth,
)
from loom_worker.store.search_words import terms


def stems(question: str) -> tuple[tuple[str, ...], ...]:
    return search_rank.stems(terms(question))


def place(
    n: int,
    *,
    before: tuple[int, ...] = (),
    after: tuple[int, ...] = (),
    role: str = "user",
    characters: int = 10,
    is_question: bool = False,
) -> Position:
    return Position(n, role, characters, before=before, after=after, is_question=is_question)


def ranked(found: list[list[int]], *places: Position) -> dict[int, float]:
    held = holders(found, size=100)
    return with_neighbours(alone(held, places), held, places)


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    sums = holders([[1], [2, 3, 4, 5]], size=10).sums
    assert sums[1] > sums[2] == sums[5] > 0


def test_a_message_with_all_words_counts_more_than_the_sum() -> None:
    scores = alone(holders([[1, 3], [2, 3]], size=10), [place(1), place(2), place(3)])
    assert scores[3] > scores[1] + scores[2]


def test_a_word_that_all_messages_hold_still_finds_them() -> None:
    assert min(holders([[1, 2]], size=0).sums.values()) > 0
    assert holders([[], []], size=5).sums == {}


def test_a_word_that_no_message_holds_makes_none_less_whole() -> None:
    with_it, without = (alone(holders(found, size=9), [place(1)]) for found in ([[1], []], [[1]]))
    assert with_it == without


def test_equals_come_newest_first() -> None:
    assert best({1: 1.0, 2: 2.0, 3: 1.0}, 3) == [2, 3, 1]
    assert best({1: 1.0, 2: 2.0}, 1) == [2]
    assert best({1: 1.0, 2: 1.0, 3: 1.0, 4: 0.5}, 2) == [3, 2]
    assert best({1: 1.0}, 0) == []


def test_a_long_message_and_a_tools_result_count_less() -> None:
    places = [place(1), place(2, characters=500), place(3, role="tool")]
    scores = alone(holders([[1, 2, 3]], size=10), places)
    assert scores[1] > scores[3] > 0
    assert scores[1] > scores[2] > 0
    assert alone(holders([[1]], size=1), [place(1, characters=0)])[1] > 0


def test_what_stands_beside_a_hit_comes_in_below_it() -> None:
    scores = ranked([[1], [5]], place(1, before=(0,), after=(2,)), place(5, before=(4, 2)))
    assert scores[1] == scores[5] > scores[2] > scores[0] == scores[4] > 0


def test_what_is_farther_away_counts_less() -> None:
    scores = ranked([[5]], place(5, after=(6, 7, 8, 9)))
    assert scores[5] > scores[6] == scores[7] > scores[8] == scores[9] > 0
    assert scores[8] <= scores[7] / 2


def test_words_beside_a_message_count_more_where_they_complete_its_own() -> None:
    places = [place(1, after=(2,)), place(2, before=(1,))]
    completed, repeated = ranked([[1], [2]], *places), ranked([[1, 2], [3]], *places)
    alone_first = alone(holders([[1], [2]], size=100), places)
    alone_again = alone(holders([[1, 2], [3]], size=100), places)
    assert completed[2] / alone_first[2] > repeated[2] / alone_again[2]


def test_what_follows_a_message_that_asks_counts_more_than_what_goes_before_it() -> None:
    told = ranked([[5]], place(5, before=(4,), after=(6, 7, 8)))
    asked = ranked([[5]], place(5, before=(4,), after=(6, 7, 8), is_question=True))
    assert told[4] == told[6] == asked[4]
    assert asked[6] > asked[7] > told[7]
    assert asked[8] == told[8]


@pytest.mark.cases(
    ("question", "near", "far"),
    [
        ("red shoes", "I like red shoes best", "red is what I like, and of all that one wears, shoes"),
        ("bought houses", "we buy a house", "we buy what there is for all of us to live in: a house"),
        ("naïve plan", "NAIVE PLANS", "plans, one of them after long deliberation naive"),
        ("北京旅行", "去北京旅行", "北京很好，我下个月还想去那边旅行"),
    ],
)
def test_words_that_stand_together_are_nearer(question: str, near: str, far: str) -> None:
    looked_for = stems(question)
    assert 1 >= search_rank.nearness(near, looked_for) > search_rank.nearness(far, looked_for) >= 0


@pytest.mark.parametrize("text", ["", "nothing of it", "redder-than shoestring"])
def test_words_that_are_not_there_are_not_near(text: str) -> None:
    assert search_rank.nearness(text, stems("bed shoes")) == 0
    assert search_rank.nearness(text, ()) == 0


def test_a_snippet_shows_the_place_where_most_words_are() -> None:
    text = "shoes " + "filler words " * 200 + "here are the red shoes of Maria " + "and so on " * 200
    shown = search_rank.snippet(text, stems("Maria's red shoes"))
    assert "red shoes of Maria" in shown
    assert shown.startswith("…")
    assert shown.endswith("…")


def test_a_short_text_is_shown_whole_on_one_line() -> None:
    assert search_rank.snippet("a\n b\t\x0bc ", stems("b")) == "a b c"


@given(st.text(max_size=600), st.text(max_size=30))
def test_a_snippet_is_never_longer_than_it_may_be(text: str, question: str) -> None:
    shown = search_rank.snippet(text, stems(question))
    assert len(shown) <= SNIPPET
    assert shown.strip("…") in " ".join(text.split())


@given(st.text())
def test_folding_keeps_each_character_in_its_place(text: str) -> None:
    assert len(fold(text)) == len(text)


def test_folding_takes_accents_and_capitals_off_and_leaves_syllables_alone() -> None:
    assert fold("ÉCOLE Größe 각 が") == "ecole große 각 か"


@pytest.mark.cases(
    ("text", "other", "expected"),
    [
        ("The key hangs behind the clock.", "You said: the key  hangs behind the clock.", True),
        ("The key hangs behind the clock.", "The key hangs behind the clock. " + "And much more was said. " * 3, False),
        ("The key hangs behind the clock.", "The key hangs behind the door.", False),
        ("", "", True),
    ],
)
def test_a_text_repeats_another_if_it_holds_the_whole_of_it_and_little_more(
    text: str, other: str, expected: bool
) -> None:
    ours, theirs = gist(text), gist(other)
    assert is_repeat(ours, theirs) == is_repeat(theirs, ours) == expected


def test_a_question_counts_less_than_what_is_told() -> None:
    assert worth("Where is the key? ") == worth("钥匙在哪里？") < worth("Where is the key? Behind the clock.") == 1.0


@pytest.mark.parametrize(
    "telling",
    [
        "We went there last week",
        "We went there 2 times",
        "We went to Oslo by ship",
        "We went there yesterday",
        "YESTERDAY we did",
    ],
)
def test_what_tells_a_time_or_a_name_is_worth_more_than_small_talk(telling: str) -> None:
    assert worth(telling) > worth("We went there by ship") == worth("Great to hear, Ann", people={"ann"})
