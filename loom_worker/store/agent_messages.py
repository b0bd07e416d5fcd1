"""Messages between agents: a queue for each agent, whose messages are its own until a turn has dealt with them.

A message is taken by a turn. When that turn is completed, the message is done; when it fails, is cancelled or deleted,
the message goes back to its place in the queue. What nobody deals with is dead, and can be queued again by an operator.
"""

from collections.abc import Collection, Sequence
from typing import Any, get_args

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)

from loom_worker.core.errors import Conflict, QueueFull
from loom_worker.core.values.agent_messages import (
    EXPIRED,
    MOST_ATTEMPTS,
    MOST_QUEUED,
    TRIED,
    TTL_MS,
    AgentMessage,
    MessageStatus,
    scope_of,
)
from loom_worker.core.values.calls import OPEN_CALL, Call
from loom_worker.core.values.json import Json
from loom_worker.core.values.pages import Page, no_cursor
from loom_worker.core.values.tenants import LOCAL, Actor, Tenant
from loom_worker.core.values.turns import Claim
from loom_worker.store.audit import note_act
from loom_worker.store.blobs import grant, readable
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.fence import check_fence
from loom_worker.store.schema import calls, sessions, turns, unfinished
from loom_worker.store.tables import agent_message_refs, agent_messages
from loom_worker.store.tenants import newest_first, of_user, paged, the_row

_FIELDS = tuple(name for name in AgentMessage.__slots__ if name != "is_cut")
_SENDER = (
    select(turns.c.run_id, sessions.c.user)
    .join(sessions, sessions.c.lane == turns.c.lane)
    .where(turns.c.id == bindparam("of_turn"))
)
_QUEUED = (agent_messages.c.ended_ms.is_(None), agent_messages.c.status == "queued")
_TAKEN = (agent_messages.c.ended_ms.is_(None), agent_messages.c.status == "taken")
_COMPLETED = exists().where(turns.c.id == agent_messages.c.turn_id, turns.c.status == "completed")
_NEVER_READ = exists().where(  # the call was given up after it had taken them, and before it had them
    *(calls.c.turn_id == agent_messages.c.turn_id, calls.c.id == agent_messages.c.call_id),
    calls.c.status.in_((*OPEN_CALL, "cancelled")),
)
_GOES_ON = exists().where(turns.c.id == agent_messages.c.turn_id, unfinished())
_UNREAD = exists().where(
    *(agent_messages.c.turn_id == turns.c.id, *_TAKEN, calls.c.turn_id == turns.c.id),
    *(calls.c.id == agent_messages.c.call_id, calls.c.status.in_(OPEN_CALL)),
)
_holder = turns.alias("holder")
SETTLED = 500
"""Messages that one look changes or removes."""


def has_messages() -> ColumnElement[bool]:
    """True of a turn whose agent has messages that nobody deals with; for statements on ``turns``."""
    user = select(sessions.c.user).where(sessions.c.lane == turns.c.lane).correlate(turns).scalar_subquery()
    scope = case(
        (turns.c.run_id.is_not(None), literal("run:").concat(turns.c.run_id)),
        (user.is_not(None), literal("user:").concat(user)),
        else_="",
    )
    its_turn = select(_holder.c.id).where(_holder.c.id == agent_messages.c.turn_id)
    has_failed = ~its_turn.where(or_(_holder.c.completed_ms.is_(None), _holder.c.status == "completed")).exists()
    given_back = and_(agent_messages.c.status == "taken", agent_messages.c.attempts < MOST_ATTEMPTS, has_failed)
    found = select(agent_messages.c.id).where(
        agent_messages.c.workspace == turns.c.workspace,
        agent_messages.c.to_agent == turns.c.agent,
        agent_messages.c.scope == scope,
        agent_messages.c.ended_ms.is_(None),
        or_(agent_messages.c.status == "queued", given_back),
    )
    return found.correlate(turns).exists()


