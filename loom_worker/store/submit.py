"""A turn is accepted: its row is committed before anything is sent."""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any, Protocol

from sqlalchemy import Connection, bindparam, update

from loom_worker.core.errors import BudgetSpent, Conflict, Conflicted, Flaw, Forbidden, Invalid, QueueFull
from loom_worker.core.settings import LimitSettings
from loom_worker.core.values.budgets import Payer, has_usd
from loom_worker.core.values.channels import Channel
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.ids import new_id, now_us
from loom_worker.core.values.json import Json
from loom_worker.core.values.media import InputPart
from loom_worker.core.values.sessions import DEFAULT_AGENT, NewSession
from loom_worker.core.values.tenants import Tenant, session_of, workspace_of
from loom_worker.core.values.turns import NewTurn, Retry, Turn
from loom_worker.core.values.workspaces import Rules
from loom_worker.store import rows
from loom_worker.store import turn_statements as statements
from loom_worker.store.budgets import check_left
from loom_worker.store.cancel import overrule
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE, Lock
from loom_worker.store.files import take
from loom_worker.store.pairings import asking_user, with_user
from loom_worker.store.prepared import PendingRow
from loom_worker.store.schedules import claim
from loom_worker.store.schema import sessions, turns
from loom_worker.store.sessions import found, found_or_added
from loom_worker.store.turns import read_turn, turn_row

DISABLED = "workspace-disabled"
"""The problem of a request that would begin something in a workspace that is disabled."""

_FREE_KEY = update(turns).where(turns.c.id == bindparam("our_id")).values(idempotency_key=None)
_SET_AGENT = update(sessions).where(sessions.c.lane == bindparam("our_lane")).values(agent=bindparam("chosen"))


class AgentTerms(Protocol):
    """What agents may spend, and whether their calls can be paid for (``service/allowances.py``: Terms)."""

    def budget(self, agent: str) -> Json | None:
        """What the agent's file says that all its sessions may spend together."""
        ...

    def has_price(self, agent: str, model: str | None, provider: str | None = None) -> bool:
        """Whether the price is known of the model that would answer.

        Args:
            model: the choice of session or workspace; None: the agent's own.
            provider: the workspace's; None: the agent's own.
        """
        ...


class NoTerms:
    """Agents without budgets, and models with prices."""

    def budget(self, agent: str) -> Json | None:
        """See AgentTerms."""
        return None

    def has_price(self, agent: str, model: str | None, provider: str | None = None) -> bool:
        """See AgentTerms."""
        return True


NO_TERMS = NoTerms()


class _Accept(Protocol):
    """Accepts a turn in a transaction."""

    def __call__(self, tx: Connection, *, is_alone: bool) -> tuple[Turn, bool]:
        """Args: is_alone: nobody else writes meanwhile."""
        ...


