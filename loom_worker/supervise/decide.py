"""What the supervisor does next, purely: a table of processes and a moment in, actions out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Goal = Literal["up", "down", "dead"]
"""Keep all running, stop all in order, or kill all at once."""

Remedy = Literal["ask", "kill"]
"""For a process that runs and does no work: end it in its own time, or at once if it would not hear."""

DEATHS_TOO_MANY = 5
DEATHS_WITHIN_S = 60.0
"""This many deaths of one process within so many seconds are no accident: everything is stopped."""
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0


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


@dataclass(frozen=True, slots=True)
class Row:
    """A process as it is. Moments are seconds of one monotonic clock."""

    spec: Spec
    pid: int | None = None
    deaths: tuple[float, ...] = ()
    """Moments of the deaths that still count."""
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


def decide(rows: Sequence[Row], *, goal: Goal, now_s: float, is_open: bool) -> tuple[Action, ...]:
    """Say what to do now, in order; nothing if there is only to wait.

    Args:
        is_open: whether the foundation (if any) takes connections.
    """
    if goal == "up":
        return _keep_up(rows, now_s, is_open)
    running = [row for row in rows if row.pid is not None]
    if goal == "dead":
        return tuple(Action("kill", row.spec.name) for row in running if not row.is_killed)
    return _take_down(running, now_s)


def _keep_up(rows: Sequence[Row], now_s: float, is_open: bool) -> tuple[Action, ...]:
    for row in rows:
        if len(row.deaths) >= DEATHS_TOO_MANY:
            return (Action("give_up", row.spec.name),)
    due = (row for row in rows if row.pid is None and row.start_at_s <= now_s)
    starts = [Action("start", row.spec.name) for row in due if row.spec.is_foundation or is_open]
    ends = [_end(row, now_s) for row in rows if row.pid is not None and row.remedy is not None]
    return (*starts, *(action for action in ends if action is not None))


def _take_down(running: Sequence[Row], now_s: float) -> tuple[Action, ...]:
    stage = min((row.spec.stop_stage for row in running), default=0)
    ends = (_end(row, now_s) for row in running if row.spec.stop_stage == stage)
    return tuple(action for action in ends if action is not None)


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
    """The row after its process ended unasked: the pause before the next start doubles with every recent death."""
    deaths = (*(at for at in row.deaths if now_s - at < DEATHS_WITHIN_S), now_s)
    pause_s = min(FIRST_PAUSE_S * 2 ** (len(deaths) - 1), LONGEST_PAUSE_S)
    return Row(row.spec, deaths=deaths, start_at_s=now_s + pause_s)
