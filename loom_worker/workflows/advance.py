"""Runs go on: a step is committed, then, and only then, workers and readers are told of it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from loom_worker.core import crash_points
from loom_worker.core.dispatcher import Dispatcher
from loom_worker.core.errors import LoomError, Unavailable
from loom_worker.core.monitor import UNMONITORED, Monitor, Work
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.runs import Run
from loom_worker.core.values.turns import Turn
from loom_worker.events.turn_signals import RunNews, TurnSignals, tell_accepted
from loom_worker.store.run_journal import RunJournal
from loom_worker.store.run_steps import RunStep

log = logging.getLogger(__name__)

REJECTED = ("rejected", "approval-timeout")
"""Reasons of a run whose last stage gave an output that nobody approved."""


@dataclass(frozen=True, slots=True)
class StepTeller:
    """Tells others of what a step has done. What is lost here the sweep finds in the database."""

    signals: TurnSignals
    news: RunNews
    dispatcher: Dispatcher

    def tell(self, step: RunStep) -> None:
        """Put the turns that it began on their lanes, tell readers, and send the webhook."""
        for turn in step.begun:
            tell_accepted(turn, self.signals, self.dispatcher)
        if step.has_news:
            _quietly(lambda: self.news.changed(step.run))
        if step.delivery is not None:
            self.dispatcher.deliver(step.delivery.id)


class RunAdvancer:
    """Makes runs go on whose turns have ended, in a worker."""

    def __init__(
        self,
        journal: RunJournal,
        teller: StepTeller,
        *,
        monitor: Monitor = UNMONITORED,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._journal = journal
        self._teller = teller
        self._monitor = monitor
        self._clock_ms = clock_ms

    def turn_ended(self, turn: Turn) -> None:
        """Make the turn's run go on, if it is a stage of one; what fails is left to the sweep."""
        if turn.run_id is not None:
            self.go_on(turn.run_id)

    def go_on(self, run_id: str) -> None:
        """Make a run go on, if there is anything to be done."""
        try:
            step = self._journal.advance(run_id, now_ms=self._clock_ms())
            run = self._journal.look(run_id) if step is None else step.run
        except Unavailable as error:
            log.warning("run left to the sweep: %s", error, extra={"run": run_id})
            return
        crash_points.reached("run.advanced")
        if step is not None:
            log_step(step)
            self._teller.tell(step)
        if run is not None:
            tell_run(run, self._monitor, now_ms=self._clock_ms())


def tell_run(run: Run, monitor: Monitor, *, now_ms: int) -> None:
    """Report a run as it is, and as failed the turn of a stage whose output a person rejected."""
    names, entry = {"workspace": run.workspace}, run.events
    work = Work(run.id, "run", (run.id, run.workflow), entry, run.created_ms, run.created_ms, names=names)
    why, run_ms = f"{run.status}: {run.reason}", run.duration_ms or now_ms - run.created_ms
    if run.status == "completed":
        monitor.succeeded(work, run.status, run_ms=run_ms)
    elif run.status == "cancelled":
        monitor.cancelled(work, why, run_ms=run_ms)
    elif run.is_finished:
        monitor.failed(work, why, run_ms=run_ms)
    elif any(stage.is_open and stage.role == "approval" for stage in run.stages):
        monitor.waits(work, "a person", run_ms=run_ms)
    else:
        monitor.started(work)
    of_stage = [each for each in run.stages if each.conversation == run.failed_stage and each.role == "stage"]
    if run.reason in REJECTED and of_stage and (turn_id := of_stage[-1].turn_id):
        # Its turn has reported its own end with the number of a claim, which is lower than any time.
        names, entry = {"agent": of_stage[-1].agent_id, **names}, run.completed_ms or now_ms
        turn = Work(turn_id, "turn", (turn_id, of_stage[-1].session_id or ""), entry, part_of=run.id, names=names)
        monitor.failed(turn, f"failed: {run.reason}", run_ms=0)


def log_step(step: RunStep) -> None:
    """Write to the log how a run has ended."""
    run = step.run
    if run.is_finished:
        ids = {"run": run.id, "workflow": run.workflow, "status": run.reason or run.status}
        log.info("run.%s", run.status, extra={**ids, "duration_ms": run.duration_ms})


def _quietly(action: Callable[[], object]) -> None:
    try:
        action()
    except LoomError as error:
        log.warning("the sweep will tell of it: %s", error)
