"""What is known of schedules, and the claim of a due time, which commits with the run or turn that it begins."""

from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select, update

from loom_worker.core import crash_points
from loom_worker.core.errors import Conflict
from loom_worker.core.values.schedules import Firing, Schedule, ScheduleState, plan_key
from loom_worker.core.values.tenants import LOCAL, Actor
from loom_worker.store.audit import note_act
from loom_worker.store.database import Database
from loom_worker.store.dialect import upsert
from loom_worker.store.engines.engine import Lock
from loom_worker.store.schema import turns
from loom_worker.store.tables import schedules, workflow_runs

TAKEN = "schedule-taken"
"""Another process has dealt with this due time."""

_RUN_STATUS = select(workflow_runs.c.status).where(workflow_runs.c.id == schedules.c.last_id).scalar_subquery()
_TURN_STATUS = select(turns.c.status).where(turns.c.id == schedules.c.last_id).scalar_subquery()
_ALL = select(schedules, func.coalesce(_RUN_STATUS, _TURN_STATUS).label("last_status"))
_FIELDS = tuple(ScheduleState.__slots__)
_MOVE = (
    update(schedules)
    .where(schedules.c.name == bindparam("our_name"), schedules.c.cursor_ms == bindparam("expected"))
    .values(
        cursor_ms=bindparam("due"),
        missed=schedules.c.missed + bindparam("more_missed"),
        skipped=schedules.c.skipped + bindparam("more_skipped"),
    )
)


class Schedules:
    """The table of schedules."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def states(self) -> dict[str, ScheduleState]:
        """All that is known, by the schedule's name; those of files that are gone among them."""
        with self._database.read() as tx:
            return {row["name"]: _state(row) for row in tx.execute(_ALL).mappings()}

    def restart(self, schedule: Schedule, state: ScheduleState | None, *, now_ms: int) -> None:
        """Let a plan count from now on, unless another process has changed the schedule meanwhile."""
        known = state or ScheduleState(schedule.name)
        values = {"plan": plan_key(schedule, known), "cursor_ms": now_ms}
        with self._database.write(lock=Lock.named("schedule", schedule.name)) as tx:
            if state is None:
                tx.execute(upsert(schedules).values(name=schedule.name, **values).on_conflict_do_nothing())
                return
            # Only what was looked at: a plan that another process has begun, and the time that it took, stay.
            ours = (schedules.c.name == state.name, schedules.c.plan == state.plan)
            tx.execute(update(schedules).where(*ours, schedules.c.cursor_ms == state.cursor_ms).values(**values))

    def passed(self, firing: Firing, *, is_skipped: bool) -> bool:
        """Note that due times are over without a start; False if another process has dealt with them."""
        with self._database.write(durable=True, lock=Lock.named("schedule", firing.name)) as tx:
            return _moved(tx, firing, skipped=int(is_skipped))

    def refused(self, firing: Firing, error: str, *, now_ms: int) -> bool:
        """Note that a due time is over because its start was refused; False if another process has dealt with it."""
        with self._database.write(durable=True, lock=Lock.named("schedule", firing.name)) as tx:
            if not _moved(tx, firing):
                return False
            values = {"error": error, "error_ms": now_ms}
            tx.execute(update(schedules).where(schedules.c.name == firing.name).values(**values))
            return True

    def enable(self, schedule: Schedule, enabled: bool | None, *, now_ms: int, by: Actor = LOCAL) -> None:
        """Keep an operator's word; None: the file's counts again. What lay before it is not made up for."""
        with self._database.write(durable=True, lock=Lock.named("schedule", schedule.name)) as tx:
            row = tx.execute(_ALL.where(schedules.c.name == schedule.name)).mappings().first()
            before = ScheduleState(schedule.name) if row is None else _state(row)
            after = ScheduleState(schedule.name, enabled=enabled)
            is_other = row is None or before.is_enabled(schedule) != after.is_enabled(schedule)
            begun = {"plan": plan_key(schedule, after), "cursor_ms": now_ms} if is_other else {}
            if row is None:
                tx.execute(insert(schedules).values(name=schedule.name, enabled=enabled, **begun))
            else:
                ours = schedules.c.name == schedule.name
                tx.execute(update(schedules).where(ours).values(enabled=enabled, **begun))
            outcome = {None: "cleared", True: "enabled", False: "disabled"}[enabled]
            _note(tx, schedule, "schedule.changed", outcome, now_ms=now_ms, by=by)

    def note_start(self, schedule: Schedule, *, now_ms: int, by: Actor) -> None:
        """Add a start beside the plan to the audit."""
        with self._database.write(durable=True, lock=Lock.named("schedule", schedule.name)) as tx:
            _note(tx, schedule, "schedule.started", "started", now_ms=now_ms, by=by)


def claim(tx: Connection, firing: Firing, begun_id: str) -> None:
    """Take a due time, in the transaction that inserts what it begins.

    Raises:
        Conflict: another process has taken it (slug ``schedule-taken``); the transaction must not commit.
    """
    crash_points.reached("schedule.claiming")
    if firing.expected_ms is not None and not _moved(tx, firing):
        raise Conflict(f"The time of the schedule {firing.name!r} was taken by another process.", TAKEN)
    values: dict[str, Any] = {"last_id": begun_id, "error": None, "error_ms": None}
    if firing.expected_ms is not None:
        values["last_ms"] = firing.due_ms
    # A start beside the plan may be the first that is known of the schedule; its plan counts from the next look on.
    new = upsert(schedules).values(name=firing.name, plan="", cursor_ms=firing.due_ms, **values)
    tx.execute(new.on_conflict_do_update(index_elements=["name"], set_=values))
    crash_points.reached("schedule.claimed")


def _moved(tx: Connection, firing: Firing, *, skipped: int = 0) -> bool:
    moved = {
        "our_name": firing.name,
        "expected": firing.expected_ms,
        "due": firing.due_ms,
        "more_missed": firing.missed,
        "more_skipped": skipped,
    }
    return tx.execute(_MOVE, moved).rowcount == 1


def _note(tx: Connection, schedule: Schedule, action: str, outcome: str, *, now_ms: int, by: Actor) -> None:
    decision = {"kind": "schedule", "name": schedule.name, "outcome": outcome}
    about = {"subject": schedule.name, "decisions": [decision]}
    note_act(tx, action, by, workspace=schedule.workspace, at_ms=now_ms, **about)


def _state(row: Any) -> ScheduleState:
    return ScheduleState(**{name: row[name] for name in _FIELDS})