def submit(
    database: Database,
    limits: LimitSettings,
    session: tuple[Tenant, NewSession],
    new: NewTurn,
    terms: AgentTerms = NO_TERMS,
    *,
    now_ms: int,
) -> tuple[Turn, bool]:
    """Commit a turn at the tail of its session, which is made if it is new.

    Args:
        session: the tenant, and the session as it would be made; its id must be given. Its agent is the one that
            the client named for this turn; None: whichever the session has.

    Returns:
        The turn, and True if it is an earlier one of the same idempotency key.

    Raises:
        NotFound: the session belongs to another user of the workspace.
        Conflict: the session is archived, or busy where the client wants it idle, or another process has taken the
            due time that begins the turn.
        Invalid: the idempotency key came with another request before, the session has another agent or user, or a
            budget is in USD and the model has no price.
        QueueFull: the lane or the workspace holds all the turns it may, or a budget is used up.
        Forbidden: the workspace is disabled, or the turn is asked for another user than the tenant.
        Unavailable: the database did not answer; nothing was accepted.
    """
    tenant, new_session = session
    new = _with_own_key(tenant, new)
    named = new_session.agent
    made = replace(new_session, agent=named or DEFAULT_AGENT)

    def accept(tx: Connection, *, is_alone: bool) -> tuple[Turn, bool]:
        earlier = _earlier(tx, tenant, new)
        if earlier is not None:
            return earlier, True
        workspace = statements.WORKSPACE.ask(tx, {"our_workspace": workspace_of(tenant)})
        user = asking_user(tx, tenant, new)
        owner = found_or_added(tx, tenant, replace(made, user=user), now_ms=now_ms)
        owner = _with_agent(tx, with_user(tx, owner, user), named)
        depth = _Entrance(tx, limits, terms, now_ms, is_alone, workspace).admit(owner, new)
        if new.double_texting in ("interrupt", "rollback"):
            overrule(tx, owner, new.double_texting)
        take(tx, owner, new.parts, most_bytes=limits.workspace_file_bytes)
        turn = insert_turn(tx, limits, owner, new, now_ms=now_ms, position=depth)
        if new.firing is not None:
            claim(tx, new.firing, turn.id)
        return turn, False

    # Files belong to no session, and whoever removes unused ones must not miss that these are used now.
    lock = WHOLE if new.parts else Lock.session(workspace_of(tenant), new_session.id or "")
    return _accepted(database, lock, accept)


def _accepted(database: Database, lock: Lock, accept: "_Accept") -> tuple[Turn, bool]:
    """Under a lock and, where something beside the session was in the way, once more alone."""
    try:
        with database.write(durable=True, lock=lock) as tx:
            return accept(tx, is_alone=lock is WHOLE)
    except Conflicted:
        with database.write(durable=True, lock=WHOLE) as tx:
            return accept(tx, is_alone=True)


def replayed(database: Database, tenant: Tenant, new: NewTurn) -> Turn | None:
    """The earlier turn of the same idempotency key; None if there is none.

    Raises:
        Invalid: the key came with another request before.
    """
    if new.idempotency_key is None:
        return None
    with database.write(lock=Lock.named("idempotency", workspace_of(tenant), new.idempotency_key)) as tx:
        return _earlier(tx, tenant, _with_own_key(tenant, new))


def retry(
    database: Database,
    limits: LimitSettings,
    failed_turn: tuple[Tenant, str],
    asked: Retry,
    terms: AgentTerms = NO_TERMS,
    *,
    now_ms: int,
) -> tuple[Turn, bool]:
    """Commit a new turn with the input of a failed one, at the tail of its session.

    Returns:
        The turn, and True if it is an earlier one of the same idempotency key.

    Raises:
        NotFound: the tenant has no such turn.
        Conflict: the turn did not fail, or its session is archived.
        Invalid, QueueFull, Forbidden, Unavailable: as for submit.
    """
    tenant, turn_id = failed_turn

    def accept(tx: Connection, *, is_alone: bool) -> tuple[Turn, bool]:
        failed = turn_row(tx, tenant, turn_id)
        new = _with_own_key(tenant, _again(failed, asked))
        earlier = _earlier(tx, tenant, new)
        if earlier is not None:
            return earlier, True
        if failed["status"] != "failed":
            raise Conflict(f"Turn {turn_id} did not fail, it is {failed['status']}.", "not-retryable")
        workspace = statements.WORKSPACE.ask(tx, {"our_workspace": workspace_of(tenant)})
        owner = _with_agent(tx, found(tx, tenant, failed["session_id"]), None)
        depth = _Entrance(tx, limits, terms, now_ms, is_alone, workspace).admit(owner, new)
        return insert_turn(tx, limits, owner, new, now_ms=now_ms, position=depth), False

    return _accepted(database, Lock.turn(turn_id), accept)


