"""Messages between agents, as turns send them, take them and wait for them; all through the real store."""

from typing import Any

from loom_worker.core.settings import LimitSettings
from loom_worker.core.values.agent_messages import TTL_MS, AgentMessage
from loom_worker.core.values.calls import Call
from loom_worker.core.values.ids import new_id, now_ms
from loom_worker.core.values.turns import Claim, Turn
from loom_worker.store.agent_messages import AgentMessages
from loom_worker.store.children import Children
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.journal import Entries, Journal

ERROR_DAYS_MS = 30 * 24 * 3600 * 1000


def message_of(turn: Turn, body: str, *, to: str, at_ms: int | None = None, **fields: Any) -> AgentMessage:
    """What a turn would send."""
    created_ms = now_ms() if at_ms is None else at_ms
    return AgentMessage(
        **{
            "id": new_id("amsg_"),
            "workspace": turn.workspace,
            "to_agent": to,
            "from_agent": turn.agent,
            "from_session": turn.session_id,
            "from_turn_id": turn.id,
            "kind": "message",
            "body": body,
            "created_ms": created_ms,
            "expires_ms": created_ms + TTL_MS,
            **fields,
        }
    )


def sent(database: Database, turn: Turn, body: str = "Look here.", *, to: str = "helper", **fields: Any) -> str:
    """A message that a turn sends; its id."""
    message = message_of(turn, body, to=to, **fields)
    AgentMessages(database).send(message, lane=turn.lane)
    return message.id


def dead(database: Database, turn: Turn, body: str = "Look here.", *, to: str = "helper", **fields: Any) -> str:
    """A message that nobody took in time; its id."""
    message = message_of(turn, body, to=to, **fields)
    AgentMessages(database).send(message, lane=turn.lane)
    settle(database, at_ms=message.expires_ms)
    return message.id


def settle(database: Database, *, at_ms: int) -> int:
    """What the sweep does at that moment."""
    return AgentMessages(database).settle(now_ms=at_ms, kept_since_ms=at_ms - ERROR_DAYS_MS)


def taken(database: Database, claim: Claim, *, at_ms: int) -> tuple[AgentMessage, ...]:
    """What a turn takes from the queue that it shares with its whole workspace."""
    call = Call("toolu_take", "receive_messages", {}, 0, 1, awaits="messages")
    return AgentMessages(database).take(claim, call, scope="", limit=20, now_ms=at_ms)


def wait_for_messages(database: Database, lane: str, *, at_ms: int) -> Turn:
    """Let the next turn of a lane wait for messages, without an owner."""
    claims = Claims(database)
    claim = claims.claim(lane, worker="w1", now_ms=at_ms)
    assert isinstance(claim, Claim), claim
    call = Call("toolu_wait", "receive_messages", {"wait_s": 60}, 0, 1, awaits="messages")
    Journal(database).save(claim, Entries([], [call]), {})
    Children(database, LimitSettings()).wait_for_messages(claim, call, until_ms=at_ms + 60_000, now_ms=at_ms)
    claims.park(claim, until_ms=at_ms + 30_000, run_ms=0)
    return claim.turn
