"""Looks words up in SQLite's FTS5. Only this file and the migrations that make the index know of it."""

from collections.abc import Sequence

from sqlalchemy import Connection

from loom_worker.store.search_words import Term

DENSE = 4
"""A session is dense if, between its first message and its last, at most this many times its own messages were written
in all sessions."""

# FTS5's own bm25() counts each word over all sessions first: 5 ms at 100,000 messages, and other people's words would
# move the scores.
_HOLDING = "SELECT {number}, rowid FROM messages_fts5 WHERE messages_fts5 MATCH ?"
_NEWEST = f"SELECT * FROM ({_HOLDING} ORDER BY rowid DESC LIMIT {{most}})"
_ENDS = (
    "SELECT coalesce((SELECT min(n) FROM messages WHERE lane = ?1), 0), "
    "coalesce((SELECT max(n) FROM messages WHERE lane = ?1), 0)"
)
# With the lane as a term, FTS5 walks all of the lane for each word. Where most messages around are the lane's anyway,
# it is cheaper to look each up in the lane's index.
_NEWEST_DENSE = (
    "SELECT * FROM (SELECT {number}, rowid FROM messages_fts5 WHERE messages_fts5 MATCH ? AND rowid BETWEEN ? AND ? "
    "AND EXISTS (SELECT 1 FROM messages INDEXED BY messages_by_session WHERE lane = ? AND n = messages_fts5.rowid) "
    "ORDER BY rowid DESC LIMIT {most})"
)
_SEARCHED = "{{said grams tools}} : ({})"


class Fts5Index:
    """The virtual table ``messages_fts5``, in which the session is a column of words."""

    def all(self, tx: Connection, lanes: Sequence[str], wanted: Sequence[Term]) -> list[list[int]]:
        """As ``TermIndex`` has it."""
        return _held(tx, _HOLDING, [(_of(lanes, term),) for term in wanted], most=0)

    def newest(
        self, tx: Connection, lanes: Sequence[str], wanted: Sequence[Term], *, most: int, size: int
    ) -> list[list[int]]:
        """As ``TermIndex`` has it."""
        if len(lanes) == 1:
            first, last = tx.exec_driver_sql(_ENDS, (lanes[0],)).one()
            if last - first < DENSE * size:
                each = [(_SEARCHED.format(match(term)), first, last, lanes[0]) for term in wanted]
                return _held(tx, _NEWEST_DENSE, each, most=most)
        return _held(tx, _NEWEST, [(_of(lanes, term),) for term in wanted], most=most)


def match(term: Term) -> str:
    """An FTS5 expression: each form quoted, so nothing in it is an operator; it holds letters and digits alone."""
    star = " *" if term.is_prefix else ""
    return " OR ".join(f'"{form}"{star}' for form in term.forms)


def _of(lanes: Sequence[str], term: Term) -> str:
    of_lanes = " OR ".join(f'"{key}"' for key in lanes)
    return f"lane : ({of_lanes}) AND {_SEARCHED.format(match(term))}"


def _held(tx: Connection, one: str, each: Sequence[tuple[str | int, ...]], *, most: int) -> list[list[int]]:
    """Ask for all terms in one statement, with these values for each of them."""
    asked = " UNION ALL ".join(one.format(number=number, most=most) for number in range(len(each)))
    found: list[list[int]] = [[] for _ in each]
    for number, n in tx.exec_driver_sql(asked, tuple(value for values in each for value in values)).all():
        found[number].append(n)
    return found
