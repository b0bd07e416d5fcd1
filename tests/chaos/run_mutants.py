"""Seeded bugs of workflow runs; see mutants.py."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from loom_worker.core.settings import LimitSettings
from loom_worker.core.values.notifications import Delivery
from loom_worker.core.values.runs import Run
from loom_worker.core.values.turns import NewTurn, Turn
from loom_worker.store import run_journal, run_steps
from loom_worker.store.runs import Runs
from loom_worker.workflows import decide, plan, sequences
from loom_worker.workflows.advance import RunAdvancer


def _doubled_stage() -> None:
    """Every fifth stage is put to its agent twice, as by two processes that go on with a run at the same time."""
    steps: Any = run_steps
    insert, counter = steps.insert_turn, itertools.count(1)

    def eager(tx: Connection, limits: LimitSettings, owner: Any, new: NewTurn, **place: Any) -> Turn:
        turn: Turn = insert(tx, limits, owner, new, **place)
        if next(counter) % 5 == 0:
            insert(tx, limits, {**owner, "next_seq": owner["next_seq"] + 1}, new, **place)
        return turn

    steps.insert_turn = eager


def _lost_due_mark() -> None:
    """A run whose turn has ended is not due, and every fourth time nobody goes on with it at once either."""
    go_on, counter = RunAdvancer.turn_ended, itertools.count(1)

    def idle(self: RunAdvancer, turn: Turn) -> None:
        if next(counter) % 4:
            go_on(self, turn)

    def none_due(_self: Runs, *, now_ms: int, limit: int) -> tuple[str, ...]:
        return ()

    RunAdvancer.turn_ended = idle  # type: ignore[method-assign]
    Runs.due = none_due  # type: ignore[method-assign,assignment]


def _fastest_first() -> None:
    """Answers of agents that were asked together are taken in the order in which they came."""
    answered = decide._answered

    def hasty(wanted: Any, journal: Mapping[str, Any], run: Run, **times: Any) -> Any:
        found = answered(wanted, journal, run, **times)
        if not isinstance(found, tuple) or not isinstance(wanted, Sequence):
            return found
        came = [journal[each.key].completed_ms or 0 for each in wanted]
        return tuple(found[n] for n in sorted(range(len(found)), key=came.__getitem__))

    decide._answered = hasty


def _forgetful_retry() -> None:
    """A retry does everything again, what was completed included."""
    run_journal._kept = lambda *_: []


def _deaf_run() -> None:
    """A run that was cancelled goes on once its turns have ended."""
    planner: Any = plan
    decided = planner.decide

    def deaf(pattern: Any, values: Any, run: Run, *, now_ms: int) -> Any:
        return decided(pattern, values, replace(run, cancel=None), now_ms=now_ms)

    planner.decide = deaf


def _unread_check() -> None:
    """What a validation says is taken for a yes."""
    checks: Any = sequences
    checks.verdict = lambda _: True


def _silent_run() -> None:
    """Every third webhook of a run is not written with its end."""
    delivery, counter = plan.Planner.delivery, itertools.count()

    def forgetful(self: plan.Planner, run: Run, turn_id: str, *, now_ms: int) -> Delivery | None:
        return delivery(self, run, turn_id, now_ms=now_ms) if next(counter) % 3 else None

    plan.Planner.delivery = forgetful  # type: ignore[method-assign]


RUN_MUTANTS: dict[str, tuple[Sequence[str], Callable[[], None]]] = {
    "doubled_stage": (("I18",), _doubled_stage),
    "lost_due_mark": (("I18",), _lost_due_mark),
    "fastest_first": (("I19",), _fastest_first),
    "forgetful_retry": (("I18",), _forgetful_retry),
    "deaf_run": (("I18",), _deaf_run),
    "unread_check": (("I19",), _unread_check),
    "silent_run": (("I20",), _silent_run),
}
"""As MUTANTS."""