def _again(failed: Any, asked: Retry) -> NewTurn:
    deadline_ms = failed["deadline_ms"]
    return NewTurn(
        input=failed["input"],
        parts=tuple(map(InputPart.of_row, failed["parts"] or ())),
        webhook=rows.webhook(failed),
        deadline_s=None if deadline_ms is None else (deadline_ms - failed["created_ms"]) / 1000,
        max_attempts=failed["max_attempts"],
        metadata=failed["metadata"],
        budget=failed["budget"],
        idempotency_key=asked.idempotency_key,
        fingerprint=asked.fingerprint,
        traceparent=asked.traceparent,
        trace=asked.trace,
        request_id=asked.request_id,
        retry_of=failed["id"],
        said_ms=failed["said_ms"],
        key_id=asked.key_id,
        channel=Channel(**failed["channel"]) if failed["channel"] else None,
        guard=failed["guard"],
        response_format=None if "by" in (failed["response_format"] or ()) else failed["response_format"],
    )


def own_key(tenant: Tenant, key: str | None) -> str | None:
    """An idempotency key as it is stored: one that no other user, and no other session's token, can send.

    Otherwise a user would meet the turns of others, or at least learn which keys they have used. No client can send
    a key that begins with a control character.
    """
    if isinstance(tenant, str) or key is None:
        return key
    session = session_of(tenant)
    owner = [tenant.user] if session is None else [tenant.user, session]
    return "\x1f" + hashlib.sha256(json.dumps([*owner, key]).encode()).hexdigest()


def _with_own_key(tenant: Tenant, new: NewTurn) -> NewTurn:
    return replace(new, idempotency_key=own_key(tenant, new.idempotency_key))


def _with_agent(tx: Connection, owner: Any, named: str | None) -> Any:
    """The session's row with its agent, which its first turn settles for good.

    Raises:
        Invalid: another agent is named than the session has.
    """
    # One that has chosen tools or data without an agent has chosen those of the default one.
    is_open = not owner["agent"] and owner["tools"] is None and owner["backend"] is None
    agent = (named if is_open else owner["agent"]) or DEFAULT_AGENT
    if named not in (None, agent):
        raise Invalid(
            f"Session {owner['id']!r} belongs to the agent {agent!r} and keeps it; this turn names {named!r}. Leave "
            f"agent out, or send the turn to a session of {named!r}.",
            (Flaw("/agent", f"the session's agent is {agent}"),),
            "agent-mismatch",
        )
    if not owner["agent"]:
        tx.execute(_SET_AGENT, {"our_lane": owner["lane"], "chosen": agent})
    return {**owner, "agent": agent}


def _earlier(tx: Connection, tenant: Tenant, new: NewTurn) -> Turn | None:
    if new.idempotency_key is None:
        return None
    wanted = {"our_workspace": workspace_of(tenant), "key": new.idempotency_key}
    row = statements.BY_IDEMPOTENCY_KEY.first(tx, wanted)
    if row is None:
        return None
    if not row["is_kept"]:
        tx.execute(_FREE_KEY, {"our_id": row["id"]})  # of a deleted session's turn that waits to be removed
        return None
    if row["fingerprint"] != new.fingerprint:
        raise Invalid("This Idempotency-Key came with another request before.", (), "idempotency-mismatch")
    return read_turn(tx, row)


