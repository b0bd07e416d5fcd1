"""Looks words up in PostgreSQL's index of text, which ``migrations/postgresql/search.sql`` makes."""

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import Connection

from loom_worker.store.search_words import Term

BLOCK_BITS = 12
"""The index holds for each message, beside its words, which block of 2**12 numbers it is in."""
WINDOWS = (2, 16)
"""The newest blocks in which the newest messages with a word are looked for before all are. The index knows no order:
of a word that one message in ten holds it gives all 30,000 out of 300,000, which takes 20 ms."""

# A query without a word would find all of the session. What is looked for stands in a subquery, and OFFSET keeps the
# order outside, so that the planner takes no other index: it believes that messages with a word are everywhere.
_HELD = (
    "SELECT n FROM messages WHERE search @@ (SELECT CAST(%s AS tsquery) && word FROM (SELECT {word}) AS asked (word) "
    "WHERE numnode(word) > 0)"
)
_ALL = f"SELECT {{number}}, n FROM ({_HELD}) AS held"
_NEWEST = f"(SELECT {{number}}, n FROM ({_HELD} OFFSET 0) AS held ORDER BY n DESC LIMIT {{most}})"
_FORM = "phraseto_tsquery('loom', loom_folded(%s))"
_LAST = "SELECT max((SELECT max(n) FROM messages WHERE lane = key)) FROM unnest(CAST(%s AS text[])) AS key"


class TsvectorIndex:
    """The column ``messages.search``, in which the session is a word of its own."""

    def all(self, tx: Connection, lanes: Sequence[str], wanted: Sequence[Term]) -> list[list[int]]:
        """As ``TermIndex`` has it."""
        found = _held(tx, _ALL, _any_of("lane", lanes), dict(enumerate(wanted)), most=0)
        return [found[number] for number in range(len(wanted))]

    def newest(
        self, tx: Connection, lanes: Sequence[str], wanted: Sequence[Term], *, most: int, dense: tuple[int, int] | None
    ) -> list[list[int]]:
        """As ``TermIndex`` has it."""
        last = dense[1] if dense else tx.exec_driver_sql(_LAST, (list(lanes),)).scalar_one()
        if last is None:
            return [[] for _ in wanted]
        found: dict[int, list[int]] = {}
        left, of_lanes, top = dict(enumerate(wanted)), _any_of("lane", lanes), last >> BLOCK_BITS
        for blocks in WINDOWS:
            within = f"({of_lanes}) & ({_any_of('block', range(max(0, top - blocks + 1), top + 1))})"
            found |= _held(tx, _NEWEST, within, left, most=most)
            left = {number: term for number, term in left.items() if len(found[number]) < most}
            if not left or blocks > top:
                break
        else:
            found |= _held(tx, _NEWEST, of_lanes, left, most=most)
        return [found[number] for number in range(len(wanted))]


def _held(tx: Connection, one: str, within: str, wanted: dict[int, Term], *, most: int) -> dict[int, list[int]]:
    """Ask for all terms in one statement."""
    asked, values = list[str](), list[str]()
    for number, term in wanted.items():
        word = "CAST(%s AS tsquery)" if term.is_prefix else " || ".join([_FORM] * len(term.forms))
        asked.append(one.format(number=number, word=word, most=most))
        values += [within, *([f"'{term.forms[0]}':*"] if term.is_prefix else term.forms)]
    found: dict[int, list[int]] = {number: [] for number in wanted}
    for number, n in tx.exec_driver_sql(" UNION ALL ".join(asked), tuple(values)).all():
        found[number].append(n)
    return found


def _any_of(kind: str, keys: Collection[str] | Iterable[int]) -> str:
    """A query for one of these words; keys of sessions are ours and hold letters and digits alone."""
    return " | ".join(f"'{kind} {key}'" for key in keys)
