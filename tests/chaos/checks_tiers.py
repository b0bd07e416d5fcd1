"""I23: what has left the context is in one summary by date, each fact is there once, and what was said has vectors."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from tests.chaos.agent_plan import MAY_CALL
from tests.chaos.checks_memory import HEURISTIC, Remembered, remembered
from tests.chaos.facts import Facts, Row
from tests.chaos.records import Evidence
from tests.chaos.summaries import DATED, MENTIONED, marks_in
from tests.chaos.verdict import Violation

BATCH = 12
"""Messages from which a summary by date is due (world.py)."""


def check_dated(_evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I23: summaries by date stand for whole turns, one after the other without a gap, up to where the memory says.

    At rest less than a batch is without one, unless the memory is due.
    """
    for one in remembered(facts):
        rows = facts.dated.get(_lane(one), ())
        yield from (_i23(one, flaw) for flaw in _gaps(one, rows))


def check_learned(_evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I23: a summary by date that the model wrote has one fact for each mark it names, and there are no others.

    Where a session's budget leaves room for half an answer, the facts behind its end are lost.
    """
    thrifty = _thrifty(facts)
    for one in remembered(facts):
        named: Counter[str] = Counter()
        for row in facts.dated.get(_lane(one), ()):
            found = None if row["by_model"] == HEURISTIC else DATED.search(row["content"])
            named.update(marks_in(found[2]) if found else ())
        stored = Counter(row["object"] for row in facts.learned.get(_lane(one), ()) if row["relation"] == MENTIONED)
        for mark in sorted(named.keys() | stored.keys()):
            is_cut = _lane(one) in thrifty and not stored[mark]
            if named[mark] != 1 or (stored[mark] != 1 and not is_cut):
                yield _i23(one, f"{mark} is in {named[mark]} summaries by date, and is a fact {stored[mark]} times")


def check_embedded(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I23: at rest all that users and assistants said has a vector, unless the session has a budget.

    It is a turn's end that has them made, so the last turn must have completed. Agents that work together have none.
    """
    thrifty = _thrifty(facts)
    for one in remembered(facts):
        last = next((turn for turn in reversed(one.turns) if turn.messages), None)
        if not evidence.embeds or last is None or last.status != "completed" or _lane(one) in thrifty:
            continue
        if ":run_" in one.name or any(turn.row["agent"] in MAY_CALL for turn in one.turns):
            continue
        for message in one.messages:
            is_said = message["role"] != "tool" and message["content"].strip()
            if is_said and message["n"] not in facts.embedded:
                yield _i23(one, f"message {message['n']} has no vector")


def _thrifty(facts: Facts) -> frozenset[str]:
    return frozenset(session["lane"] for session in facts.sessions if session["budget"])


def _gaps(one: Remembered, rows: tuple[Row, ...]) -> Iterator[str]:
    numbers = [message["n"] for message in one.messages]
    dated_n = one.memory.get("dated_n", 0)
    held = Counter(n for row in rows for n in numbers if row["from_n"] <= n <= row["to_n"])
    for n in numbers:
        if held[n] != (n <= dated_n):
            yield f"message {n} is in {held[n]} summaries by date, which go up to {dated_n}"
    for row in rows:
        inside = [message for message in one.messages if row["from_n"] <= message["n"] <= row["to_n"]]
        if len(inside) != row["messages"]:
            yield f"{row['id']} is said to stand for {row['messages']} messages, and stands for {len(inside)}"
    ends = {row["to_n"] for row in rows}
    for before, after in pairwise(one.messages):
        if before["n"] in ends and before["turn_id"] == after["turn_id"]:
            yield f"{before['turn_id']} is torn by a summary by date"
    left = sum(dated_n < n < one.memory["first_n"] for n in numbers)
    if rows and left >= BATCH and one.memory["due_ms"] is None:
        yield f"{left} messages that have left L1 are in no summary by date"


def _lane(one: Remembered) -> str:
    return next((str(message["lane"]) for message in one.messages), "")


def _i23(one: Remembered, text: str) -> Violation:
    return Violation("I23", f"tiers of {one.name}: {text}")
