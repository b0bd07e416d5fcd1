"""What becomes of known facts when a conversation states others. Pure.

A fact that another one replaces is closed and kept, so that nothing which held once is told as true. What was said
earlier never closes what was said later: it becomes history.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from loom_worker.core.values.facts import Fact, LearnedFacts, StatedFact, raised, relation_key, text_key

MANY = frozenset(
    "like liked love loved enjoy dislike hate prefer want need plan own child son daughter kid sibling brother sister "
    "friend pet dog cat hobby interest skill speak know use play read watch visit buy order attend study meet collect "
    "teach learn cook eat drink avoid can member mention recommend allergy colleague wrote".split()
) | frozenset(
    (
        *("allergic to", "interested in", "member of", "travel to", "been to", "travell to", "travel in", "work with"),
        *("work on", "went to", "go to", "friend with", "fan of", "good at", "responsible for", "part of", "is", "has"),
        *("are", "was", "have", "participate in", "belong to", "language", "include", "contain", "depend on", "type"),
    )
)
"""Relations of which a subject may have several at a time; of any other a new one replaces the old."""
_HEADS = frozenset(
    {"like", "liked", "love", "loved", "enjoy", "dislike", "hate", "prefer", "want", "plan", "own", "can", "need"}
)
"""Verbs that stay so whatever follows them, such as ``likes to eat``."""


@dataclass(frozen=True, slots=True)
class FactChanges:
    """What is to be written."""

    facts: tuple[Fact, ...]
    """New ones, and known ones as they are now."""
    said: tuple[tuple[str, StatedFact], ...]
    """Ids of facts, each with a message that states it."""


def is_many_valued(relation: str) -> bool:
    """True of a relation whose facts do not replace each other."""
    key = relation_key(relation)
    return key in MANY or key.split(" ")[0] in _HEADS


def changes(
    known: Sequence[Fact],
    learned: LearnedFacts,
    *,
    forgotten: Mapping[str, int],
    new_id: Callable[[], str],
    session_id: str,
    now_ms: int,
) -> FactChanges:
    """Decide what the statements of a part of a conversation change.

    Args:
        known: the owner's facts of the same subjects, closed ones too, and all that the statements name.
        forgotten: by digest of facts that a person deleted or corrected, when: what was said before does not bring
            them back.
        new_id: makes the id of a new fact.
        session_id: where it was said.
    """
    work = _FactsInProgress({fact.id: fact for fact in known}, {}, [])
    for said in sorted(learned.statements, key=lambda each: (each.said_ms, each.n)):
        fact = _stated(said, new_id=new_id, session_id=session_id, now_ms=now_ms)
        if forgotten.get(fact.digest, -1) >= said.said_ms:
            continue
        same = [each for each in work.facts.values() if each.digest == fact.digest]
        held = next((each for each in same if each.until_ms is None), None)
        past = next((each for each in same if each.until_ms is not None and said.said_ms <= each.until_ms), None)
        if held is not None:
            work.keep(_said_again(held, said), said)
        elif past is not None:
            work.said.append((past.id, said))
        else:
            work.keep(_placed(work, fact, said), said)
    for end in learned.ended:
        fact_ended = work.facts.get(end.fact_id)
        if fact_ended is not None and fact_ended.until_ms is None and fact_ended.seen_ms <= end.said_ms:
            work.put(replace(fact_ended, until_ms=end.said_ms))
    return FactChanges(tuple(work.changed.values()), tuple(work.said))


@dataclass(frozen=True, slots=True)
class _FactsInProgress:
    facts: dict[str, Fact]
    """All, as they are by now."""
    changed: dict[str, Fact]
    said: list[tuple[str, StatedFact]]

    def put(self, fact: Fact) -> None:
        self.facts[fact.id] = self.changed[fact.id] = fact

    def keep(self, fact: Fact, said: StatedFact) -> None:
        self.put(fact)
        self.said.append((fact.id, said))


def _stated(said: StatedFact, *, new_id: Callable[[], str], session_id: str, now_ms: int) -> Fact:
    since_ms = said.said_ms if said.since_ms is None else min(said.since_ms, said.said_ms)
    until_ms = said.until_ms
    if until_ms is not None:
        since_ms = min(since_ms, until_ms) if said.since_ms is None else since_ms
        until_ms = max(since_ms, until_ms)
    return Fact(
        id=new_id(),
        subject=said.subject,
        relation=said.relation,
        object=said.object,
        since_ms=since_ms,
        until_ms=until_ms if until_ms is not None and until_ms <= said.said_ms else None,
        superseded_by=None,
        confidence=said.confidence,
        source="conversation",
        session_id=session_id,
        message_id=said.message_id,
        seen_ms=said.said_ms,
        created_ms=now_ms,
    )


def _said_again(fact: Fact, said: StatedFact) -> Fact:
    since_ms = fact.since_ms if said.since_ms is None else min(fact.since_ms, said.since_ms)
    is_over = said.until_ms is not None and fact.seen_ms <= said.said_ms and said.until_ms <= said.said_ms
    return replace(
        fact,
        since_ms=since_ms,
        until_ms=max(since_ms, said.until_ms) if is_over and said.until_ms is not None else None,
        confidence=max(fact.confidence, raised(fact.confidence, said.confidence)),
        seen_ms=max(fact.seen_ms, said.said_ms),
    )


def _placed(work: _FactsInProgress, fact: Fact, said: StatedFact) -> Fact:
    """A new fact among the open ones that it cannot stand beside: it closes those before it, later ones close it."""
    if fact.until_ms is not None:
        return fact
    is_single = not (said.is_many or is_many_valued(fact.relation))
    place = (text_key(fact.subject), relation_key(fact.relation))
    for other in tuple(work.facts.values()):
        is_rival = is_single and place == (text_key(other.subject), relation_key(other.relation))
        if other.until_ms is not None or not (is_rival or other.id in said.replaces):
            continue
        if other.seen_ms <= said.said_ms:
            work.put(replace(other, until_ms=max(other.since_ms, fact.since_ms), superseded_by=fact.id))
        else:
            fact = replace(fact, until_ms=max(fact.since_ms, other.since_ms), superseded_by=other.id)
    return fact
