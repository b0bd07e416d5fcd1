"""Facts: found for an agent that recalls them, and listed, corrected and forgotten for the user whom they are about."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, func, or_, select, update

from loom_worker.core.errors import Conflict, Forbidden, NotFound
from loom_worker.core.values.facts import SHARED, Correction, Fact, FactFilter, FactStatus, Owner, topic_words
from loom_worker.core.values.ids import new_id
from loom_worker.core.values.pages import Page
from loom_worker.core.values.tenants import Actor, Tenant, WorkspaceUser
from loom_worker.core.values.tiers import Scope
from loom_worker.store.audit import note_act
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.fact_changes import COLUMNS, add, forget
from loom_worker.store.schema import sessions
from loom_worker.store.sessions import find_lane, found
from loom_worker.store.tables import fact_sources, facts
from loom_worker.store.tenants import checked_cursor, newest_first, of_user, ours, paged, the_row

MOST_FOUND = 1_000
"""Facts with a word of the topic that are looked at, those last said first. Of the 900 facts of 600 turns, what is
told of 200 answers 38 % of the questions, of 1,000 51 %; reading those takes 9 ms."""


class Facts:
    """The table of facts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(
        self, lane: str, scope: Scope, words: Sequence[str], *, with_history: bool = False, limit: int = MOST_FOUND
    ) -> tuple[Fact, ...]:
        """Facts with one of these words that a session may be told; ``user`` is None where it is the session's own.

        Args:
            words: as ``topic_words`` gives them; none: whatever is known.
            with_history: closed facts, too.
            limit: most facts, those last said first.
        """
        with self._database.read() as tx:
            session = find_lane(tx, lane)
            if session is None:
                return ()
            query = select(*COLUMNS).where(*_told_to(session, scope), _with(words))
            newest = query.order_by(facts.c.seen_ms.desc(), facts.c.id.desc()).limit(limit)
            found = [Fact(**row) for row in tx.execute(newest.where(_is("all" if with_history else "open"))).mappings()]
            return tuple(replace(fact, user=None) if fact.user == session["user"] else fact for fact in found)

    def open_count(self, lane: str, scope: Scope) -> int:
        """How many facts hold of those that a session of an agent may be told."""
        with self._database.read() as tx:
            session = find_lane(tx, lane)
            count = select(func.count()).select_from(facts).where(_is("open"))
            return 0 if session is None else tx.execute(count.where(*_told_to(session, scope))).scalar_one()

    def require_user(self, who: WorkspaceUser) -> None:
        """Raise NotFound if the workspace has neither a fact nor a session of such a user."""
        has_fact = select(facts.c.id).where(*of_user(facts, who)).limit(1)
        has_session = select(sessions.c.lane).where(ours(who)).limit(1)
        with self._database.read() as tx:
            if tx.execute(has_fact).first() is None and tx.execute(has_session).first() is None:
                raise NotFound(f"There is nothing of a user {who.user!r}.")

    def page(self, who: WorkspaceUser, where: FactFilter, *, limit: int, after: str | None) -> Page[Fact]:
        """List the facts that a user's sessions say or that were corrected for the user, the newest first.

        Raises:
            Invalid: ``after`` is not the id of a fact.
        """
        return self._page(and_(*of_user(facts, who)), where, limit=limit, after=after)

    def page_of_session(
        self, tenant: Tenant, session_id: str, where: FactFilter, *, limit: int, after: str | None
    ) -> Page[Fact]:
        """As ``page``, the facts that a session says; NotFound if the tenant has no such session."""
        with self._database.read() as tx:
            lane = found(tx, tenant, session_id)["lane"]
        said = facts.c.id.in_(select(fact_sources.c.fact_id).where(fact_sources.c.lane == lane))
        return self._page(said, where, limit=limit, after=after)

    def correct(self, who: WorkspaceUser, fact_id: str, given: Correction, *, by: Actor, now_ms: int) -> Fact:
        """Close a user's fact and open another one in its place, which a person vouches for; the new one.

        Raises:
            NotFound: there is no such fact of the user.
            Conflict: it is closed.
            Forbidden: a workspace is told it, and the key acts for a user.
        """
        with self._database.write(durable=True, lock=WHOLE) as tx:
            row = _found(tx, who, fact_id, by)
            before = _fact(row)
            if before.until_ms is not None:
                raise Conflict(
                    f"The fact {fact_id!r} is closed; correct the one that holds, or delete this one.", "fact-closed"
                )
            after = replace(
                before,
                id=new_id("fact_"),
                relation=before.relation if given.relation is None else given.relation,
                object=before.object if given.object is None else given.object,
                confidence=1.0 if given.confidence is None else given.confidence,
                since_ms=min(before.since_ms, now_ms if given.until_ms is None else given.until_ms),
                until_ms=given.until_ms,
                source="user",
                session_id=None,
                message_id=None,
                seen_ms=now_ms,
                created_ms=now_ms,
            )
            owner = Owner(row["workspace"], row["owner"])
            closed = {"until_ms": max(before.since_ms, now_ms), "superseded_by": after.id}
            tx.execute(update(facts).where(facts.c.id == fact_id).values(**closed))
            add(tx, owner, after, user=who.user, lane=None)
            if after.digest != before.digest or after.until_ms is not None:
                forget(tx, owner, before.digest, user=who.user, now_ms=now_ms)
            _note(tx, "fact.corrected", who, by, subject=fact_id, at_ms=now_ms)
        return after

    def forget(self, who: WorkspaceUser, fact_id: str, *, by: Actor, now_ms: int) -> None:
        """Delete a user's fact; what was said so far does not bring it back. NotFound, Forbidden: as ``correct``."""
        with self._database.write(durable=True, lock=WHOLE) as tx:
            row = _found(tx, who, fact_id, by)
            owner = Owner(row["workspace"], row["owner"])
            forget(tx, owner, _fact(row).digest, user=who.user, now_ms=now_ms)
            tx.execute(delete(facts).where(facts.c.id == fact_id))
            _note(tx, "fact.forgotten", who, by, subject=fact_id, at_ms=now_ms)

    def forget_all(self, who: WorkspaceUser, *, by: Actor, now_ms: int) -> int:
        """Delete a user's facts as far as the key may, for good as ``forget`` does; how many there were."""
        ours = (*of_user(facts, who), *((facts.c.owner != SHARED,) if by.user else ()))
        with self._database.write(durable=True, lock=WHOLE) as tx:
            rows = tx.execute(select(facts).where(*ours)).mappings().all()
            for row in rows:
                forget(tx, Owner(row["workspace"], row["owner"]), _fact(row).digest, user=who.user, now_ms=now_ms)
            tx.execute(delete(facts).where(*ours))
            if rows:
                _note(tx, "fact.forgotten", who, by, subject="all", at_ms=now_ms)
        return len(rows)

    def _page(self, whose: ColumnElement[bool], where: FactFilter, *, limit: int, after: str | None) -> Page[Fact]:
        query = select(*COLUMNS).where(whose, _is(where.status), _with(topic_words(where.topic)))
        query = newest_first(query, facts.c.id, checked_cursor(after, "fact_"))
        with self._database.read() as tx:
            return paged(tx, query, lambda row: Fact(**row), limit=limit)


