"""Vectors of messages: which messages have none yet, and which are near to a question. Every query is scoped.

Only rows of one embedding model are compared with each other. A message has one row; with another model it is replaced,
a batch at a time, and a cursor says how far that has come. Vectors go with their messages, cursors with their sessions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import BigInteger, Connection, Integer, and_, bindparam, func, or_, select

from loom_worker.core.values.tiers import Scope
from loom_worker.store import ledger
from loom_worker.store.database import Database
from loom_worker.store.dialect import upsert
from loom_worker.store.engines.engine import Lock
from loom_worker.store.ledger import Charge
from loom_worker.store.schema import messages, sessions
from loom_worker.store.sessions import find_lane, within
from loom_worker.store.tables import embedding_cursors as cursors
from loom_worker.store.tables import message_vectors as vectors
from loom_worker.store.vector_scan import Near, Vector, VectorScan, packed, scan_of

MOST_COUNTED = 10_000
"""Messages without a vector are counted up to here: more say no more, and a count walks over each."""

_has_text = and_(messages.c.role.in_(("user", "assistant")), func.rtrim(messages.c.content, " \t\r\n") != "")
"""What users and assistants said; results of tools are mostly rows, which say little about what a talk was about."""
_CURSOR = select(cursors.c.up_to_n).where(
    cursors.c.lane == bindparam("our_lane"), cursors.c.model == bindparam("our_model")
)
_NEXT = (
    select(messages.c.n, func.substr(messages.c.content, 1, bindparam("most_chars", type_=Integer)))
    .where(messages.c.lane == bindparam("our_lane"), messages.c.n > bindparam("seen_n", type_=BigInteger), _has_text)
    .order_by(messages.c.n)
    .limit(bindparam("most", type_=Integer))
)
_vector = upsert(vectors).values({name: bindparam(name) for name in ("n", "lane", "model", "dimensions", "vector")})
_ADD = _vector.on_conflict_do_update(
    index_elements=["n"], set_={name: _vector.excluded[name] for name in ("model", "dimensions", "vector")}
)
_cursor = upsert(cursors).values({name: bindparam(name) for name in ("lane", "model", "up_to_n")})
_MOVE = _cursor.on_conflict_do_update(
    index_elements=["lane"], set_={name: _cursor.excluded[name] for name in ("model", "up_to_n")}
)
_EMBEDDED = select(func.count()).where(
    vectors.c.lane == bindparam("our_lane"), vectors.c.model == bindparam("our_model")
)


@dataclass(frozen=True, slots=True)
class Reach:
    """Whose messages a search looks at, as seen from one session."""

    lane: str
    scope: Scope = "session"


@dataclass(frozen=True, slots=True)
class Unembedded:
    """The next messages of a session without a vector of a model."""

    after_n: int
    """How far the session was embedded; ``add`` does nothing if that has changed."""
    up_to_n: int
    """How far it is once these are."""
    texts: Mapping[int, str]
    """By number of the message, in their order, each cut to what was asked for; empty: all are done."""


class MessageVectors:
    """The tables of vectors."""

    def __init__(self, database: Database, *, scan: VectorScan | None = None) -> None:
        """Args: scan: what compares vectors; None: the database's extension where it has one, else numpy."""
        self._database = database
        self._scan = scan

    def is_there(self, lane: str) -> bool:
        """False if the session is deleted."""
        with self._database.read() as tx:
            return find_lane(tx, lane) is not None

    def unembedded(self, lane: str, model: str, *, limit: int, most_chars: int) -> Unembedded:
        """The oldest messages of a session that have no vector of this model; of a deleted session none."""
        with self._database.read() as tx:
            if find_lane(tx, lane) is None:
                return Unembedded(0, 0, {})
            after_n = _up_to(tx, lane, model)
            asked = {"our_lane": lane, "seen_n": after_n, "most": limit, "most_chars": most_chars}
            texts = {row[0]: row[1] for row in tx.execute(_NEXT, asked)}
        return Unembedded(after_n, max(texts, default=after_n), texts)

    def add(
        self,
        lane: str,
        model: str,
        done: Unembedded,
        found: Mapping[int, Vector],
        *,
        charge: Charge | None,
        now_ms: int,
    ) -> bool:
        """Store vectors and move the session's cursor, in one transaction; the charge is entered in any case.

        Args:
            found: by number of the message; one without is never asked for again.

        Returns:
            False if another worker has embedded these messages meanwhile, or the session is deleted.

        Raises:
            ValueError: a vector that cannot be stored; nothing was written.
        """
        new = [
            {"n": n, "lane": lane, "model": model, "dimensions": len(vector), "vector": packed(vector)}
            for n, vector in found.items()
        ]
        with self._database.write(lock=Lock.lane(lane)) as tx:
            if charge is not None:
                ledger.charge(tx, lane, charge, now_ms=now_ms)
            if find_lane(tx, lane) is None or _up_to(tx, lane, model) != done.after_n:
                return False
            there = set(
                tx.execute(select(messages.c.n).where(messages.c.n.in_(found))).scalars()
            )  # some may be too old
            if kept := [row for row in new if row["n"] in there]:
                tx.execute(_ADD, kept)
            tx.execute(_MOVE, {"lane": lane, "model": model, "up_to_n": done.up_to_n})
        return True

    def nearest(self, reach: Reach, model: str, query: Vector, *, k: int) -> tuple[Near, ...]:
        """The messages within reach whose vectors of this model are nearest, the nearest first.

        Raises:
            ValueError: the query is no vector that could be stored.
        """
        with self._database.read() as tx:
            owner = find_lane(tx, reach.lane)
            if owner is None:
                return ()
            of_sessions = select(vectors.c.n, vectors.c.vector).join(sessions, sessions.c.lane == vectors.c.lane)
            is_alike = (vectors.c.model == model, vectors.c.dimensions == len(query))
            found = of_sessions.where(*within(owner, reach.scope), *is_alike)
            return tuple((self._scan or scan_of(tx)).nearest(tx, found, packed(query), k=k))

    def left(self, reach: Reach, model: str) -> int:
        """How many messages within reach have no vector of this model yet, up to MOST_COUNTED."""
        is_new = or_(cursors.c.up_to_n.is_(None), messages.c.n > cursors.c.up_to_n)
        of_session = and_(cursors.c.lane == sessions.c.lane, cursors.c.model == model)
        joined = sessions.outerjoin(cursors, of_session).join(messages, messages.c.lane == sessions.c.lane)
        with self._database.read() as tx:
            owner = find_lane(tx, reach.lane)
            if owner is None:
                return 0
            some = select(messages.c.n).select_from(joined).where(*within(owner, reach.scope), is_new, _has_text)
            return tx.execute(select(func.count()).select_from(some.limit(MOST_COUNTED).subquery())).scalar_one()

    def embedded(self, lane: str, model: str) -> int:
        """How many messages of a session have a vector of this model."""
        with self._database.read() as tx:
            return tx.execute(_EMBEDDED, {"our_lane": lane, "our_model": model}).scalar_one()

    def lanes(self, reach: Reach, numbers: Sequence[int]) -> dict[int, str]:
        """The sessions, by their internal keys, of the messages with these numbers, as far as they are within reach."""
        with self._database.read() as tx:
            owner = find_lane(tx, reach.lane)
            if owner is None:
                return {}
            joined = messages.join(sessions, sessions.c.lane == messages.c.lane)
            query = select(messages.c.n, messages.c.lane).select_from(joined)
            return {
                row[0]: row[1]
                for row in tx.execute(query.where(*within(owner, reach.scope), messages.c.n.in_(numbers)))
            }


def _up_to(tx: Connection, lane: str, model: str) -> int:
    return tx.execute(_CURSOR, {"our_lane": lane, "our_model": model}).scalar() or 0
