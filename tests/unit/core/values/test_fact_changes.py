"""A fact that another one replaces is closed and kept; what was said earlier never closes what was said later."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.fact_changes import FactChanges, changes, is_many_valued
from loom_worker.core.values.facts import (
    EndedFact,
    Fact,
    LearnedFacts,
    StatedFact,
    digest_of,
    relation_key,
    search_words,
    text_key,
    topic_words,
)

DAY = 86_400_000


def said(triple: str, day: int, **more: object) -> StatedFact:
    """``subject|relation|object`` as a message of that day states it."""
    subject, relation, object_ = triple.split("|")
    made = StatedFact(subject, relation, object_, f"msg_{day}", n=day, said_ms=day * DAY)
    return replace(made, **more)  # type: ignore[arg-type]


def numbered(first: int = 1) -> Callable[[], str]:
    numbers = count(first)
    return lambda: f"fact_{next(numbers)}"


def learned(*statements: StatedFact, known: tuple[Fact, ...] = (), **more: object) -> FactChanges:
    ended = more.pop("ended", ())
    forgotten = more.pop("forgotten", {})
    found = LearnedFacts("user", statements, ended)  # type: ignore[arg-type]
    return changes(known, found, forgotten=forgotten, new_id=numbered(1 + len(known)), session_id="s1", now_ms=99 * DAY)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Case:
    """What is said one after the other, and what holds then and held once."""

    says: tuple[StatedFact, ...]
    holds: tuple[str, ...]
    held: tuple[str, ...] = ()


BERLIN, PARIS = "user|lives in|Berlin", "user|lives in|Paris"
CASES = {
    "one fact": Case((said(BERLIN, 1),), ("Berlin",)),
    "the same again": Case((said(BERLIN, 1), said("User|lives_in|berlin.", 2)), ("Berlin",)),
    "another place": Case((said(BERLIN, 1), said(PARIS, 2)), ("Paris",), ("Berlin",)),
    "another wording of the relation": Case((said(BERLIN, 1), said("user|moved to|Paris", 2)), ("Paris",), ("Berlin",)),
    "an older place that is read later": Case((said(PARIS, 5), said(BERLIN, 1)), ("Paris",), ("Berlin",)),
    "there and back": Case((said(BERLIN, 1), said(PARIS, 2), said(BERLIN, 3)), ("Berlin",), ("Berlin", "Paris")),
    "another employer": Case((said("user|works at|Acme", 1), said("user|employer|Globex", 2)), ("Globex",), ("Acme",)),
    "a name": Case((said("dog|is called|Rex", 1), said("dog|name|Max", 2)), ("Max",), ("Rex",)),
    "an age": Case((said("Tom|age|6", 1), said("Tom|is aged|7", 2)), ("7",), ("6",)),
    "things that are liked": Case((said("user|likes|tea", 1), said("user|likes|jazz", 2)), ("tea", "jazz")),
    "children": Case((said("user|has child|Mia", 1), said("user|has child|Ben", 2)), ("Mia", "Ben")),
    "possessions": Case((said("user|owns|car", 1), said("user|owns|boat", 2)), ("car", "boat")),
    "another subject": Case((said(BERLIN, 1), said("Ada|lives in|Paris", 2)), ("Berlin", "Paris")),
    "many by the model's word": Case(
        (said("user|rents|car", 1), said("user|rents|flat", 2, is_many=True)), ("car", "flat")
    ),
    "over before it was told": Case((said("user|works at|Acme", 9, until_ms=5 * DAY, since_ms=DAY),), (), ("Acme",)),
    "past beside present": Case(
        (said("user|works at|Globex", 8), said("user|works at|Acme", 9, until_ms=5 * DAY)), ("Globex",), ("Acme",)
    ),
}


@pytest.mark.cases("case", list(CASES.values()), ids=list(CASES))
def test_what_is_said_last_holds_and_what_it_replaced_is_history(case: Case) -> None:
    by_step: tuple[Fact, ...] = ()
    ids = numbered()
    for one in case.says:  # each in a batch of its own
        found = changes(
            by_step, LearnedFacts("user", (one,)), forgotten={}, new_id=ids, session_id="s1", now_ms=99 * DAY
        )
        by_step = tuple({fact.id: fact for fact in (*by_step, *found.facts)}.values())
    at_once = learned(*case.says).facts
    for facts in (by_step, at_once):
        assert sorted(fact.object for fact in facts if fact.until_ms is None) == sorted(case.holds)
        assert sorted(fact.object for fact in facts if fact.until_ms is not None) == sorted(case.held)
        assert all(fact.until_ms is None or fact.until_ms >= fact.since_ms for fact in facts)


@given(
    said_on=st.lists(st.tuples(st.integers(1, 30), st.sampled_from("ABC")), min_size=1, unique_by=lambda each: each[0]),
    order=st.randoms(use_true_random=False),
    size=st.integers(1, 4),
)
def test_what_was_said_last_holds_in_whatever_order_it_is_read(
    said_on: list[tuple[int, str]], order: Random, size: int
) -> None:
    statements = [said(f"user|lives in|{place}", day) for day, place in said_on]
    order.shuffle(statements)
    ids, facts = numbered(), dict[str, Fact]()
    for at in range(0, len(statements), size):
        batch = LearnedFacts("user", tuple(statements[at : at + size]))
        found = changes(tuple(facts.values()), batch, forgotten={}, new_id=ids, session_id="s1", now_ms=99 * DAY)
        facts |= {fact.id: fact for fact in found.facts}
        assert len({fact_id for fact_id, _ in found.said} - facts.keys()) == 0
    assert [fact.object for fact in facts.values() if fact.until_ms is None] == [max(said_on)[1]]
    assert {fact.object for fact in facts.values()} == {place for _, place in said_on}
    assert all(fact.since_ms <= (fact.until_ms or fact.seen_ms) for fact in facts.values())


def test_a_closed_fact_names_the_one_that_took_its_place_and_when() -> None:
    [berlin] = learned(said(BERLIN, 1)).facts
    found = {fact.object: fact for fact in learned(said(PARIS, 9, since_ms=7 * DAY), known=(berlin,)).facts}
    assert (found["Berlin"].until_ms, found["Berlin"].superseded_by) == (7 * DAY, found["Paris"].id)
    assert (found["Paris"].since_ms, found["Paris"].until_ms) == (7 * DAY, None)


def test_what_is_said_again_adds_no_row_and_is_more_certain() -> None:
    [berlin] = learned(said(BERLIN, 1, confidence=0.6)).facts
    again = learned(said(BERLIN, 4, confidence=0.6), known=(berlin,))
    [fact] = again.facts
    assert (fact.id, fact.seen_ms, fact.since_ms) == (berlin.id, 4 * DAY, DAY)
    assert 0.6 < fact.confidence < 1
    assert [fact_id for fact_id, _ in again.said] == [berlin.id]


def test_the_model_may_say_what_a_fact_takes_the_place_of() -> None:
    [tea] = learned(said("user|likes|tea", 1)).facts
    found = learned(said("user|dislikes|tea", 5, replaces=(tea.id,)), known=(tea,)).facts
    assert {(fact.relation, fact.until_ms) for fact in found} == {("likes", 5 * DAY), ("dislikes", None)}
    older = learned(said("user|dislikes|tea", 0, replaces=(tea.id,)), known=(tea,)).facts
    assert [(fact.relation, fact.until_ms) for fact in older] == [("dislikes", DAY)]


def test_what_ended_is_closed_unless_it_was_said_again_later() -> None:
    [car] = learned(said("user|owns|car", 3)).facts
    [closed] = learned(known=(car,), ended=(EndedFact(car.id, 5 * DAY),)).facts
    assert (closed.until_ms, closed.superseded_by) == (5 * DAY, None)
    assert learned(known=(car,), ended=(EndedFact(car.id, 2 * DAY), EndedFact("fact_9", 5 * DAY))).facts == ()


def test_what_a_person_had_forgotten_comes_back_only_if_it_is_said_later() -> None:
    forgotten = {digest_of("user", "resides in", "berlin"): 5 * DAY}
    assert learned(said(BERLIN, 4), said(BERLIN, 5), forgotten=forgotten).facts == ()
    assert len(learned(said(BERLIN, 6), forgotten=forgotten).facts) == 1


def test_an_old_message_does_not_open_again_what_is_closed() -> None:
    [berlin] = learned(said(BERLIN, 1)).facts
    closed = replace(berlin, until_ms=6 * DAY)
    found = learned(said(BERLIN, 4), known=(closed,))
    assert (found.facts, [fact_id for fact_id, _ in found.said]) == ((), [closed.id])


@pytest.mark.cases(
    "relation, is_many",
    [
        *(("lives in", False), ("works_at", False), ("is called", False), ("age", False), ("married to", False)),
        *(("email", False), ("favourite colour", False), ("born on", False)),
        *(("likes", True), ("liked", True), ("likes to eat", True), ("owns", True), ("has child", True)),
        *(("is allergic to", True), ("speaks", True), ("knows", True), ("visited", True), ("is", True), ("has", True)),
    ],
)
def test_some_relations_hold_for_several_things_at_a_time(relation: str, is_many: bool) -> None:
    assert is_many_valued(relation) is is_many


@pytest.mark.cases(
    "one, other",
    [
        *(
            ("lives in", "resides in"),
            ("lives in", "is living in"),
            ("lives_in", "home city"),
            ("works for", "employer"),
        ),
        *(("is named", "name"), ("date of birth", "born on"), ("has job title", "occupation")),
    ],
)
def test_usual_wordings_of_a_relation_count_as_the_same(one: str, other: str) -> None:
    assert relation_key(one) == relation_key(other)


def test_keys_tell_things_apart_that_differ_in_more_than_form() -> None:
    assert text_key("  The Blue  Boat! ") == text_key("blue boat")
    assert len({text_key(text) for text in ("C", "C++", "C#", "-5", "5", "the", "")}) == 7


@pytest.mark.cases(
    "topic, found",
    [
        *(("Where does she live?", True), ("home", True), ("Ada", True), ("cities of France", False), ("PARIS", True)),
        *(("who", False), ("", False), ("Berlin", False)),
    ],
)
def test_a_fact_is_found_by_its_words_in_other_forms(topic: str, found: bool) -> None:
    words = search_words("Ada lives in Paris", relation_key("lives in"))
    assert bool(set(topic_words(topic)) & words) is found


def test_irregular_forms_and_words_without_spaces_are_found() -> None:
    assert set(topic_words("go")) & search_words("user went to Rome")
    assert set(topic_words("東京")) & search_words("user 東京都に住む")
