"""Runs of workflows as readers see them: one, many, their events, and which are due."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, case, func, literal, or_, select

from loom_worker.core.values.chat import Usage
from loom_worker.core.values.cutting import FIELD_BYTES
from loom_worker.core.values.notifications import Event
from loom_worker.core.values.pages import Page
from loom_worker.core.values.runs import Run, RunStage
from loom_worker.core.values.tenants import Tenant
from loom_worker.core.values.traces import TurnTrace
from loom_worker.core.values.webhooks import Webhook
from loom_worker.store.database import Database
from loom_worker.store.schema import turns
from loom_worker.store.tables import run_events, run_stages, workflow_runs
from loom_worker.store.tenants import checked_cursor, newest_first, of_user, paged, the_row

TRACED_TURNS = 500
"""Turns of a run, in its trace."""
_CHILDREN = select(turns.c.id).where(turns.c.parent_turn_id.in_(bindparam("ids", expanding=True))).order_by(turns.c.id)
_STAGES = select(run_stages).where(run_stages.c.run_id == bindparam("our_id")).order_by(run_stages.c.n)
_ASKS_PERSON = (
    select(run_stages.c.n)
    .outerjoin(turns, turns.c.id == run_stages.c.turn_id)
    .where(run_stages.c.run_id == workflow_runs.c.id, run_stages.c.completed_ms.is_(None))
    .where(or_(run_stages.c.status == "requires_action", turns.c.status == "requires_action"))
)
_STATUS = case(
    (and_(workflow_runs.c.completed_ms.is_(None), _ASKS_PERSON.exists()), "requires_action"),
    else_=workflow_runs.c.status,
)
"""A run needs a person as soon as one of its stages does, or a tool call in one of their turns."""
_STATUSES = select(workflow_runs.c.id, _STATUS.label("status")).where(
    workflow_runs.c.id.in_(bindparam("ids", expanding=True))
)
_EVENTS = (
    select(run_events)
    .where(run_events.c.run_id == bindparam("our_id"), run_events.c.n > bindparam("after"))
    .order_by(run_events.c.n)
    .limit(bindparam("most"))
)
_DUE = (
    select(workflow_runs.c.id)
    .where(workflow_runs.c.due_ms.is_not(None), workflow_runs.c.due_ms <= bindparam("now_ms"))
    .order_by(workflow_runs.c.due_ms)
    .limit(bindparam("most"))
)
_LISTED_CHARS = FIELD_BYTES + 1
"""Characters of an output in a list: one more than is shown, to see whether it was cut."""
_STAGE_FIELDS = tuple(name for name in RunStage.__slots__ if name != "usage")
_RUN_FIELDS = tuple(name for name in Run.__slots__ if name not in ("stages", "webhook", "trace", "is_cut"))


class Runs:
    """The tables of runs, for reading."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, tenant: Tenant, run_id: str) -> Run:
        """A run with its stages; of those that are under way, with what their turns say."""
        with self._database.read() as tx:
            row = run_row(tx, tenant, run_id)
            return run_of(row, with_turns(tx, read_stages(tx, run_id)))

    def turns_of(self, run: Run) -> tuple[str, ...]:
        """Ids of the turns of a run, each with those of the agents it asked; without those an earlier run has paid."""
        found = dict.fromkeys(each.turn_id for each in run.stages if each.turn_id and not each.is_reused)
        parents = list(found)
        with self._database.read() as tx:
            while parents and len(found) < TRACED_TURNS:
                parents = list(tx.execute(_CHILDREN, {"ids": parents}).scalars())
                found |= dict.fromkeys(parents)
        return tuple(found)[:TRACED_TURNS]

    def has_ended(self, tenant: Tenant, run_id: str) -> bool:
        """Whether a run has ended; nothing else of it is read."""
        with self._database.read() as tx:
            return run_row(tx, tenant, run_id, workflow_runs.c.completed_ms)["completed_ms"] is not None

    def page(self, tenant: Tenant, where: Mapping[str, str], *, limit: int, after: str | None) -> Page[Run]:
        """List runs, the newest first; ``after`` is the id of the last one seen.

        Args:
            where: any of workflow and status, each a value to match.
        """
        columns = [_shortened(each) for each in workflow_runs.c]
        query = newest_first(
            select(*columns).where(*of_user(workflow_runs, tenant)), workflow_runs.c.id, checked_cursor(after, "run_")
        )
        for name, value in where.items():
            query = query.where((_STATUS if name == "status" else workflow_runs.c[name]) == value)
        with self._database.read() as tx:
            return paged(tx, query, lambda row: run_of(row, with_turns(tx, _listed_stages(tx, row["id"]))), limit=limit)

    def of(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Statuses by id, of runs that whoever asks has been found to be allowed to see; deleted ones are missing."""
        with self._database.read() as tx:
            return {row.id: row.status for row in tx.execute(_STATUSES, {"ids": list(run_ids)})}

    def events(self, run_id: str, *, after: int, limit: int) -> tuple[Event, ...]:
        """A run's events behind an id; the final one without its data, which is the run itself."""
        with self._database.read() as tx:
            found = tx.execute(_EVENTS, {"our_id": run_id, "after": after, "most": limit})
            return tuple(Event(row.n, row.type, row.data) for row in found)

    def due(self, *, now_ms: int, limit: int) -> tuple[str, ...]:
        with self._database.read() as tx:
            return tuple(tx.execute(_DUE, {"now_ms": now_ms, "most": limit}).scalars())

    def counts(self) -> dict[str, int]:
        """Unfinished runs of all workspaces, by workflow."""
        is_open = workflow_runs.c.completed_ms.is_(None)
        query = select(workflow_runs.c.workflow, func.count()).where(is_open).group_by(workflow_runs.c.workflow)
        with self._database.read() as tx:
            return {row[0]: row[1] for row in tx.execute(query)}


def run_row(tx: Connection, tenant: Tenant, run_id: str, *columns: ColumnElement[Any]) -> Any:
    """The row of a run.

    Args:
        columns: that are wanted; none: all.

    Raises:
        NotFound: the tenant has no such run.
    """
    query = select(*columns or workflow_runs.c).where(workflow_runs.c.id == run_id, *of_user(workflow_runs, tenant))
    return the_row(tx, query, f"run {run_id!r}")


def read_stages(tx: Connection, run_id: str) -> tuple[RunStage, ...]:
    """The journal of a run, in the order in which its entries began."""
    return tuple(map(stage_of, tx.execute(_STAGES, {"our_id": run_id}).mappings()))


def _listed_stages(tx: Connection, run_id: str) -> tuple[RunStage, ...]:
    columns = [_shortened(each) for each in run_stages.c]
    query = select(*columns).where(run_stages.c.run_id == run_id).order_by(run_stages.c.n)
    return tuple(map(stage_of, tx.execute(query).mappings()))


def _shortened(column: ColumnElement[Any]) -> ColumnElement[Any]:
    if column.name == "spec":
        return literal(None).label("spec")
    is_long = column.name in ("output_text", "prompt", "merged_output")
    return func.substr(column, 1, _LISTED_CHARS).label(column.name) if is_long else column


def stage_of(row: Mapping[Any, Any]) -> RunStage:
    """A row of ``run_stages``."""
    return RunStage(**{name: row[name] for name in _STAGE_FIELDS}, usage=Usage.from_json(row["usage"]))


def run_of(row: Mapping[Any, Any], stages: Sequence[RunStage]) -> Run:
    """A row of ``workflow_runs`` with its stages; it needs a person as soon as one of these does."""
    needs_person = row["completed_ms"] is None and any(stage.status == "requires_action" for stage in stages)
    return Run(
        **{name: row[name] for name in _RUN_FIELDS if name != "status"},
        status="requires_action" if needs_person else row["status"],
        stages=tuple(stages),
        webhook=Webhook(row["webhook_url"], row["webhook_secret"]) if row["webhook_url"] else None,
        trace=TurnTrace.of(row["trace"]),
    )


def with_turns(tx: Connection, stages: Sequence[RunStage]) -> tuple[RunStage, ...]:
    """Stages whose turns are under way, with the status and the usage of these."""
    ids = [stage.turn_id for stage in stages if stage.is_open and stage.turn_id]
    if not ids:
        return tuple(stages)
    query = select(turns.c.id, turns.c.status, turns.c.usage, turns.c.completed_ms).where(turns.c.id.in_(ids))
    known = {row.id: row for row in tx.execute(query)}
    return tuple(
        replace(
            stage,
            # One that has ended is under way until its end is in the journal.
            status=known[stage.turn_id].status if known[stage.turn_id].completed_ms is None else "in_progress",
            usage=Usage.from_json(known[stage.turn_id].usage),
        )
        if stage.is_open and stage.turn_id in known
        else stage
        for stage in stages
    )
