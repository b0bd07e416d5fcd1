"""What a reader of a run's events gets next; the log of a run is a table, so nothing of it is ever lost or rebuilt."""

from collections.abc import Mapping
from dataclasses import replace

from loom_worker.core.values.notifications import Event
from loom_worker.core.values.runs import Run
from loom_worker.core.values.tenants import Tenant
from loom_worker.service.event_source import READ_EVENTS, Place
from loom_worker.store.runs import Runs


class RunEventSource:
    """Reads the events of runs for readers; used by many threads."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def begin(self, tenant: Tenant, run: Run, *, after: int) -> tuple[Place, tuple[Event, ...]]:
        """A reader's place behind an id, and what it is told before anything else: that it knows more than there is."""
        place = Place(tenant, run.id, after, run.is_finished)
        if after <= run.events:
            return place, ()
        place.after = 0
        return place, (Event(0, "stream.reset", {"run_id": run.id}),)

    def advance(self, place: Place) -> tuple[Event, ...]:
        """The next events, a limited number of them, and moves the place behind them; () if there are none now.

        Raises:
            NotFound: the tenant has no such run.
            Unavailable: the database did not answer.
        """
        has_ended = self._runs.has_ended(place.tenant, place.turn_id)
        events = self._runs.events(place.turn_id, after=place.after, limit=READ_EVENTS)
        if events and events[-1].is_final:
            ended = self._runs.get(place.tenant, place.turn_id)
            events = (*events[:-1], replace(events[-1], data=ended.as_json()))
        place.is_finished = has_ended
        place.move(events)
        if not events and has_ended:
            place.is_over = True  # the reader has had the end already
        return events

    def read_many(self, places: Mapping[str, int]) -> dict[str, tuple[Event, ...]]:
        """What the logs have now behind an id, by run; a log that has nothing there is missing.

        Raises:
            Unavailable: the database did not answer.
        """
        found = {run_id: self._runs.events(run_id, after=after, limit=READ_EVENTS) for run_id, after in places.items()}
        return {run_id: events for run_id, events in found.items() if events}
