"""Runs of workflows are accepted, go on, are cancelled, decided on and deleted, each in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select

from loom_worker.core import crash_points
from loom_worker.core.errors import Conflict, Forbidden, Invalid, NotFound, QueueFull
from loom_worker.core.settings import LimitSettings
from loom_worker.core.values.ids import new_id, now_us
from loom_worker.core.values.json import Json
from loom_worker.core.values.runs import NewRun, Run, RunDecision
from loom_worker.core.values.tenants import LOCAL, Actor, Tenant, user_of, workspace_of
from loom_worker.core.values.turns import Turn
from loom_worker.core.values.workflows import Workflow
from loom_worker.core.values.workspaces import Rules
from loom_worker.store import turn_statements as statements
from loom_worker.store.audit import note_act
from loom_worker.store.cancel import interrupt_turn
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.removal import Deleted, remove, with_children
from loom_worker.store.run_steps import RunPlan, RunStep, RunWriter
from loom_worker.store.runs import read_stages, run_of, run_row, with_turns
from loom_worker.store.schedules import claim
from loom_worker.store.sessions import find
from loom_worker.store.submit import DISABLED, own_key
from loom_worker.store.tables import run_stages, workflow_runs

_INSERT, _INSERT_STAGE = insert(workflow_runs), insert(run_stages)
_BY_ID = select(workflow_runs).where(workflow_runs.c.id == bindparam("our_id"))
_BY_KEY = select(workflow_runs).where(
    workflow_runs.c.workspace == bindparam("our_workspace"), workflow_runs.c.idempotency_key == bindparam("key")
)


@dataclass(frozen=True, slots=True)
class CancelledRun:
    """What the cancel request of a run has changed."""

    step: RunStep
    is_new: bool
    """False if it changed nothing: the run has ended, or was cancelled before."""
    turns: tuple[Turn, ...] = ()
    """Turns that have ended by it, or whose workers are to be told."""


class RunJournal:
    """All changes of runs."""

    def __init__(self, database: Database, limits: LimitSettings, plan: RunPlan, *, is_exported: bool = False) -> None:
        """Args: is_exported: traces are exported, those of turns that end here included."""
        self._database = database
        self._limits = limits
        self._plan = plan
        self._is_exported = is_exported

    def accept(self, tenant: Tenant, workflow: Workflow, new: NewRun, *, now_ms: int) -> tuple[RunStep, bool]:
        """Commit a run with the turns of its first stages.

        Returns:
            What was done, and True if it is an earlier run of the same idempotency key.

        Raises:
            Invalid: the idempotency key came with another request before.
            Conflict: another process has taken the due time that begins the run.
            QueueFull: the workspace holds all the turns it may.
            Forbidden: the workspace is disabled, or the run is for another user than the tenant.
        """
        if new.user is not None and user_of(tenant) not in (None, new.user):
            raise Forbidden(f"The key acts for one user, and {new.user!r} is another.", "other-user")
        with self._database.write(durable=True, lock=WHOLE) as tx:
            key = own_key(tenant, new.idempotency_key)
            earlier = _earlier(tx, tenant, key, new.fingerprint)
            if earlier is not None:
                return RunStep(earlier), True
            self._admit(tx, tenant)
            row = _new_row(tenant, workflow, new, key, now_ms=now_ms)
            step = self._begin(tx, row, now_ms=now_ms)
            if not step.begun:  # all that it would ask at first is refused: as a turn, it is not accepted
                message = (step.run.error or {}).get("message")
                raise Invalid(f"The run cannot begin. {message}", (), "guardrail-blocked")
            if new.firing is not None:
                claim(tx, new.firing, step.run.id)
            return step, False

    def retry(self, tenant: Tenant, run_id: str, asked: NewRun, *, now_ms: int) -> tuple[RunStep, bool]:
        """Commit a new run that goes on from where another one failed, with what that one has.

        Args:
            asked: the request; of the run itself it says nothing.

        Returns:
            What was done, and True if it is an earlier run of the same idempotency key.

        Raises:
            NotFound: the tenant has no such run.
            Conflict: it has not ended, or is completed.
            Invalid, QueueFull, Forbidden, Unavailable: as for accept.
        """
        with self._database.write(durable=True, lock=WHOLE) as tx:
            before = dict(run_row(tx, tenant, run_id))
            key = own_key(tenant, asked.idempotency_key)
            earlier = _earlier(tx, tenant, key, asked.fingerprint)
            if earlier is not None:
                return RunStep(earlier), True
            if before["status"] not in ("failed", "incomplete", "cancelled"):
                raise Conflict(f"Run {run_id} did not fail, it is {before['status']}.", "not-retryable")
            self._admit(tx, tenant)
            row = _again(before, asked, key, now_ms=now_ms)
            stages = select(run_stages).where(run_stages.c.run_id == run_id).order_by(run_stages.c.n)
            kept = _kept(before, [dict(each) for each in tx.execute(stages).mappings()], row["id"])
            return self._begin(tx, row, kept, now_ms=now_ms), False

    def replayed(self, tenant: Tenant, new: NewRun) -> Run | None:
        """The earlier run of the same idempotency key; None if there is none.

        Raises:
            Invalid: the key came with another request before.
        """
        with self._database.read() as tx:
            return _earlier(tx, tenant, own_key(tenant, new.idempotency_key), new.fingerprint)

    def advance(self, run_id: str, *, now_ms: int) -> RunStep | None:
        """Enter what has ended of a run, and begin what follows; None if it has ended before, or is gone.

        Not durable by itself: what a power cut takes back is done again, for the turns that have ended say so.
        """
        with self._database.write(lock=WHOLE) as tx:
            writer = RunWriter.of(tx, run_id, self._limits, now_ms=now_ms)
            return None if writer is None else writer.go_on(self._plan)

    def look(self, run_id: str) -> Run | None:
        """A run as it is, whoever's it is; None if it is gone."""
        with self._database.read() as tx:
            row = tx.execute(_BY_ID, {"our_id": run_id}).mappings().first()
            return None if row is None else run_of(row, read_stages(tx, run_id))

    def cancel(self, tenant: Tenant, run_id: str, *, now_ms: int) -> CancelledRun:
        """Commit the request to end a run, with all turns of it that are under way."""
        with self._database.write(durable=True, lock=WHOLE) as tx:
            row = run_row(tx, tenant, run_id)
            writer = RunWriter.of(tx, run_id, self._limits, now_ms=now_ms)
            if writer is None or row["cancel"] is not None:
                return CancelledRun(RunStep(run_of(row, read_stages(tx, run_id))), is_new=False)
            writer.set(cancel="interrupt")
            open_turns = [each.turn_id for each in read_stages(tx, run_id) if each.is_open and each.turn_id]
            cancelled = [
                interrupt_turn(tx, row["workspace"], turn_id, now_ms=now_ms, is_exported=self._is_exported)
                for turn_id in open_turns
            ]
            turns = tuple(turn for turn in cancelled if turn is not None)
            return CancelledRun(writer.go_on(self._plan), is_new=True, turns=turns)

    def decide(
        self, tenant: Tenant, run_id: str, key: str, said: tuple[RunDecision, str | None], by: Actor, *, now_ms: int
    ) -> RunStep:
        """Commit what a person says to a stage's output, and go on.

        Args:
            key: of the approval, or of the stage that it is about.
            said: the decision, and why.

        Raises:
            NotFound: the tenant has no such run, or it asks nothing of that name.
            Conflict: it was decided already, or the run has ended.
        """
        with self._database.write(durable=True, lock=WHOLE) as tx:
            run_row(tx, tenant, run_id)
            stages = [each for each in read_stages(tx, run_id) if each.role == "approval" and _is_named(each.key, key)]
            if not stages:
                raise NotFound(f"Run {run_id} has no approval {key!r}.")
            asked = stages[-1]
            writer = RunWriter.of(tx, run_id, self._limits, now_ms=now_ms)
            if writer is None or not asked.is_open:
                state = f"decided: {asked.decision}" if asked.decision else "over"
                raise Conflict(f"The approval {asked.key} is {state}.", "already-decided")
            writer.stages[asked.n] = asked
            writer.decide(asked.n, *said)
            _note(tx, writer.row, asked.key, said[0], by, at_ms=now_ms)
            return writer.go_on(self._plan)

    def remove(self, tenant: Tenant, run_id: str, by: Actor = LOCAL, *, now_ms: int) -> tuple[Deleted, ...]:
        """Delete a run with the sessions of its stages.

        Raises:
            NotFound: the tenant has no such run.
        """
        with self._database.write(durable=True, lock=WHOLE) as tx:
            row = run_row(tx, tenant, run_id)
            # A stage that a retry goes on with is in a session of the run before, which stays.
            stages = read_stages(tx, run_id)
            names = {each.session_id for each in stages if each.session_id and f":{run_id}." in each.session_id}
            found = (find(tx, row["workspace"], name) for name in sorted(names))
            there = {row["lane"]: row for session in found if session is not None for row in with_children(tx, session)}
            gone = tuple(remove(tx, row, by, now_ms=now_ms) for row in there.values())
            # Last, for what its sessions have used is entered for its workflow.
            tx.execute(delete(workflow_runs).where(workflow_runs.c.id == run_id))
            return gone

    def _begin(self, tx: Connection, row: dict[str, Any], kept: Sequence[Json] = (), *, now_ms: int) -> RunStep:
        tx.execute(_INSERT, row)
        if kept:
            tx.execute(_INSERT_STAGE, list(kept))
        writer = RunWriter(tx, row, self._limits, now_ms)
        writer.tell("run.started", {"run_id": row["id"], "workflow": row["workflow"], "retry_of": row["retry_of"]})
        step = writer.go_on(self._plan)
        crash_points.reached("run.accepting")
        return step

    def _admit(self, tx: Connection, tenant: Tenant) -> None:
        name, most = workspace_of(tenant), self._limits.workspace_depth
        workspace = statements.WORKSPACE.one(tx, {"our_workspace": name})
        if Rules.of(workspace["rules"]).is_disabled:
            raise Forbidden(f"The workspace {name!r} is disabled by its administrator.", DISABLED)
        if (workspace["depth"] or 0) >= most:
            raise QueueFull(f"The workspace has {most} unfinished turns, the most it may have.", 5.0)


