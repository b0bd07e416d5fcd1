"""Facts change: what a conversation states is taken in, and what belongs to something deleted goes with it.

All of it runs in a transaction of the caller: a fact commits with the step of memory that found it.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, or_, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from loom_worker.core.values.fact_changes import changes
from loom_worker.core.values.facts import SUBJECT_CHARS, Fact, LearnedFacts, Owner, StatedFact, digest_of, text_key
from loom_worker.core.values.ids import new_id
from loom_worker.core.values.tenants import WorkspaceUser
from loom_worker.store.memory_tables import fact_sources, facts, forgotten_facts

MOST_IDS = 500
"""Of one statement."""
COLUMNS = [facts.c[name] for name in Fact.__slots__]


def learn(tx: Connection, session: Any, learned: LearnedFacts, *, now_ms: int) -> None:
    """Take in what a session's messages state.

    Args:
        session: its row.
    """
    owner = Owner.of(session["workspace"], lane=session["lane"], user=session["user"], scope=learned.scope)
    decided = changes(
        _known(tx, owner, learned),
        learned,
        forgotten=_forgotten(tx, owner, learned.statements),
        new_id=lambda: new_id("fact_"),
        session_id=session["id"],
        now_ms=now_ms,
    )
    known = set(tx.execute(select(facts.c.id).where(facts.c.id.in_([each.id for each in decided.facts]))).scalars())
    for fact in decided.facts:
        if fact.id in known:
            changing = ("since_ms", "until_ms", "superseded_by", "confidence", "seen_ms")
            values = {name: getattr(fact, name) for name in changing}
            tx.execute(update(facts).where(facts.c.id == fact.id).values(**values))
        else:
            add(tx, owner, fact, user=session["user"], lane=session["lane"])
    for fact_id, said in decided.said:
        source = {"fact_id": fact_id, "lane": session["lane"], "n": said.n}
        newest = upsert(fact_sources).values(**source)
        tx.execute(newest.on_conflict_do_update(index_elements=["fact_id", "lane"], set_={"n": said.n}))


def add(tx: Connection, owner: Owner, fact: Fact, *, user: str | None, lane: str | None) -> None:
    """Insert a fact.

    Args:
        user: whose session it is from.
        lane: of that session; None: a person says so.
    """
    words = " ".join(sorted(fact.words))
    values = {name: getattr(fact, name) for name in Fact.__slots__}
    values |= {"workspace": owner.workspace, "owner": owner.key, "user": user, "lane": lane}
    tx.execute(insert(facts), {**values, "subject_key": _subject_key(fact.subject), "words": f" {words} "})


def forget(tx: Connection, owner: Owner, digest: str, *, user: str | None, now_ms: int) -> None:
    """Let nothing that was said before now bring a fact back."""
    row = {"workspace": owner.workspace, "owner": owner.key, "digest": digest, "user": user, "until_ms": now_ms}
    noted = upsert(forgotten_facts).values(**row)
    keys = ["workspace", "owner", "digest"]
    tx.execute(noted.on_conflict_do_update(index_elements=keys, set_={"until_ms": now_ms}))


def remove_of_session(tx: Connection, workspace: str, lane: str) -> None:
    """Delete a session's own facts, and those that no other session says; corrections by people stay."""
    own = Owner.of(workspace, lane=lane, user=None, scope="session")
    for table in (facts, forgotten_facts):
        tx.execute(delete(table).where(table.c.workspace == workspace, table.c.owner == own.key))
    _remove_sources(tx, lane, fact_sources.c.lane == lane)


def remove_of_messages(tx: Connection, lane: str, last_n: int) -> None:
    """Delete the facts that only messages up to this number say, which are deleted."""
    _remove_sources(tx, lane, and_(fact_sources.c.lane == lane, fact_sources.c.n <= last_n))


def remove_of_user(tx: Connection, who: WorkspaceUser) -> bool:
    """Delete all facts of a user; True if there were some."""
    removed = 0
    for table in (facts, forgotten_facts):
        removed += tx.execute(delete(table).where(*_of(table, who))).rowcount
    return removed > 0


def _of(table: Any, who: WorkspaceUser) -> tuple[ColumnElement[bool], ...]:
    return table.c.workspace == who.workspace, table.c.user == who.user


def _remove_sources(tx: Connection, lane: str, gone: ColumnElement[bool]) -> None:
    """Remove what a session says; facts that are still said elsewhere no longer name it."""
    ids = tx.execute(select(fact_sources.c.fact_id).where(gone)).scalars().all()
    tx.execute(delete(fact_sources).where(gone))
    no_session = {"lane": None, "session_id": None, "message_id": None}
    for at in range(0, len(ids), MOST_IDS):
        some = facts.c.id.in_(ids[at : at + MOST_IDS])
        said_elsewhere = select(fact_sources.c.fact_id).where(fact_sources.c.fact_id == facts.c.id).exists()
        tx.execute(delete(facts).where(some, facts.c.source == "conversation", ~said_elsewhere))
        tx.execute(update(facts).where(some, facts.c.lane == lane).values(**no_session))


def _known(tx: Connection, owner: Owner, learned: LearnedFacts) -> list[Fact]:
    """The owner's facts of the subjects that are spoken of, and those that are named."""
    subjects = {_subject_key(said.subject) for said in learned.statements}
    named = {fact_id for said in learned.statements for fact_id in said.replaces}
    named |= {end.fact_id for end in learned.ended}
    if not (subjects or named):
        return []
    wanted = or_(facts.c.subject_key.in_(subjects), facts.c.id.in_(named))
    ours = (facts.c.workspace == owner.workspace, facts.c.owner == owner.key)
    query = select(*COLUMNS).where(*ours, wanted).order_by(facts.c.id)
    return [Fact(**row) for row in tx.execute(query).mappings()]


def _subject_key(subject: str) -> str:
    """As the column holds it: normalizing may make a text longer."""
    return text_key(subject)[:SUBJECT_CHARS]


def _forgotten(tx: Connection, owner: Owner, statements: Sequence[StatedFact]) -> dict[str, int]:
    digests = {digest_of(said.subject, said.relation, said.object) for said in statements}
    table = forgotten_facts
    ours = (table.c.workspace == owner.workspace, table.c.owner == owner.key, table.c.digest.in_(digests))
    return {row.digest: row.until_ms for row in tx.execute(select(table.c.digest, table.c.until_ms).where(*ours))}
