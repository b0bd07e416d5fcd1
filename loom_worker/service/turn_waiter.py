"""Waiting for a turn's end, and reading its events while it runs and after."""

from collections.abc import Mapping

from loom_worker.core.values.turns import Turn
from loom_worker.events.log import EventLog
from loom_worker.service.event_source import EventSource
from loom_worker.service.wait_reports import WaitReports
from loom_worker.service.waiter import Waiter
from loom_worker.store.turns import Turns, TurnStatuses


class TurnWaiter(Waiter[Turn]):
    """Waits for turns to end, and reads their events, for clients."""

    def __init__(self, turns: Turns, events: EventLog, waits: WaitReports, statuses: TurnStatuses) -> None:
        super().__init__(turns, EventSource(turns, events), statuses, events, waits)
        self.waits = waits
        self._events = events

    @property
    def event_log(self) -> EventLog:
        """What readers read."""
        return self._events

    def forget(self, turns: Mapping[str, bool]) -> None:
        """Remove the events of turns whose session is deleted; see EventLog.forget.

        Raises:
            Unavailable: Redis did not answer.
        """
        self._events.forget(turns)