def _new_row(tenant: Tenant, workflow: Workflow, new: NewRun, key: str | None, *, now_ms: int) -> dict[str, Any]:
    deadlines = [seconds for seconds in (new.deadline_s, workflow.deadline_s) if seconds is not None]
    return {
        **dict.fromkeys(workflow_runs.c.keys()),
        "id": new_id("run_"),
        "workspace": workspace_of(tenant),
        "user": user_of(tenant) or new.user,
        "workflow": workflow.name,
        "workflow_version": workflow.version or None,
        "pattern_type": workflow.pattern.type,
        "spec": workflow.spec,
        "variables": new.variables,
        "status": "in_progress",
        "budget": _smaller(workflow.budget, new.budget),
        "deadline_ms": now_ms + int(min(deadlines) * 1000) if deadlines else None,
        "webhook_url": new.webhook.url if new.webhook else None,
        "webhook_secret": new.webhook.secret if new.webhook else None,
        "metadata": new.metadata,
        **_request(new, key, now_ms=now_ms),
    }


def _request(new: NewRun, key: str | None, *, now_ms: int) -> dict[str, Any]:
    """The columns that tell of the request."""
    return {
        "idempotency_key": key,
        "fingerprint": new.fingerprint,
        "traceparent": new.traceparent,
        "trace": replace(new.trace, accepted_us=now_us()).as_json(),
        "request_id": new.request_id,
        "key_id": new.key_id,
        "events": 0,
        "created_ms": now_ms,
    }