@dataclass(frozen=True, slots=True)
class _Entrance:
    """Where a turn is let in, or refused."""

    tx: Connection
    limits: LimitSettings
    terms: AgentTerms
    now_ms: int
    is_alone: bool
    """Nobody else writes meanwhile."""
    workspace: PendingRow
    """How many unfinished turns it has, and its rules."""

    def admit(self, owner: Any, new: NewTurn) -> int:
        """How many unfinished turns of its session are before it."""
        if owner["status"] == "archived":
            raise Conflict(f"Session {owner['id']!r} is archived; set its status to active first.", "session-archived")
        workspace = self.workspace.one()
        depth, most, rules = owner["queue_depth"], self.limits.workspace_depth, Rules.of(workspace["rules"])
        if rules.is_disabled:
            raise Forbidden(f"The workspace {owner['workspace']!r} is disabled by its administrator.", DISABLED)
        if new.double_texting == "reject" and depth:
            turns_are = "a turn that has" if depth == 1 else f"{depth} turns that have"
            raise Conflict(f"Session {owner['id']!r} has {turns_are} not ended.", "lane-busy")
        if depth >= self.limits.lane_depth:
            raise QueueFull(f"Session {owner['id']!r} has {depth} unfinished turns, the most it may have.", 5.0)
        self._check_budgets(owner, new, rules)
        if workspace["depth"] >= most:
            raise QueueFull(f"The workspace has {most} unfinished turns, the most it may have.", 5.0)
        return int(depth)

    def _check_budgets(self, owner: Any, new: NewTurn, rules: Rules) -> None:
        agent = owner["agent"]
        own = self.terms.budget(agent)
        if has_usd(new.budget, owner["budget"], own, rules.budget) and not self.terms.has_price(
            agent, owner["model"] or rules.model, rules.provider
        ):
            raise Invalid(
                f"A budget in USD applies to this turn, and Loom does not know the price of its model "
                f"({owner['model'] or f'that of the agent {agent!r}'}), of one of its fallbacks, or of its judges': a "
                "budget in tokens can be kept, another model named, or its price added to the file of LOOM_PRICES.",
                (Flaw("/budget/usd", "the model has no known price"),),
                "model-without-price",
            )
        payer = Payer(owner["workspace"], owner["lane"], agent, own)
        limits = payer.limits(turn=None, session=owner["budget"], workspace=rules.budget, now_ms=self.now_ms)
        try:
            check_left(self.tx, limits, now_ms=self.now_ms, is_alone=self.is_alone)
        except BudgetSpent as error:
            raise spent(error, now_ms=self.now_ms) from error


def spent(error: BudgetSpent, *, now_ms: int) -> QueueFull:
    """The refusal of what a budget cannot pay, until it renews; one for good may be raised by tomorrow."""
    wait_s = 86_400.0 if error.renews_ms is None else max((error.renews_ms - now_ms) / 1000, 1.0)
    return QueueFull(str(error), wait_s, "budget-exceeded")


def insert_turn(tx: Connection, limits: LimitSettings, owner: Any, new: NewTurn, *, now_ms: int, position: int) -> Turn:
    """Add a turn at the tail of its session, which has been looked at.

    Args:
        owner: the session's row.
        position: how many unfinished turns of the session are before it.
    """
    row = {
        **dict.fromkeys(turns.c.keys()),
        "id": new_id("turn_"),
        "lane": owner["lane"],
        "session_id": owner["id"],
        "workspace": owner["workspace"],
        "agent": owner["agent"],
        "user": owner["user"],
        "seq": owner["next_seq"],
        "status": "queued",
        "fence": 0,
        "deaths": 0,
        "run_ms": 0,
        "max_attempts": new.max_attempts or limits.max_attempts,
        "input": new.input,
        "parts": [part.as_row() for part in new.parts] or None,
        "usage": Usage().as_json(),
        "patterns": [],
        "metadata": new.metadata,
        "budget": new.budget,
        **rows.webhook_columns(new.webhook),
        "idempotency_key": new.idempotency_key,
        "fingerprint": new.fingerprint,
        "deadline_ms": None if new.deadline_s is None else now_ms + int(new.deadline_s * 1000),
        "traceparent": new.traceparent,
        "request_id": new.request_id,
        "retry_of": new.retry_of,
        "said_ms": new.said_ms,
        "key_id": new.key_id,
        "channel": new.channel.as_json() if new.channel else None,
        "guard": new.guard,
        "response_format": new.response_format,
        "run_id": new.run_id,
        "parent_turn_id": new.ancestors[-1].turn_id if new.ancestors else None,
        "ancestors": [ancestor.as_row() for ancestor in new.ancestors] or None,
        "created_ms": now_ms,
        "trace": replace(new.trace, accepted_us=now_us()).as_json(),
    }
    statements.COUNT_ON.put(tx, {"our_lane": owner["lane"], "now_ms": now_ms})
    statements.INSERT_TURN.put(tx, row)
    return rows.turn(row, position=position)
