"""Properties of matching, and building on what was read before."""

import threading
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_worker.core.values.patterns import Pattern
from loom_worker.patterns.fit import fit
from loom_worker.patterns.index import Index, Texts
from loom_worker.patterns.match import Matcher
from tests.support.shipped_patterns import shipped, shipped_matcher

LIBRARY = shipped().patterns
QUESTIONS = tuple(pattern.intents[0] for pattern in LIBRARY if pattern.intents)[::3]

TEXT = st.lists(st.sampled_from("orders month revenue customers the cat country orderly zip".split()), max_size=5).map(
    " ".join
)
PATTERN = st.builds(
    lambda title, description, intents, priority: ("n", title, description, tuple(intents), priority),
    TEXT,
    TEXT,
    st.lists(TEXT, max_size=3),
    st.integers(0, 100),
)
PATTERNS = st.lists(PATTERN, min_size=1, max_size=14).map(
    lambda each: [
        Pattern(f"x/{n:02}", name, title, description, intents=intents, priority=priority)
        for n, (name, title, description, intents, priority) in enumerate(each)
    ]
)


@settings(max_examples=15, deadline=None)
@given(PATTERNS, TEXT, st.integers(1, 20))
def test_scores_are_within_bounds_sorted_and_the_same_every_time(
    patterns: list[Pattern], question: str, k: int
) -> None:
    matcher = Matcher(patterns)
    found = matcher.match(question, k)
    assert len(found) <= k
    assert all(0 < match.score <= 1 and 0 <= match.confidence <= 1 for match in found)
    assert sum(match.confidence for match in found) <= 1 + 1e-9
    assert all(one.score >= other.score - 1e-6 for one, other in pairwise(found))
    assert found == matcher.match(question, k) == Matcher(patterns).match(question, k)


@settings(max_examples=15, deadline=None)
@given(PATTERNS, st.randoms(use_true_random=False), TEXT)
def test_the_order_of_the_patterns_changes_nothing(patterns: list[Pattern], chance: object, question: str) -> None:
    shuffled = list(patterns)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert Matcher(shuffled).match(question) == Matcher(patterns).match(question)


def test_the_index_serves_on_where_texts_are_the_same() -> None:
    class Never:
        def found(self, patterns: object) -> Index | None:
            raise AssertionError("fitted anew")

        fitted = found

    moved = [replace(pattern, priority=99) for pattern in LIBRARY]
    again = Matcher(moved, shipped_matcher(), index=Never())  # type: ignore[arg-type]
    for question in QUESTIONS:
        assert [m.score for m in again.match(question)] == [m.score for m in shipped_matcher().match(question)]


@pytest.mark.heavy
def test_a_change_serves_at_once_and_is_fitted_behind_the_scenes() -> None:
    asked, goes_on = threading.Event(), threading.Event()

    class Slow:
        def found(self, patterns: object) -> Index | None:
            return None

        def fitted(self, patterns: tuple[Texts, ...]) -> Index:
            asked.set()
            assert goes_on.wait(30)
            return fit(patterns)

    changed = [replace(LIBRARY[0], title="Something else about wombats"), *LIBRARY[1:]]
    provisional = Matcher(changed, shipped_matcher(), index=Slow())
    assert asked.wait(30)
    assert provisional.match("wombats")[0].pattern.id == LIBRARY[0].id
    same = [provisional.match(q, 1)[0].pattern.id == shipped_matcher().match(q, 1)[0].pattern.id for q in QUESTIONS]
    assert sum(same) >= 0.95 * len(same)
    goes_on.set()
    for thread in [each for each in threading.enumerate() if each.name == "loom-patterns-fit"]:
        thread.join(60)
    fitted = Matcher(changed)
    assert [provisional.match(q) for q in QUESTIONS[:10]] == [fitted.match(q) for q in QUESTIONS[:10]]


def test_words_of_patterns_that_are_gone_are_unknown_again() -> None:
    orders, cats = Pattern("x/a", "a", "orders by month"), Pattern("x/b", "b", "cats that purr loudly in the evening")
    after = Matcher([orders], Matcher([orders, cats]))
    assert after.match("cats that purr") == Matcher([orders]).match("cats that purr")
    assert after.match("orders that purr") == Matcher([orders]).match("orders that purr")