def _again(before: dict[str, Any], asked: NewRun, key: str | None, *, now_ms: int) -> dict[str, Any]:
    """The row of a run that goes on for another one, with a deadline as long as that one's was."""
    ended = ("status", "reason", "cancel", "merged_output", "error", "failed_stage", "completed_ms", "due_ms")
    deadline_ms = before["deadline_ms"]
    return {
        **before,
        **dict.fromkeys(ended),
        "id": new_id("run_"),
        "status": "in_progress",
        "retry_of": before["id"],
        "deadline_ms": None if deadline_ms is None else now_ms + deadline_ms - before["created_ms"],
        **_request(asked, key, now_ms=now_ms),
    }


def _kept(before: dict[str, Any], stages: Sequence[Json], run_id: str) -> list[Json]:
    """What of the earlier run's journal holds for the new one: what is completed, and not part of what failed."""
    failed = before["failed_stage"]
    kept = [each for each in stages if each["status"] == "completed" and not _is_below(each["key"], failed)]
    # Their references may have expired by now, or do so any time: what is passed on of them is passed on whole.
    anew = {"run_id": run_id, "is_reused": True, "output_ref": None}
    return [{**each, **anew, "n": n} for n, each in enumerate(kept, 1)]


def _is_below(key: str, failed: str | None) -> bool:
    return failed is not None and (key == failed or key.startswith(f"{failed}."))


def _is_named(key: str, named: str) -> bool:
    """True of an approval that is named itself, or by the stage that it is about."""
    return named in (key, key.partition(".approval")[0])


def _earlier(tx: Connection, tenant: Tenant, key: str | None, fingerprint: str | None) -> Run | None:
    if key is None:
        return None
    row = tx.execute(_BY_KEY, {"our_workspace": workspace_of(tenant), "key": key}).mappings().first()
    if row is None:
        return None
    if row["fingerprint"] != fingerprint:
        raise Invalid("This Idempotency-Key came with another request before.", (), "idempotency-mismatch")
    return run_of(row, with_turns(tx, read_stages(tx, row["id"])))


def _smaller(own: Json | None, asked: Json | None) -> Json | None:
    """The smaller figure of each kind."""
    both = [budget for budget in (own, asked) if budget]
    names = dict.fromkeys(name for budget in both for name, figure in budget.items() if figure is not None)
    return {name: min(budget[name] for budget in both if budget.get(name) is not None) for name in names} or None


def _note(tx: Connection, row: dict[str, Any], key: str, decision: str, by: Actor, *, at_ms: int) -> None:
    made = [{"kind": "approval", "name": key, "outcome": decision}]
    about = {"user": row["user"] or by.user, "agent": row["workflow"], "subject": row["id"], "decisions": made}
    note_act(tx, "run.decided", by, workspace=row["workspace"], at_ms=at_ms, **about)