class AgentMessages:
    """The queues of all agents."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def send(self, message: AgentMessage, refs: Collection[str] = (), *, lane: str) -> tuple[str, ...]:
        """Queue a message for those who share the sender's queues; one that is there already stays as it is.

        Args:
            message: without its scope and user, which are those of the turn that sends it.
            refs: large results that it names; those that its sender can read are passed on with it.
            lane: of the sender's session.

        Returns:
            Lanes whose turns wait for it.

        Raises:
            QueueFull: the agent has all the messages it may have.
        """
        with self._database.write(durable=True, lock=WHOLE) as tx:
            sender = tx.execute(_SENDER, {"of_turn": message.from_turn_id}).one()
            scope = scope_of(sender.run_id, sender.user)
            queue = _of_queue(message.workspace, message.to_agent, scope)
            known = select(agent_messages.c.id).where(agent_messages.c.id == message.id)
            if tx.execute(known).first() is None:
                waiting = tx.execute(select(func.count()).select_from(agent_messages).where(queue, *_QUEUED)).scalar()
                if (waiting or 0) >= MOST_QUEUED:
                    raise QueueFull(f"{waiting} messages wait for {message.to_agent!r}, the most that may.", 60.0)
                values = {name: getattr(message, name) for name in _FIELDS if name != "n"}
                tx.execute(insert(agent_messages), values | {"scope": scope, "user": sender.user})
                kept = readable(tx, {*refs, *([message.ref] if message.ref else [])}, lane)
                for ref in sorted(kept):
                    tx.execute(insert(agent_message_refs), {"message_id": message.id, "ref": ref})
            return _awaiting_lanes(tx, message)

    def are_there(self, turn_id: str) -> bool:
        """True if a turn's agent has messages that nobody has taken, or the turn some that its call does not have."""
        with self._database.read() as tx:
            found = select(turns.c.id).where(turns.c.id == turn_id, or_(has_messages(), _UNREAD))
            return tx.execute(found).first() is not None

    def take(self, claim: Claim, call: Call, *, scope: str, limit: int, now_ms: int) -> tuple[AgentMessage, ...]:
        """Take the next messages of a turn's agent for one of its calls; the same ones if it is asked again.

        Raises:
            Fenced: another worker owns the turn; nothing was taken.
        """
        turn = claim.turn
        queue = _of_queue(turn.workspace, turn.agent, scope)
        mine = and_(agent_messages.c.turn_id == turn.id, agent_messages.c.call_id == call.id, *_TAKEN)
        with self._database.write(durable=True, lock=WHOLE) as tx:
            check_fence(tx, claim)
            if not (taken := _all(tx, mine)):
                _settle(tx, queue, now_ms=now_ms)
                wanted = _all(tx, and_(queue, *_QUEUED), limit=limit)
                ids = [message.id for message in wanted]
                changes = {"status": "taken", "turn_id": turn.id, "call_id": call.id}
                attempts = agent_messages.c.attempts + 1
                tx.execute(
                    update(agent_messages).where(agent_messages.c.id.in_(ids)).values(**changes, attempts=attempts)
                )
                taken = _all(tx, mine)
            _grant(tx, [message.id for message in taken], turn.lane)
            return taken

    def settle(self, *, now_ms: int, kept_since_ms: int) -> int:
        """Enter what became of messages whose turns have ended, and of those nobody took; remove old ones.

        Args:
            kept_since_ms: what ended before is removed.

        Returns:
            How many were changed or removed.
        """
        old = select(agent_messages.c.id).where(agent_messages.c.ended_ms < kept_since_ms).limit(SETTLED)
        with self._database.read() as tx:  # asked every second, and seldom anything to write
            if not _is_due(tx, now_ms) and tx.execute(old.limit(1)).first() is None:
                return 0
        with self._database.write(lock=WHOLE) as tx:
            removed = tx.execute(delete(agent_messages).where(agent_messages.c.id.in_(old))).rowcount
            return _settle(tx, None, now_ms=now_ms) + removed

    def get(self, tenant: Tenant, message_id: str) -> AgentMessage:
        """A message.

        Raises:
            NotFound: the tenant has no such message.
        """
        with self._database.read() as tx:
            return _found(tx, tenant, message_id)

    def page(
        self, tenant: Tenant, *, agent: str | None, status: str | None, limit: int, after: str | None
    ) -> Page[AgentMessage]:
        """List messages, the newest first.

        Args:
            agent: that they are for; None: for any.
            status: a MessageStatus; None: any.
            after: a page's ``next``.

        Raises:
            Invalid: ``after`` is none.
        """
        query = select(agent_messages).where(*of_user(agent_messages, tenant))
        for column, wanted in ((agent_messages.c.to_agent, agent), (agent_messages.c.status, status)):
            query = query if wanted is None else query.where(column == wanted)
        if after is not None and not (after.isascii() and after.isdecimal() and len(after) < 16):
            raise no_cursor(after)
        query = newest_first(query, agent_messages.c.n, None if after is None else int(after))
        with self._database.read() as tx:
            return paged(tx, query, _message, limit=limit, cursor=lambda message: str(message.n))

    def replay(
        self, tenant: Tenant, message_id: str, *, now_ms: int, by: Actor = LOCAL
    ) -> tuple[AgentMessage, tuple[str, ...]]:
        """Queue a dead message again, at its old place and with its attempts and its time anew.

        Returns:
            The message, and lanes whose turns wait for it.

        Raises:
            NotFound: the tenant has no such message.
            Conflict: it is not dead (slug ``not-replayable``); nothing was changed.
        """
        anew = {"status": "queued", "attempts": 0, "reason": None, "ended_ms": None, "expires_ms": now_ms + TTL_MS}
        with self._database.write(durable=True, lock=WHOLE) as tx:
            message = _found(tx, tenant, message_id)
            if message.status != "dead":
                raise Conflict(f"Message {message_id} is not dead, it is {message.status}.", "not-replayable")
            tx.execute(update(agent_messages).where(agent_messages.c.id == message_id).values(**anew))
            about = {"session_id": message.from_session, "turn_id": message.from_turn_id, "subject": message.id}
            note_act(tx, "message.replayed", by, workspace=message.workspace, at_ms=now_ms, **about)
            return _found(tx, tenant, message_id), _awaiting_lanes(tx, message)

    def counts(self) -> Json:
        """Messages by state, for ``/metrics``; 0 where there are none."""
        query = select(agent_messages.c.status, func.count()).group_by(agent_messages.c.status)
        with self._database.read() as tx:
            found = {str(status): count for status, count in tx.execute(query)}
        return dict.fromkeys(get_args(MessageStatus), 0) | found


