"""Looks words up in PostgreSQL's index of text, which ``migrations/postgresql/search.sql`` makes."""

from collections.abc import Sequence

from sqlalchemy import Connection

from loom_worker.store.search_words import Term

WINDOWS = (("block", 12), ("part", 15))
"""What the index holds of a message beside its words: which 2**12 and which 2**15 numbers it is among. In more than
SHORT messages the newest two blocks, then the newest two parts, are asked before all: the index knows no order, and of
a word that one message in ten holds it would give 30,000 out of 300,000, each of which is read."""
SHORT = 1 << 14
"""Up to so many messages a statement that gives all is no slower, even for a word that one message in ten holds."""
SPARSE = 16
"""Sessions that hold fewer than one in so many of the messages around them are asked for as a whole, so that others'
messages, however many there are, do not make a search slow."""
LIKELY = 16
"""Two parts are asked if for each message that two blocks gave they would have to give no more than this."""
FEW = 4
"""Sessions up to which the index is asked for them too. It looks at each of them for each message with the word, which
with 200 takes ten times as long as to read those messages and drop the others'."""

# One statement for any number of words, so that it is planned once. OFFSET keeps the rest outside: the planner, which
# believes that messages with a word are everywhere, would look for a session's newest ones without this index.
_HELD = (
    "SELECT number, n FROM unnest(CAST(%s AS text[])) WITH ORDINALITY AS asked (forms, number), LATERAL ("
    "SELECT n FROM (SELECT n, lane FROM messages WHERE search @@ (CAST(%s AS tsquery) && loom_query(forms)) OFFSET 0) "
    "AS with_word WHERE lane = ANY(CAST(%s AS text[])) ORDER BY n DESC LIMIT CAST(%s AS bigint)) AS newest"
)
_HELD_OF_MANY = (
    "SELECT number, n FROM (SELECT n, search FROM messages WHERE lane = ANY(CAST(%s AS text[])) OFFSET 0) AS ours "
    "JOIN (SELECT number, loom_query(forms) AS query FROM unnest(CAST(%s AS text[])) WITH ORDINALITY "
    "AS given (forms, number) OFFSET 0) AS asked ON search @@ query"
)
_ENDS = (
    "SELECT coalesce(min((SELECT min(n) FROM messages WHERE lane = key)), 0), "
    "coalesce(max((SELECT max(n) FROM messages WHERE lane = key)), 0) FROM unnest(CAST(%s AS text[])) AS key"
)


class TsvectorIndex:
    """The column ``messages.search``, in which the session is a word of its own."""

    def all(self, tx: Connection, lanes: Sequence[str], wanted: Sequence[Term]) -> list[list[int]]:
        """As ``TermIndex`` has it."""
        if len(lanes) <= FEW:
            return _held(tx, _HELD, wanted, (_forms(wanted), _any_of("lane", lanes), list(lanes), None))
        return _held(tx, _HELD_OF_MANY, wanted, (list(lanes), _forms(wanted)))

    def newest(
        self, tx: Connection, lanes: Sequence[str], wanted: Sequence[Term], *, most: int, size: int
    ) -> list[list[int]]:
        """As ``TermIndex`` has it."""
        are_few = len(lanes) <= FEW
        within = {"all": _any_of("lane", lanes) if are_few else ""}
        if size > SHORT or not are_few:
            first, last = tx.exec_driver_sql(_ENDS, (list(lanes),)).one()
            if last - first < SPARSE * size:
                near = {kind: _any_of(kind, (last >> bits, (last >> bits) - 1)) for kind, bits in WINDOWS}
                within = near | within
            elif not are_few:
                return [sorted(each, reverse=True)[:most] for each in self.all(tx, lanes, wanted)]
        found: list[list[int]] = [[] for _ in wanted]
        for kind, words in within.items():
            left = [number for number, held in enumerate(found) if len(held) < most]
            if kind == "part":
                left = [number for number in left if LIKELY * len(found[number]) >= most]
            if left:
                terms = [wanted[number] for number in left]
                held = _held(tx, _HELD, terms, (_forms(terms), words, list(lanes), most))
                found = [held[left.index(number)] if number in left else known for number, known in enumerate(found)]
        return found


def _forms(wanted: Sequence[Term]) -> list[str]:
    """Each term as ``loom_query`` takes it."""
    return ["|".join(term.forms) + "*" * term.is_prefix for term in wanted]


def _held(tx: Connection, asked: str, wanted: Sequence[Term], values: tuple[object, ...]) -> list[list[int]]:
    """For each term what the statement finds."""
    found: list[list[int]] = [[] for _ in wanted]
    for number, n in tx.exec_driver_sql(asked, values).all():
        found[number - 1].append(n)
    return found


def _any_of(kind: str, keys: Sequence[str | int]) -> str:
    """A query for one of these words; keys of sessions are ours and hold letters, digits and ``_`` alone."""
    return " | ".join(f"'{kind} {key}'" for key in keys)
