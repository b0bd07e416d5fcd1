"""Schedules as files define them, what is known of each, and the decision what to do with it now. Pure."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import Literal

from loom_worker.core.cron import CronPlan
from loom_worker.core.values.json import Json, rfc3339

ScheduleKind = Literal["workflow", "agent"]
SessionMode = Literal["new", "persistent"]
MissedTimes = Literal["once", "skip"]
DEFAULT_WORKSPACE = "default"
ON_TIME_MS = 60_000
"""A due time that is noticed later than this was missed."""
MOST_TIMES = 10_000
"""Due times that one look goes through: a week of every minute. After a longer pause the next look goes on."""
SET_BACK_MS = 24 * 3600 * 1000
"""A schedule that is further ahead of the clock was driven by a clock that was wrong; it begins anew."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a workflow or an agent is started, as its file says."""

    kind: ScheduleKind
    target: str
    """The workflow or the agent."""
    plan: CronPlan
    entry: str = ""
    """Its name among several of an agent; empty: the only one."""
    is_enabled: bool = True
    skips_if_running: bool = False
    max_execution_s: float | None = None
    """The deadline of what it starts."""
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    input: str = ""
    """Input of an agent's turn."""
    session_mode: SessionMode = "new"
    workspace: str = DEFAULT_WORKSPACE

    @property
    def name(self) -> str:
        """``workflow:weekly`` or ``agent:anna:morning``; no two are alike, for no name has a colon."""
        return ":".join(part for part in (self.kind, self.target, self.entry) if part)

    def session_id(self, due_ms: int) -> str:
        """The session of a turn; no client can name it, for their ids have no colon."""
        own = f"schedule:{self.target[:64]}:{hashlib.sha256(self.name.encode()).hexdigest()[:12]}"
        return own if self.session_mode == "persistent" else f"{own}:{due_ms}"


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """What the database knows of a schedule."""

    name: str
    plan: str = ""
    """For which plan ``cursor_ms`` holds; another one than today's: the file has been changed."""
    cursor_ms: int = 0
    """Due times up to this one are dealt with."""
    enabled: bool | None = None
    """The operator's word; None: the file's counts."""
    last_ms: int | None = None
    """The due time that was last begun."""
    last_id: str | None = None
    """The run or turn that was last begun."""
    last_status: str | None = None
    """Its status; None: there is none, or it was deleted."""
    error: str | None = None
    """Why the last due time was refused; None: it was not."""
    error_ms: int | None = None
    skipped: int = 0
    missed: int = 0

    def is_enabled(self, schedule: Schedule) -> bool:
        """Whether it runs by itself."""
        return schedule.is_enabled if self.enabled is None else self.enabled


@dataclass(frozen=True, slots=True)
class Firing:
    """One due time that a process is about to deal with, or a start beside the plan."""

    name: str
    due_ms: int
    expected_ms: int | None
    """The cursor as it was read: if it has moved, another process was first. None: a start beside the plan."""
    missed: int = 0
    """Earlier due times that nobody dealt with."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is due."""


@dataclass(frozen=True, slots=True)
class Restart:
    """The plan is new, or was changed: it counts from now on."""

    reason: Literal["new", "changed", "clock"]


@dataclass(frozen=True, slots=True)
class Fire:
    """A due time is to be begun."""

    firing: Firing


@dataclass(frozen=True, slots=True)
class Pass:
    """Due times are over without a start."""

    firing: Firing
    is_skipped: bool = False
    """True: the last run has not ended. False: they were missed."""


def plan_key(schedule: Schedule, state: ScheduleState) -> str:
    """What the cursor depends on: a change of any of it must not run what lies between."""
    return f"{schedule.plan.cron} {schedule.plan.timezone} {'on' if state.is_enabled(schedule) else 'off'}"


def decide(
    schedule: Schedule, state: ScheduleState | None, *, now_ms: int, missed: MissedTimes, is_running: bool
) -> Wait | Restart | Fire | Pass:
    """What to do with a schedule at a moment.

    Args:
        state: None: the database does not know it yet.
        missed: whether the latest of missed due times is begun after all.
        is_running: what it began last has not ended.
    """
    if state is None:
        return Restart("new")
    if state.plan != plan_key(schedule, state):
        return Restart("changed")
    if state.cursor_ms - now_ms > SET_BACK_MS:
        return Restart("clock")
    if not state.is_enabled(schedule):
        return Wait()
    times: list[int] = []
    for due_ms in islice(schedule.plan.after(state.cursor_ms), MOST_TIMES + 1):
        if due_ms > now_ms:
            break
        times.append(due_ms)
    if not times:
        return Wait()
    if len(times) > MOST_TIMES:
        return Pass(Firing(schedule.name, times[-2], state.cursor_ms, len(times) - 1))
    due_ms = times[-1]
    firing = Firing(schedule.name, due_ms, state.cursor_ms, len(times) - 1)
    if missed == "skip" and now_ms - due_ms > ON_TIME_MS:
        return Pass(replace(firing, missed=len(times)))
    if due_ms == state.last_ms:  # begun before the clock was set back
        return Pass(firing)
    return Pass(firing, is_skipped=True) if schedule.skips_if_running and is_running else Fire(firing)


def as_json(schedule: Schedule, state: ScheduleState, *, now_ms: int) -> Json:
    """The Schedule of the HTTP API."""
    is_enabled = state.is_enabled(schedule)
    # Not before the cursor: what lies behind it is dealt with, even if the clock was set back.
    next_ms = schedule.plan.next_after(max(now_ms, state.cursor_ms)) if is_enabled else None
    return {
        "name": schedule.name,
        "object": "schedule",
        "kind": schedule.kind,
        "target": schedule.target,
        "workspace": schedule.workspace,
        "cron": schedule.plan.cron,
        "timezone": schedule.plan.timezone,
        "enabled": is_enabled,
        "enabled_by": "file" if state.enabled is None else "operator",
        "session_mode": schedule.session_mode,
        "skip_if_running": schedule.skips_if_running,
        "max_execution_seconds": schedule.max_execution_s,
        "next_at": rfc3339(next_ms),
        "last_at": rfc3339(state.last_ms),
        "last_id": state.last_id,
        "last_status": state.last_status,
        "last_error": state.error,
        "last_error_at": rfc3339(state.error_ms),
        "skipped": state.skipped,
        "missed": state.missed,
    }
