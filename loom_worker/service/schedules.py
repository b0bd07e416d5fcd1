"""Schedules: begins runs and turns when they are due, and all that can be asked of them."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from loom_worker.agents.known import AgentSource
from loom_worker.core import crash_points, metrics
from loom_worker.core.errors import Conflict, LoomError, NotFound, Transient
from loom_worker.core.settings_tree import ScheduleSettings, Settings
from loom_worker.core.text import closest
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json, rfc3339
from loom_worker.core.values.runs import NewRun, Run
from loom_worker.core.values.schedules import (
    Fire,
    Firing,
    Pass,
    Restart,
    Schedule,
    ScheduleState,
    Wait,
    as_json,
    decide,
)
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.spans import new_traceparent
from loom_worker.core.values.tenants import LOCAL, Actor, Tenant, user_of, workspace_of
from loom_worker.core.values.turns import UNFINISHED, NewTurn, Turn
from loom_worker.service.allowances import Terms
from loom_worker.service.announcer import Announcer
from loom_worker.service.input_guard import InputGuard
from loom_worker.service.workflow_runs import WorkflowRuns
from loom_worker.store.database import Database
from loom_worker.store.schedules import TAKEN
from loom_worker.store.schedules import Schedules as ScheduleRows
from loom_worker.store.sessions import Sessions
from loom_worker.store.submit import submit

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Starter:
    """Begins what a schedule names: a workflow's run, or a turn of an agent."""

    settings: Settings
    database: Database
    runs: WorkflowRuns
    agents: AgentSource
    announcer: Announcer

    def start(self, schedule: Schedule, firing: Firing, *, key_id: str | None, moment_ms: int) -> Run | Turn:
        """Commit it together with the claim of its due time.

        Raises:
            Conflict: another process has taken the due time (slug ``schedule-taken``).
            LoomError: it was refused, as a client's would be; nothing was committed.
        """
        about: Json = {"schedule": schedule.name, "due_at": rfc3339(firing.due_ms)}
        asked: Json = {"deadline_s": schedule.max_execution_s, "metadata": about, "key_id": key_id, "firing": firing}
        asked["traceparent"] = new_traceparent()
        if schedule.kind == "workflow":
            run, _ = self.runs.start(
                schedule.workspace, schedule.target, NewRun(variables=dict(schedule.variables), **asked)
            )
            return run
        new = NewTurn(input=schedule.input, **asked)
        session = NewSession(id=schedule.session_id(firing.due_ms), agent=schedule.target)
        session_id = session.id or ""
        who = Sessions(self.database).asked(schedule.workspace, session_id, schedule.target)
        new = InputGuard(self.database, self.agents).admitted(schedule.workspace, session_id, new, who)
        whose, terms = (schedule.workspace, session), Terms(self.settings, self.agents)
        turn, _ = submit(self.database, self.settings.limits, whose, new, terms, now_ms=moment_ms)
        crash_points.reached("schedule.begun")
        log.info("turn.accepted", extra={"turn": turn.id, "session": turn.session_id, "agent": turn.agent})
        self.announcer.accepted(turn)
        return turn


