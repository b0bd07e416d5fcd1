"""What the supervisor does next, purely: a table of processes and a moment in, actions out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Goal = Literal["up", "down", "dead"]
"""Keep all running, stop all in order, or kill all at once."""

Remedy = Literal["ask", "kill"]
"""For a process that runs and does no work: end it gracefully, or at once if it would not react."""

DEATHS_TOO_MANY = 5
"""This many deaths of one process in a row are no accident: it is failing."""
STEADY_S = 15.0
"""A process that has run for so long came up; the deaths before no longer count. One that is killed four times a minute
is so started again at once each time."""
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True)
class Spec:
    """A process as it should run."""

    name: str
    argv: tuple[str, ...]
    stop_stage: int = 1
    """Lower stages are stopped first; within a stage all at the same time."""
    grace_s: float = 10.0
    """From SIGTERM to SIGKILL."""
    needs: frozenset[str] = frozenset()
    """Secrets that it is started with, see process_env.py."""
    is_foundation: bool = False
    """True for what the others need: they start once it is open."""
    is_indispensable: bool = False
    """True for that without which nobody is served: if it fails before anybody was, all is given up."""


@dataclass(frozen=True, slots=True)
class Row:
    """A process as it is. Moments are seconds of one monotonic clock."""

    spec: Spec
    pid: int | None = None
    deaths: int = 0
    """In a row, none after STEADY_S of running."""
    started_at_s: float = 0.0
    """When it was last started."""
    start_at_s: float = 0.0
    """Not to be started before."""
    asked_at_s: float | None = None
    """When it was sent SIGTERM."""
    is_killed: bool = False
    remedy: Remedy | None = None
    """How it is to be ended so that another takes its place."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do with one process; ``give_up`` stops all the others too."""

    verb: Literal["start", "ask", "kill", "give_up"]
    name: str


def decide(rows: Sequence[Row], *, goal: Goal, now_s: float, is_open: bool, has_served: bool) -> tuple[Action, ...]:
    """Say what to do now, in order; nothing if there is only to wait.

    Args:
        is_open: whether the foundation (if any) takes connections.
        has_served: whether the web has answered since the start; from then on nothing is given up.
    """
    if goal == "up":
        hopeless = () if has_served else (row for row in rows if row.spec.is_indispensable and _has_failed(row))
        return tuple(Action("give_up", row.spec.name) for row in hopeless)[:1] or _keep_up(rows, now_s, is_open)
    running = [row for row in rows if row.pid is not None]
    if goal == "dead":
        return tuple(Action("kill", row.spec.name) for row in running if not row.is_killed)
    stage = min((row.spec.stop_stage for row in running), default=0)
    ends = (_end(row, now_s) for row in running if row.spec.stop_stage == stage)
    return tuple(action for action in ends if action is not None)


def _keep_up(rows: Sequence[Row], now_s: float, is_open: bool) -> tuple[Action, ...]:
    due = (row for row in rows if row.pid is None and row.start_at_s <= now_s)
    starts = [Action("start", row.spec.name) for row in due if row.spec.is_foundation or is_open]
    ends = [_end(row, now_s) for row in rows if row.pid is not None and row.remedy is not None]
    return (*starts, *(action for action in ends if action is not None))


def _end(row: Row, now_s: float) -> Action | None:
    """The next step towards the end of a process that runs; None if there is only to wait."""
    if row.is_killed:
        return None
    if row.remedy == "kill":
        return Action("kill", row.spec.name)
    if row.asked_at_s is None:
        return Action("ask", row.spec.name)
    return Action("kill", row.spec.name) if now_s >= row.asked_at_s + row.spec.grace_s else None


def next_look_s(rows: Sequence[Row], *, goal: Goal) -> float | None:
    """The moment at which time alone makes ``decide`` say something new; None if only an event does."""
    graces = [row for row in rows if row.pid is not None and not row.is_killed]
    due_s = [row.asked_at_s + row.spec.grace_s for row in graces if row.asked_at_s is not None]
    if goal == "up":
        due_s += [row.start_at_s for row in rows if row.pid is None]
    return min(due_s, default=None)


def died(row: Row, now_s: float) -> Row:
    """The row after its process ended unasked, or could not be started: the next pause is twice as long."""
    has_run = row.pid is not None and now_s - row.started_at_s >= STEADY_S
    deaths = 1 if has_run else row.deaths + 1
    # The exponent has an end, or a month of deaths would be a number too large for a float.
    pause_s = min(FIRST_PAUSE_S * 2 ** min(deaths - 1, 20), LONGEST_PAUSE_S)
    return Row(row.spec, deaths=deaths, start_at_s=now_s + pause_s)


def is_failing(row: Row, now_s: float) -> bool:
    """True for a process that has died too often and has not run for long since."""
    return _has_failed(row) and not (row.pid is not None and now_s - row.started_at_s >= STEADY_S)


def _has_failed(row: Row) -> bool:
    return row.deaths >= DEATHS_TOO_MANY