def remove_of(tx: Connection, workspace: str, session_id: str, lane: str, *, now_ms: int) -> None:
    """Remove the messages that a session has sent; those that its completed turns have read are done.

    Once these turns are gone, nothing says any more what became of the messages.
    """
    completed = select(turns.c.id).where(turns.c.lane == lane, turns.c.status == "completed")
    read = (agent_messages.c.turn_id.in_(completed), *_TAKEN)
    tx.execute(update(agent_messages).where(*read).values(status="done", ended_ms=now_ms))
    sent = (agent_messages.c.workspace == workspace, agent_messages.c.from_session == session_id)
    tx.execute(delete(agent_messages).where(*sent))


def _awaiting_lanes(tx: Connection, message: AgentMessage) -> tuple[str, ...]:
    """Lanes whose turns wait, without an owner, for messages of the queue in which this one is."""
    found = select(turns.c.lane).join(calls, calls.c.turn_id == turns.c.id)
    awaiting = and_(calls.c.awaits == "messages", calls.c.status == "running", has_messages())
    ours = and_(turns.c.workspace == message.workspace, turns.c.agent == message.to_agent)
    return tuple(tx.execute(found.where(awaiting, ours, turns.c.held_by.is_(None)).distinct()).scalars())


def _settle(tx: Connection, queue: ColumnElement[bool] | None, *, now_ms: int) -> int:
    """Messages of one queue, or of all."""
    ours = [] if queue is None else [queue]
    done = {"status": "done", "ended_ms": now_ms}
    dead = {"status": "dead", "ended_ms": now_ms}
    changes: Sequence[tuple[ColumnElement[bool], dict[str, Any]]] = (
        (and_(*_TAKEN, _COMPLETED, ~_NEVER_READ), done),
        (and_(*_TAKEN, ~_GOES_ON, agent_messages.c.attempts >= MOST_ATTEMPTS), dead | {"reason": TRIED}),
        (and_(*_TAKEN, ~_GOES_ON), {"status": "queued"}),
        (and_(*_QUEUED, agent_messages.c.expires_ms <= now_ms), dead | {"reason": EXPIRED}),
    )
    return sum(
        tx.execute(update(agent_messages).where(*ours, which).values(**values)).rowcount for which, values in changes
    )


def _is_due(tx: Connection, now_ms: int) -> bool:
    due = or_(and_(*_TAKEN, ~_GOES_ON), and_(*_QUEUED, agent_messages.c.expires_ms <= now_ms))
    return tx.execute(select(agent_messages.c.id).where(due).limit(1)).first() is not None


def _grant(tx: Connection, ids: Sequence[str], lane: str) -> None:
    """Let a session read what messages pass on."""
    refs = tx.execute(select(agent_message_refs.c.ref).where(agent_message_refs.c.message_id.in_(ids))).scalars()
    grant(tx, set(refs), lane)


def _of_queue(workspace: str, agent: str, scope: str) -> ColumnElement[bool]:
    return and_(
        agent_messages.c.workspace == workspace, agent_messages.c.to_agent == agent, agent_messages.c.scope == scope
    )


def _all(tx: Connection, which: ColumnElement[bool], *, limit: int = SETTLED) -> tuple[AgentMessage, ...]:
    query = select(agent_messages).where(which).order_by(agent_messages.c.n).limit(limit)
    return tuple(_message(row) for row in tx.execute(query).mappings())


def _found(tx: Connection, tenant: Tenant, message_id: str) -> AgentMessage:
    ours = select(agent_messages).where(agent_messages.c.id == message_id, *of_user(agent_messages, tenant))
    return _message(the_row(tx, ours, f"message {message_id!r}"))


def _message(row: Any) -> AgentMessage:
    return AgentMessage(**{name: row[name] for name in _FIELDS})
