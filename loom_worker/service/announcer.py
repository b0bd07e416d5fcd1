"""Tells workers and readers what a client did."""

from loom_worker.core.values.turns import Turn
from loom_worker.events.log import EventLog
from loom_worker.events.turn_signals import TurnSignals
from loom_worker.lanes.lanes import Lanes
from loom_worker.store.run_steps import RunStep
from loom_worker.tasks.dispatch import CeleryDispatcher, DirectPublisher, Publisher, WakeupQueue
from loom_worker.workflows.advance import StepTeller


class Announcer:
    """Sends from a thread of its own, so that a dead broker never delays an answer; what is lost the sweep finds."""

    def __init__(
        self,
        signals: TurnSignals,
        lanes: Lanes,
        events: EventLog,
        *,
        wakeups: WakeupQueue,
        dispatcher: CeleryDispatcher,
        publisher: Publisher | DirectPublisher,
        steps: StepTeller,
    ) -> None:
        self._signals = signals
        self._lanes = lanes
        self._events = events
        self._wakeups = wakeups
        self._dispatcher = dispatcher
        self._publisher = publisher
        self._steps = steps

    def accepted(self, turn: Turn) -> None:
        """Put an accepted turn on its lane and wake it."""
        self._publisher.put(lambda: self._accepted(turn))

    def wake(self, lane: str) -> None:
        """Make a lane go on whose session is active again."""
        self._publisher.put(lambda: self._wakeups.wake(lane))

    def alert(self, lane: str) -> None:
        """Have a lane's running turn look at its row again."""
        self._publisher.put(lambda: self._alert(lane))

    def ended(self, turn: Turn) -> None:
        """Tell readers of a turn that ended without a worker."""
        final = (f"turn.{turn.status}", turn.as_json())
        self._publisher.put(lambda: self._events.append(turn.id, [final], least=1))

    def deliver(self, delivery_id: str) -> None:
        self._publisher.put(lambda: self._dispatcher.deliver(delivery_id))

    def went_on(self, step: RunStep) -> None:
        """Tell of what a step of a workflow's run has done; a worker, which looks at the run, tells the monitor."""
        self._publisher.put(lambda: self._steps.tell(step))
        self._publisher.put(lambda: self._dispatcher.advance(step.run.id))

    def close(self) -> None:
        """Send what waits, then stop."""
        self._publisher.close()

    def _accepted(self, turn: Turn) -> None:
        if self._signals.accepted(turn):
            self._wakeups.wake(turn.lane)

    def _alert(self, lane: str) -> None:
        if self._lanes.alert(lane):
            self._wakeups.wake(lane)
