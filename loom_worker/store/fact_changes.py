"""Facts change: what a conversation states is taken in, and what belongs to something deleted goes with it.

All of it runs in a transaction of the caller: a fact commits with the step of memory that found it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, or_, select, update

from loom_worker.core.values.api_keys import TOKEN_PREFIX
from loom_worker.core.values.fact_changes import changes
from loom_worker.core.values.facts import SUBJECT_CHARS, Fact, LearnedFacts, Owner, StatedFact, digest_of, text_key
from loom_worker.core.values.ids import new_id
from loom_worker.core.values.tenants import LOCAL, Actor, WorkspaceUser
from loom_worker.store.audit import note_act
from loom_worker.store.dialect import upsert
from loom_worker.store.schema import messages, turns
from loom_worker.store.tables import api_keys, fact_sources, facts, forgotten_facts
from loom_worker.store.tenants import of_user

MOST_IDS = 500
COLUMNS = [facts.c[name] for name in Fact.__slots__]


def learn(tx: Connection, session: Any, learned: LearnedFacts, *, now_ms: int) -> None:
    """Take in what the messages of a session, by its row, state.

    What a key of a user says is a fact of that user alone, unless such keys may write what a workspace is told.
    """
    for by, said in _by_key(tx, learned):
        # Who types in a page is a user, whichever key made the page's token.
        by_user = by.user is not None or by.key_id.startswith(TOKEN_PREFIX)
        scope = "user" if learned.scope == "workspace" and by_user and not learned.users_write else learned.scope
        whose = {"lane": session["lane"], "user": session["user"], "by_user": by_user}
        owner = Owner.of(session["workspace"], scope=scope, **whose)
        _take_in(tx, session, owner, said, by=by, now_ms=now_ms)


def _by_key(tx: Connection, learned: LearnedFacts) -> Iterator[tuple[Actor, LearnedFacts]]:
    """What was said with each key."""
    ids = [each.message_id for each in learned.statements] + [each.message_id for each in learned.ended]
    query = select(messages.c.id, turns.c.key_id, api_keys.c.user).join(turns, turns.c.id == messages.c.turn_id)
    query = query.outerjoin(api_keys, api_keys.c.id == turns.c.key_id)
    found = tx.execute(query.where(messages.c.id.in_(ids)))
    keys = {row.id: Actor(row.key_id or LOCAL.key_id, row.user) for row in found}
    for by in dict.fromkeys(keys.get(each, LOCAL) for each in ids):
        statements = tuple(each for each in learned.statements if keys.get(each.message_id, LOCAL) == by)
        ended = tuple(each for each in learned.ended if keys.get(each.message_id, LOCAL) == by)
        yield by, replace(learned, statements=statements, ended=ended)


def _take_in(tx: Connection, session: Any, owner: Owner, learned: LearnedFacts, *, by: Actor, now_ms: int) -> None:
    user = session["user"]
    decided = changes(
        _known(tx, owner, learned, user),
        learned,
        forgotten=_forgotten(tx, owner, learned.statements, user),
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
            add(tx, owner, fact, user=user, lane=session["lane"])
        if owner.is_shared and (fact.id not in known or fact.until_ms is not None):
            action = "fact.closed" if fact.id in known else "fact.learned"
            about = {"user": user, "agent": session["agent"], "session_id": session["id"], "subject": fact.id}
            note_act(tx, action, by, workspace=owner.workspace, at_ms=now_ms, **about)
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
    """Let nothing that the user said before now bring a fact back."""
    key = _forgotten_by(owner, user)
    row = {"workspace": owner.workspace, "owner": key, "digest": digest, "user": user, "until_ms": now_ms}
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
        removed += tx.execute(delete(table).where(*of_user(table, who))).rowcount
    return removed > 0


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


def _known(tx: Connection, owner: Owner, learned: LearnedFacts, user: str | None) -> list[Fact]:
    """The owner's facts of the subjects that are spoken of, and those that are named, but none of another user."""
    subjects = {_subject_key(said.subject) for said in learned.statements}
    named = {fact_id for said in learned.statements for fact_id in said.replaces}
    named |= {end.fact_id for end in learned.ended}
    if not (subjects or named):
        return []
    wanted = or_(facts.c.subject_key.in_(subjects), facts.c.id.in_(named))
    ours = (facts.c.workspace == owner.workspace, facts.c.owner == owner.key, facts.c.user.is_not_distinct_from(user))
    query = select(*COLUMNS).where(*ours, wanted).order_by(facts.c.id)
    return [Fact(**row) for row in tx.execute(query).mappings()]


def _subject_key(subject: str) -> str:
    """As the column holds it: normalizing may make a text longer."""
    return text_key(subject)[:SUBJECT_CHARS]


def _forgotten_by(owner: Owner, user: str | None) -> str:
    """Under which owner it stands: what one user has forgotten, others of the workspace may still say."""
    return f"user:{user}" if owner.is_shared and user else owner.key


def _forgotten(tx: Connection, owner: Owner, statements: Sequence[StatedFact], user: str | None) -> dict[str, int]:
    digests = {digest_of(said.subject, said.relation, said.object) for said in statements}
    table = forgotten_facts
    ours = (table.c.owner.in_({owner.key, _forgotten_by(owner, user)}), table.c.user.is_not_distinct_from(user))
    query = select(table.c.digest, table.c.until_ms).where(table.c.workspace == owner.workspace, *ours)
    return {row.digest: row.until_ms for row in tx.execute(query.where(table.c.digest.in_(digests)))}
