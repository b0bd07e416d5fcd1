"""One step of a run, in one transaction: what its turns answered enters its journal, and what follows is begun.

The run is read, planned and changed in the same transaction. Two processes that go on with the same run do so one after
the other, and the second finds nothing left to do. The turns that a step begins are rows of that transaction: no
question is asked twice, and none that was entered is lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Protocol

from sqlalchemy import Connection, Integer, and_, bindparam, insert, select, update

from loom_worker.core import crash_points
from loom_worker.core.settings import LimitSettings
from loom_worker.core.values.audit import run_ended
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Delivery
from loom_worker.core.values.runs import (
    EXPIRED,
    NewApproval,
    NewStage,
    Run,
    RunChange,
    RunDecision,
    RunEnding,
    RunStage,
)
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.spans import LaterSpans, traceparent_of
from loom_worker.core.values.tenants import Tenant, WorkspaceUser
from loom_worker.core.values.traces import TurnTrace
from loom_worker.core.values.turns import NewTurn, Turn
from loom_worker.core.values.workspaces import Rules
from loom_worker.store.audit import append
from loom_worker.store.blobs import grant
from loom_worker.store.budgets import forget
from loom_worker.store.children import usage_below
from loom_worker.store.outbox import enqueue_delivery
from loom_worker.store.prepared import PreparedStatement
from loom_worker.store.runs import read_stages, run_of, stage_of
from loom_worker.store.schema import answer_text, turns
from loom_worker.store.sessions import add, found_or_added
from loom_worker.store.submit import insert_turn
from loom_worker.store.tables import run_events, run_stages, workflow_runs
from loom_worker.store.turn_records import add_spans
from loom_worker.store.turn_statements import OUR_RULES

DELETED_REASON = "deleted"
"""Reason of a stage whose turn was deleted with its session before it had ended."""

_RUN = PreparedStatement(select(workflow_runs).where(workflow_runs.c.id == bindparam("our_id")))
_TURN = ("id", "status", "reason", "error", "usage", "output_ref", "completed_ms")
_OPEN = PreparedStatement(
    select(
        run_stages,
        *(turns.c[name].label(f"turn_{name}_now") for name in _TURN),
        answer_text().label("turn_output_text_now"),
    )
    .outerjoin(turns, turns.c.id == run_stages.c.turn_id)
    .where(and_(run_stages.c.run_id == bindparam("our_id"), run_stages.c.completed_ms.is_(None)))
    .order_by(run_stages.c.n)
)
"""What has not ended, as far as the journal knows, each with its turn as it is."""
_RULES = PreparedStatement(select(OUR_RULES))
_INSERT_STAGES = PreparedStatement(insert(run_stages), columns=run_stages.c.keys())
_INSERT_EVENTS = PreparedStatement(insert(run_events), columns=run_events.c.keys())
_ENTERED = ("status", "reason", "output_text", "output_ref", "error", "usage", "decision", "comment", "completed_ms")
_ENTER = PreparedStatement(
    update(run_stages)
    .where(run_stages.c.run_id == bindparam("our_id"), run_stages.c.n == bindparam("our_n", type_=Integer))
    .values({name: bindparam(name) for name in _ENTERED})
)
_STAGE_COLUMNS = tuple(name for name in RunStage.__slots__ if name != "usage")


@cache
def _set_run(names: tuple[str, ...]) -> PreparedStatement:
    changed: dict[str, Any] = {name: bindparam(name) for name in names}
    return PreparedStatement(update(workflow_runs).where(workflow_runs.c.id == bindparam("our_id")).values(changed))


class RunPlan(Protocol):
    """Says how a run goes on (``workflows/plan.py``: Planner)."""

    def change(self, run: Run, rules: Rules, *, now_ms: int) -> RunChange:
        """What is to be done for it now, by its pattern and its journal; ``rules``: of its workspace."""

    def delivery(self, run: Run, turn_id: str, *, now_ms: int) -> Delivery | None:
        """The webhook that reports the end of a run; None if it has none.

        Args:
            turn_id: the turn with which the end came.
        """

    def spans(self, run: Run, turn_id: str) -> LaterSpans | None:
        """What the run leaves in its trace; None if it has none."""


@dataclass(frozen=True, slots=True)
class RunStep:
    """What a step has done, for those who are to be told once it is committed."""

    run: Run
    """As it is now; without its stages where the step only entered an answer while others are awaited."""
    begun: tuple[Turn, ...] = ()
    """Turns that were accepted."""
    has_news: bool = False
    """True: its event log has grown."""
    delivery: Delivery | None = None


@dataclass(slots=True)
class RunWriter:
    """Changes one run within a transaction; what it has changed is written by ``step``."""

    tx: Connection
    row: dict[str, Any]
    """Row of ``workflow_runs``, as it will be."""
    limits: LimitSettings
    now_ms: int
    stages: dict[int, RunStage] = field(default_factory=dict)
    """By number, as they will be: those that are known so far."""
    delivery: Delivery | None = None
    _begun: list[Turn] = field(default_factory=list)
    _changed: set[str] = field(default_factory=set)
    """Columns of the run."""
    _entered: set[int] = field(default_factory=set)
    _new: set[int] = field(default_factory=set)
    _events: list[Json] = field(default_factory=list)
    _last_turn: str = ""

    @classmethod
    def of(cls, tx: Connection, run_id: str, limits: LimitSettings, *, now_ms: int) -> "RunWriter | None":
        """Change the run with this id; None if it has ended, or is gone."""
        row = _RUN.first(tx, {"our_id": run_id})
        return None if row is None or row["completed_ms"] is not None else cls(tx, row, limits, now_ms)

    @property
    def is_finished(self) -> bool:
        """True once this transaction has ended it."""
        return self.row["completed_ms"] is not None

    def go_on(self, plan: RunPlan) -> RunStep:
        """Enter what has ended, and do what is to be done then, until the run waits or has ended."""
        waits_for_turns = self._enter_ended()
        if not waits_for_turns:
            self._read_stages()
            rules = Rules.of(_RULES.one(self.tx, {"our_workspace": self.row["workspace"]})["rules"])
            while not self.is_finished and self._apply(plan, rules):
                pass
        if not self.is_finished:
            self.set(due_ms=None if waits_for_turns else self._next_look_ms())
        return self.step()

    def step(self) -> RunStep:
        """Write what has changed, and say what was done."""
        self._write()
        crash_points.reached("run.committing")
        return RunStep(self._run(), tuple(self._begun), bool(self._events), self.delivery)

    def decide(self, n: int, decision: RunDecision, comment: str | None, *, reason: str | None = None) -> None:
        """Enter what a person said, or what applies as nobody has."""
        said = replace(self.stages[n], decision=decision, comment=comment, reason=reason)
        self._enter(replace(said, status="completed", completed_ms=self.now_ms), "approval.decided")

    def tell(self, kind: str, data: Json) -> None:
        """Add an event to the run's log."""
        n = self.row["events"] + 1
        self._events.append({"run_id": self.row["id"], "n": n, "type": kind, "data": data, "at_ms": self.now_ms})
        self.set(events=n)

    def set(self, **values: Any) -> None:
        """Change columns of the run."""
        self.row.update(values)
        self._changed.update(values)

    def _run(self) -> Run:
        return run_of(self.row, [self.stages[n] for n in sorted(self.stages)])

    def _read_stages(self) -> None:
        known = {stage.n: stage for stage in read_stages(self.tx, self.row["id"])}
        self.stages = known | self.stages

    def _apply(self, plan: RunPlan, rules: Rules) -> bool:
        """Do one change; True if more may be to be done at once."""
        change = plan.change(self._run(), rules, now_ms=self.now_ms)
        if change.end is not None:
            self._end(plan, change.end)
            return False
        for stage in change.begin:
            self._begin(stage)
        if change.ask is not None:
            self._ask(change.ask)
        # What may not be asked has an end at once.
        return any(stage.blocked for stage in change.begin)

    def _enter_ended(self) -> bool:
        """Enter the answers of turns that have ended, and approvals whose time is up; True if turns are under way."""
        is_waiting = False
        for row in _OPEN.all(self.tx, {"our_id": self.row["id"]}):
            stage = self.stages.setdefault(row["n"], stage_of(row))
            if not stage.is_open:
                continue  # this transaction has just decided it
            if stage.turn_id is None:
                if stage.approve_by_ms is not None and stage.approve_by_ms <= self.now_ms:
                    self.decide(stage.n, stage.on_timeout or "reject", None, reason=EXPIRED)
            elif row["turn_id_now"] is not None and row["turn_completed_ms_now"] is None:
                is_waiting = True
            else:
                ended = self._answered(stage, row)
                self._enter(ended, f"stage.{ended.status}")
        return is_waiting

    def _answered(self, stage: RunStage, row: Mapping[str, Any]) -> RunStage:
        """The stage with what came of its turn."""
        if row["turn_id_now"] is None:
            return replace(stage, status="cancelled", reason=DELETED_REASON, completed_ms=self.now_ms)
        self._last_turn = row["turn_id_now"]
        return replace(
            stage,
            status=row["turn_status_now"],
            reason=row["turn_reason_now"],
            error=row["turn_error_now"],
            usage=Usage.from_json(row["turn_usage_now"]) + usage_below(self.tx, row["turn_id_now"]),
            output_text=row["turn_output_text_now"],
            output_ref=row["turn_output_ref_now"],
            completed_ms=row["turn_completed_ms_now"],
        )

    def _enter(self, stage: RunStage, kind: str) -> None:
        self.stages[stage.n] = stage
        self._entered.add(stage.n)
        self.tell(kind, stage.brief().as_json())

    def _begin(self, new: NewStage) -> None:
        turn = None if new.blocked else self._accept(new)
        stage = RunStage(
            key=new.key,
            role=new.role,
            name=new.name,
            agent_id=new.agent_id,
            conversation=new.conversation,
            session_id=new.session_id,
            turn_id=None if turn is None else turn.id,
            status="queued",
        )
        if turn is None:
            error = {"type": "guardrail-blocked", "message": new.blocked}
            stage = replace(stage, status="failed", reason="guardrail", error=error, completed_ms=self.now_ms)
        else:
            self._begun.append(turn)
        self._add(stage, "stage.started" if turn is not None else "stage.failed")

    def _accept(self, stage: NewStage) -> Turn:
        """The turn of a stage, at the tail of its conversation's session."""
        row = self.row
        metadata = {"workflow": row["workflow"], "run_id": row["id"], "stage": stage.key}
        new = NewTurn(
            input=stage.input,
            metadata=metadata,
            traceparent=traceparent_of(row["traceparent"].split("-")[1], row["id"]) if row["traceparent"] else None,
            trace=TurnTrace(has_client_span=True, is_unsampled=TurnTrace.of(row["trace"]).is_unsampled),
            request_id=row["request_id"],
            key_id=row["key_id"],
            guard=list(stage.guard) or None,
            run_id=row["id"],
            response_format=stage.response_format,
            deadline_s=None if stage.deadline_ms is None else max(stage.deadline_ms - self.now_ms, 1) / 1000,
        )
        owner = self._session(stage, metadata)
        grant(self.tx, stage.refs, owner["lane"])
        return insert_turn(self.tx, self.limits, owner, new, now_ms=self.now_ms, position=owner["queue_depth"])

    def _session(self, stage: NewStage, metadata: Json) -> Any:
        row = self.row
        tenant: Tenant = row["workspace"] if row["user"] is None else WorkspaceUser(row["workspace"], row["user"])
        session = NewSession(id=stage.session_id, agent=stage.agent_id, user=row["user"], metadata=metadata)
        is_new = all(each.session_id != stage.session_id for each in self.stages.values())
        return (add if is_new else found_or_added)(self.tx, tenant, session, now_ms=self.now_ms)

    def _ask(self, asked: NewApproval) -> None:
        stage = RunStage(
            key=asked.key,
            role="approval",
            agent_id=asked.agent_id,
            conversation=asked.key,
            status="requires_action",
            prompt=asked.prompt,
            approve_by_ms=asked.approve_by_ms,
            on_timeout=asked.on_timeout,
        )
        self._add(stage, "approval.required")

    def _add(self, stage: RunStage, kind: str) -> None:
        n = max(self.stages, default=0) + 1
        self.stages[n] = stage = replace(stage, n=n, created_ms=self.now_ms)
        self._new.add(n)
        self.tell(kind, stage.brief().as_json())

    def _end(self, plan: RunPlan, end: RunEnding) -> None:
        for stage in [each for each in self.stages.values() if each.is_open]:
            self._enter(replace(stage, status="cancelled", completed_ms=self.now_ms), "stage.cancelled")
        self.set(**{name: getattr(end, name) for name in RunEnding.__slots__}, completed_ms=self.now_ms, due_ms=None)
        self.tell(f"run.{end.status}", {})
        run = self._run()
        append(self.tx, run_ended(run))
        if run.budget is not None:
            forget(self.tx, "run", run.id)
        last = self._last_turn or next((stage.turn_id for stage in reversed(run.stages) if stage.turn_id), "")
        self.delivery = plan.delivery(run, last, now_ms=self.now_ms) if last else None
        if self.delivery is not None:
            enqueue_delivery(self.tx, self.delivery)
        told = plan.spans(run, last) if last else None
        if told is not None:
            add_spans(self.tx, told, now_ms=self.now_ms)

    def _next_look_ms(self) -> int | None:
        """When the run is to be looked at although nothing has happened: an approval's time is up, or the run's."""
        waiting = (stage.approve_by_ms for stage in self.stages.values() if stage.is_open)
        moments = [moment_ms for moment_ms in waiting if moment_ms is not None]
        if moments and self.row["deadline_ms"] is not None:
            moments.append(self.row["deadline_ms"])
        return min(moments, default=None)

    def _write(self) -> None:
        run_id = self.row["id"]
        for n in sorted(self._entered - self._new):
            stage = self.stages[n]
            values = {name: getattr(stage, name) for name in _ENTERED} | {"usage": stage.usage.as_json()}
            _ENTER.put(self.tx, {"our_id": run_id, "our_n": n, **values})
        if self._new:
            _INSERT_STAGES.run_each(self.tx, [_columns(self.stages[n], run_id) for n in sorted(self._new)])
        if self._events:
            _INSERT_EVENTS.run_each(self.tx, self._events)
        names = tuple(sorted(self._changed))
        _set_run(names).put(self.tx, {"our_id": run_id, **{name: self.row[name] for name in names}})


def _columns(stage: RunStage, run_id: str) -> Json:
    return {**{name: getattr(stage, name) for name in _STAGE_COLUMNS}, "usage": stage.usage.as_json(), "run_id": run_id}
