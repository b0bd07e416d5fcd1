"""What a turn did: a step that is written is not done again, and its end is one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Text, bindparam, func, insert, update

from loom_worker import crash_points
from loom_worker.store import rows
from loom_worker.store.claims import fenced_update, final_update
from loom_worker.store.database import Database
from loom_worker.store.schema import calls, messages, outbox, sessions, steps, usage
from loom_worker.values.chat import Usage
from loom_worker.values.deliveries import Delivery
from loom_worker.values.json import Json
from loom_worker.values.sessions import Message
from loom_worker.values.turns import CANCELLED, OPEN_CALL, Call, CancelAction, Claim, Ending, Step

_INSERT_STEPS, _INSERT_CALLS, _INSERT_MESSAGES = insert(steps), insert(calls), insert(messages)
_INSERT_DELIVERY, _INSERT_USAGE = insert(outbox), insert(usage)
_CANCEL_CALLS = (
    update(calls)
    .where(calls.c.turn_id == bindparam("our_id"), calls.c.status.in_(OPEN_CALL))
    .values(status="cancelled", finished_ms=bindparam("now_ms"), content=CANCELLED)
)
_CHARGE = (
    update(sessions)
    .where(sessions.c.lane == bindparam("our_lane"))
    .values(
        usage=bindparam("usage"),
        updated_ms=bindparam("now_ms"),
        rom=func.coalesce(sessions.c.rom, bindparam("sent_rom", type_=Text)),
    )
)


@dataclass(frozen=True, slots=True)
class Final:
    """All that is written when a turn ends."""

    ending: Ending
    progress: Json
    """Columns of the turn: usage, run_ms, patterns, first_token_ms, completed_ms."""
    steps: Sequence[Step] = ()
    calls: Sequence[Call] = ()
    has_calls: bool = True
    """False if the turn never called a tool, so that none can be open."""
    said: Sequence[Message] = ()
    delivery: Delivery | None = None
    model: str = ""
    """The model that answered, for the ledger."""
    rom: str | None = None
    """The system text that was sent; kept if the session has none yet."""
    heard: CancelAction | None = None
    """The client's wish to end the turn that this end takes into account."""


class Journal:
    """Writes of a running turn; each is checked against the fence."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, claim: Claim, new_steps: Sequence[Step], new_calls: Sequence[Call], progress: Json) -> None:
        """Append steps and calls; the count of deaths starts anew, for the turn got on.

        Args:
            progress: columns of the turn that go with it: usage, run_ms, patterns, first_token_ms.

        Raises:
            Fenced: another worker owns the turn; nothing was written.
        """
        with self._database.write() as tx:
            fenced_update(tx, claim, {**progress, "deaths": 0})
            _append(tx, claim, new_steps, new_calls)

    def finish(self, claim: Claim, final: Final) -> None:
        """End the turn: last steps, status, messages, usage and webhook, all or nothing.

        Raises:
            Fenced: another worker owns the turn; nothing was written.
            Overruled: the client wishes it to end otherwise; nothing was written.
            Unavailable: the database refused; there is no answer.
        """
        now_ms = final.progress["completed_ms"]
        with self._database.write(durable=True) as tx:
            columns = {**final.progress, **_ended(final.ending), "held_by": None, "parked_until_ms": None}
            final_update(tx, claim, columns, heard=final.heard)
            _append(tx, claim, final.steps, final.calls)
            if final.has_calls:
                tx.execute(_CANCEL_CALLS, {"our_id": claim.turn.id, "now_ms": now_ms})
            if final.said:
                said = [rows.message_columns(message, lane=claim.turn.lane) for message in final.said]
                tx.execute(_INSERT_MESSAGES, said)
            _charge(tx, claim, final, now_ms=now_ms)
            if final.delivery is not None:
                tx.execute(_INSERT_DELIVERY, {name: getattr(final.delivery, name) for name in Delivery.__slots__})
            crash_points.reached("turn.committing")


def _ended(ending: Ending) -> dict[str, Any]:
    return {
        "status": ending.status,
        "reason": ending.reason,
        "output_text": ending.output_text,
        "error": ending.error,
    }


def _append(tx: Connection, claim: Claim, new_steps: Sequence[Step], new_calls: Sequence[Call]) -> None:
    turn_id = claim.turn.id
    if new_steps:
        rows_of_steps = [
            {"turn_id": turn_id, "n": s.n, "kind": s.kind, "version": s.version, "payload": s.payload}
            for s in new_steps
        ]
        tx.execute(_INSERT_STEPS, rows_of_steps)
    if new_calls:
        rows_of_calls = [{"turn_id": turn_id, **{name: getattr(c, name) for name in Call.__slots__}} for c in new_calls]
        tx.execute(_INSERT_CALLS, rows_of_calls)


def _charge(tx: Connection, claim: Claim, final: Final, *, now_ms: int) -> None:
    turn = claim.turn
    spent = Usage.from_json(final.progress["usage"])
    total = (claim.spent + spent).as_json()
    tx.execute(_CHARGE, {"our_lane": turn.lane, "usage": total, "now_ms": now_ms, "sent_rom": final.rom})
    if not spent.llm_calls:
        return
    row = {
        "workspace": turn.workspace,
        "session_id": turn.session_id,
        "turn_id": turn.id,
        "agent": turn.agent,
        "model": final.model,
        "at_ms": now_ms,
    }
    tx.execute(_INSERT_USAGE, {**row, **spent.as_json()})
