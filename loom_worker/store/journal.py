"""What a turn did: a step that is written is not done again, and its end is one transaction."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, insert, select, update

from loom_worker.store import rows
from loom_worker.store.claims import fenced_update
from loom_worker.store.database import Database
from loom_worker.store.schema import calls, messages, outbox, sessions, steps, usage
from loom_worker.values.chat import Usage
from loom_worker.values.deliveries import Delivery
from loom_worker.values.json import Json
from loom_worker.values.sessions import Message
from loom_worker.values.turns import Call, Claim, Ending, Step


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

    def finish(
        self,
        claim: Claim,
        ending: Ending,
        *,
        steps: Sequence[Step],
        progress: Json,
        said: Sequence[Message],
        delivery: Delivery | None,
    ) -> None:
        """End the turn: last steps, status, messages, usage and webhook, all or nothing.

        Raises:
            Fenced: another worker owns the turn; nothing was written.
            Unavailable: the database refused; there is no answer.
        """
        turn = claim.turn
        spent = Usage.from_json(progress["usage"])
        with self._database.write(durable=True) as tx:
            fenced_update(tx, claim, {**progress, **_ended(ending), "held_by": None, "parked_until_ms": None})
            _append(tx, claim, steps, ())
            _close_open_calls(tx, turn.id, now_ms=progress["completed_ms"])
            if said:
                tx.execute(insert(messages), [rows.message_columns(message, lane=turn.lane) for message in said])
            _charge(tx, claim, spent, model=progress_model(steps, claim.steps), now_ms=progress["completed_ms"])
            if delivery is not None:
                tx.execute(insert(outbox), {name: getattr(delivery, name) for name in Delivery.__slots__})


def progress_model(*journals: Sequence[Step]) -> str:
    """The model of the latest reply in the journals, the newest journal first; empty if there was none."""
    for journal in journals:
        for step in reversed(journal):
            if step.kind == "reply":
                return str(step.payload["model"])
    return ""


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
        tx.execute(insert(steps), rows_of_steps)
    if new_calls:
        rows_of_calls = [{"turn_id": turn_id, **{name: getattr(c, name) for name in Call.__slots__}} for c in new_calls]
        tx.execute(insert(calls), rows_of_calls)


def _close_open_calls(tx: Connection, turn_id: str, *, now_ms: int) -> None:
    still_open = (calls.c.turn_id == turn_id, calls.c.status.in_(("pending", "running")))
    tx.execute(update(calls).where(*still_open).values(status="cancelled", finished_ms=now_ms, content="Cancelled."))


def _charge(tx: Connection, claim: Claim, spent: Usage, *, model: str, now_ms: int) -> None:
    turn = claim.turn
    so_far = tx.execute(select(sessions.c.usage).where(sessions.c.lane == turn.lane)).scalar_one()
    total = Usage.from_json(so_far) + spent
    tx.execute(update(sessions).where(sessions.c.lane == turn.lane).values(usage=total.as_json(), updated_ms=now_ms))
    if not spent.llm_calls:
        return
    row = {
        "workspace": turn.workspace,
        "session_id": turn.session_id,
        "turn_id": turn.id,
        "agent": turn.agent,
        "model": model,
        "at_ms": now_ms,
    }
    tx.execute(insert(usage), {**row, **spent.as_json()})
