"""Tells workers and readers what a client did."""

from collections import deque

from loom_worker.core.values.turns import Turn
from loom_worker.events.log import EventLog
from loom_worker.events.turn_signals import TurnSignals
from loom_worker.lanes.lanes import Lanes
from loom_worker.tasks.dispatch import CeleryDispatcher, Publisher
from loom_worker.tasks.wakeups import WakeupQueue

MOST_AT_ONCE = 50
"""Turns that are announced in one round trip."""
MOST_WAITING = 10_000
"""Accepted turns that wait while Redis does not answer; those that came first are left to the sweep."""


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
        publisher: Publisher,
    ) -> None:
        self._signals = signals
        self._lanes = lanes
        self._events = events
        self._wakeups = wakeups
        self._dispatcher = dispatcher
        self._publisher = publisher
        self._accepted_turns: deque[Turn] = deque(maxlen=MOST_WAITING)

    def accepted(self, turn: Turn) -> None:
        """Put an accepted turn on its lane and wake it."""
        self._accepted_turns.append(turn)
        self._publisher.put(self._tell_accepted)

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
        """Send a webhook delivery now."""
        self._publisher.put(lambda: self._dispatcher.deliver(delivery_id))

    def close(self) -> None:
        """Send what waits, then stop; see Publisher.close."""
        self._publisher.close()

    def _tell_accepted(self) -> None:
        """Announce all that were accepted since the last time, for under load there are several."""
        waiting = self._accepted_turns
        turns: list[Turn] = []
        while waiting and len(turns) < MOST_AT_ONCE:
            turns.append(waiting.popleft())
        for turn in self._signals.accepted(*turns):
            self._wakeups.wake(turn.lane)

    def _alert(self, lane: str) -> None:
        if self._lanes.alert(lane):
            self._wakeups.wake(lane)