def _told_to(session: Any, scope: Scope) -> tuple[ColumnElement[bool], ...]:
    keys = Owner.told(session["workspace"], scope, lane=session["lane"], user=session["user"])
    return facts.c.workspace == session["workspace"], facts.c.owner.in_(keys)


def _is(status: FactStatus) -> ColumnElement[bool]:
    conditions = {"open": facts.c.until_ms.is_(None), "closed": facts.c.until_ms.is_not(None)}
    return conditions.get(status, facts.c.id.is_not(None))


def _with(words: Sequence[str]) -> ColumnElement[bool]:
    contained = [facts.c.words.contains(f" {word} ", autoescape=True) for word in words]
    return or_(*contained) if contained else facts.c.id.is_not(None)


def _found(tx: Connection, who: WorkspaceUser, fact_id: str, by: Actor) -> Any:
    row = the_row(tx, select(facts).where(facts.c.id == fact_id, *of_user(facts, who)), f"fact {fact_id!r}")
    if row["owner"] == SHARED and by.user:
        raise Forbidden(f"The whole workspace is told the fact {fact_id!r}: changing it needs a key without a user.")
    return row


def _fact(row: Any) -> Fact:
    return Fact(**{name: row[name] for name in Fact.__slots__})


def _note(tx: Connection, action: str, who: WorkspaceUser, by: Actor, *, subject: str, at_ms: int) -> None:
    note_act(tx, action, by, workspace=who.workspace, at_ms=at_ms, user=who.user, subject=subject)