class Schedules:
    """The schedules of the files of workflows and agents."""

    def __init__(self, database: Database, settings: ScheduleSettings, starter: Starter) -> None:
        self._rows = ScheduleRows(database)
        self._settings = settings
        self._starter = starter

    def fire_due(self, moment_ms: int) -> int:
        """Begin what is due at a moment; how many runs and turns were begun.

        Any number of processes may do so at a time, and die at any point: a due time is begun once. Transient: the
        database did not answer; what is due stays due.
        """
        defined = tuple(self._defined())
        if not defined:
            return 0
        states = self._rows.states()
        return sum(self._look_at(schedule, states.get(schedule.name), moment_ms) for schedule in defined)

    def listed(self, tenant: Tenant, *, moment_ms: int | None = None) -> tuple[Json, ...]:
        """The schedules of a workspace, by name; one user of it has none."""
        moment_ms = now_ms() if moment_ms is None else moment_ms
        states = self._rows.states()
        return tuple(
            as_json(each, states.get(each.name) or ScheduleState(each.name), now_ms=moment_ms)
            for each in sorted(self._of(tenant), key=lambda schedule: schedule.name)
        )

    def enable(self, tenant: Tenant, name: str, enabled: bool | None, *, by: Actor = LOCAL) -> Json:
        """Keep an operator's word, which overrides the file's; None: the file's counts again.

        Raises:
            NotFound: the workspace has no such schedule.
        """
        schedule = self._find(tenant, name)
        self._rows.enable(schedule, enabled, now_ms=now_ms(), by=by)
        log.info("schedule.changed", extra={"schedule": schedule.name})
        return as_json(schedule, self._rows.states()[schedule.name], now_ms=now_ms())

    def start(self, tenant: Tenant, name: str, *, by: Actor = LOCAL) -> Run | Turn:
        """Begin it now, beside its plan.

        Raises:
            NotFound: the workspace has no such schedule.
            LoomError: it was refused, as a client's would be.
        """
        schedule, moment_ms = self._find(tenant, name), now_ms()
        firing = Firing(schedule.name, moment_ms, None)
        key_id = None if by == LOCAL else by.key_id
        begun = self._starter.start(schedule, firing, key_id=key_id, moment_ms=moment_ms)
        self._rows.note_start(schedule, now_ms=moment_ms, by=by)
        return begun

    def _defined(self) -> Iterator[Schedule]:
        for workflow in self._starter.runs.workflows():
            if workflow.schedule is not None:
                yield workflow.schedule
        for agent in self._starter.agents.current().agents.values():
            yield from agent.schedules

    def _of(self, tenant: Tenant) -> Iterator[Schedule]:
        # What a schedule starts is the workspace's: a key that acts for one user neither sees nor starts it.
        if user_of(tenant) is None:
            yield from (each for each in self._defined() if each.workspace == workspace_of(tenant))

    def _find(self, tenant: Tenant, name: str) -> Schedule:
        known = {each.name: each for each in self._of(tenant)}
        if name not in known:
            near = closest(name, known)
            advice = f" Did you mean {near!r}?" if near else ""
            raise NotFound(f"There is no schedule {name!r}.{advice}")
        return known[name]

    def _look_at(self, schedule: Schedule, state: ScheduleState | None, moment_ms: int) -> int:
        is_running = state is not None and state.last_status in UNFINISHED
        match decide(schedule, state, now_ms=moment_ms, missed=self._settings.missed, is_running=is_running):
            case Wait():
                return 0
            case Restart(reason):
                if reason == "clock":
                    log.warning("schedule.restarted: the clock was set back", extra={"schedule": schedule.name})
                self._rows.restart(schedule, state, now_ms=moment_ms)
                return 0
            case Pass(firing, is_skipped):
                if self._rows.passed(firing, is_skipped=is_skipped):
                    _count(schedule, firing, "skipped" if is_skipped else None)
                return 0
            case Fire(firing):
                return self._fire(schedule, firing, moment_ms)

    def _fire(self, schedule: Schedule, firing: Firing, moment_ms: int) -> int:
        try:
            begun = self._starter.start(schedule, firing, key_id=None, moment_ms=moment_ms)
        except Transient:
            raise
        except LoomError as error:
            if isinstance(error, Conflict) and error.slug == TAKEN:
                return 0
            if self._rows.refused(firing, str(error), now_ms=moment_ms):
                log.warning("schedule.refused", extra={"schedule": schedule.name})
                _count(schedule, firing, "refused")
            return 0
        log.info("schedule.begun", extra={"schedule": schedule.name, "begun": begun.id})
        _count(schedule, firing, "begun")
        return 1


def _count(schedule: Schedule, firing: Firing, outcome: str | None) -> None:
    if outcome is not None:
        metrics.SCHEDULE_TIMES.count(schedule.kind, outcome)
    if firing.missed:
        metrics.SCHEDULE_TIMES.count(schedule.kind, "missed", by=firing.missed)
