"""Events of turns and runs as server-sent events: each leaves at once, and a reader can go on where it stopped."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol

from flask import Response, request

from loom_worker.core import log_context
from loom_worker.core.errors import LoomError, NotFound
from loom_worker.core.values.notifications import Event
from loom_worker.core.values.turns import Turn
from web.answers import encode, known_id
from web.caller import ApiCaller, caller
from web.connection_limits import ConnectionLimiter
from web.detached import AHEAD_BYTES, Exchange, can_detach, detach
from web.long_polls import A
from web.operation import Operation, Views
from web.problems import busy
from web.query import whole_number
from web.turns import EVENT, ResumeQuery

if TYPE_CHECKING:
    from loom_worker.service.keys import Keys
    from loom_worker.service.waiting.readers import EventBatch
    from loom_worker.service.waiting.sources import Place
    from loom_worker.service.waiting.waiter import Waiter

log = logging.getLogger("loom.web")

OPENING = b"retry: 1000\n\n"
"""Sent at once, as headers leave with the first bytes only; a reader that is cut off comes back after 1000 ms."""
HEARTBEAT = b": still here\n\n"
GONE = b": it is gone\n\n"
"""For people who look on: programs skip comments, come back, and get 404, which ends an EventSource for good."""


class Frames(Protocol):
    """How the events of one reader are written."""

    @property
    def is_over(self) -> bool:
        """True once nothing more is to be sent, though the events may go on."""

    def opening(self) -> bytes:
        """What is sent before any event."""

    def of_events(self, events: Sequence[Event]) -> bytes:
        """The next events."""

    def of_batch(self, batch: "EventBatch") -> bytes:
        """The next events, which other readers of the turn may get, too."""


class NativeFrames:
    """Events as Loom's own API has them, the same for all readers."""

    is_over = False

    def opening(self) -> bytes:
        """Nothing."""
        return b""

    def of_events(self, events: Sequence[Event]) -> bytes:
        return b"".join(map(frame, events))

    def of_batch(self, batch: "EventBatch") -> bytes:
        batch.framed = batch.framed or self.of_events(batch.events)
        return batch.framed


class EventViews(Views, tag="turns"):
    """The view of ``/v1/turns/{t}/events``."""

    @Operation(
        "GET /v1/turns/{turn_id}/events",
        EVENT,
        headers=("Last-Event-ID",),
        media_type="text/event-stream",
        by_session_token=True,
    )
    def stream(self, turn_id: str, asked: ResumeQuery) -> Response:
        """Stream a turn's events, while it runs and after."""
        streams = EventStreams(self.service.waiter, self.service.keys, self.limiter)
        return streams.of(known_id(turn_id, "turn"), asked.starting_after)


class EventStreams(Generic[A]):
    """Streams the events of turns, or of runs."""

    def __init__(self, waiter: "Waiter[A]", keys: "Keys", limiter: ConnectionLimiter) -> None:
        self._waiter = waiter
        self._keys = keys
        self._limiter = limiter

    def of(self, awaited_id: str, after: int) -> Response:
        """Stream its events until the final one.

        Raises:
            NotFound: the caller has none of that id.
        """
        given = request.headers.get("Last-Event-ID")
        # A reader that comes back sends this header, which is newer than its URL.
        after = whole_number(given, "Last-Event-ID") if given else after
        return self.behind(self._waiter.source.look(caller().tenant, awaited_id), after, NativeFrames())

    def behind(self, awaited: A, after: int, frames: Frames) -> Response:
        """Stream the events behind an id until the final one, or until the frames are over."""
        if isinstance(awaited, Turn):
            log_context.add(log_context.turn_ids(awaited))
        place, first = self._waiter.source.begin(caller().tenant, awaited, after=after)
        opening = OPENING + frames.opening() + frames.of_events(first)
        if not self._limiter.enter(*caller().holders):
            detail = "all slots for event streams are taken, or your share of them; poll the turn meanwhile"
            raise busy("too-many-waiting", detail)
        if can_detach() and request.method != "HEAD":
            detach(partial(self._go_on, place, frames, caller(), log_context.ids()), holds_answer=False)
        else:
            self._limiter.leave(*caller().holders)
            if request.method != "HEAD":  # All there is now: a reader comes back for the rest.
                opening += frames.of_events([*self._waiter.events_now(place)])
        # An iterator has no length: there may be more.
        answer = Response(iter([opening]), content_type="text/event-stream; charset=utf-8")
        answer.headers["X-Accel-Buffering"] = "no"
        return answer

    async def _go_on(
        self, place: "Place", frames: Frames, asking: ApiCaller, ids: log_context.Ids, exchange: Exchange
    ) -> None:
        sink = _Sink(exchange, frames, lambda: self._keys.has_ended(asking.holder))
        try:
            await exchange.until_left(self._waiter.follow(place, sink))
        except NotFound:
            exchange.send(GONE)
        except LoomError as error:
            with log_context.about(ids):
                # The answer has begun, so its status is spent: end it, and the reader comes back with Last-Event-ID.
                log.warning("events of %s cut: %s", place.turn_id, error)
        finally:
            self._limiter.leave(*asking.holders)


@dataclass(frozen=True, slots=True)
class _Sink:
    """Where the events of one reader go."""

    exchange: Exchange
    frames: Frames
    is_barred: Callable[[], bool]

    @property
    def is_over(self) -> bool:
        return self.frames.is_over

    @property
    def has_room(self) -> bool:
        return self.exchange.unsent_bytes < AHEAD_BYTES

    async def taken(self) -> None:
        await self.exchange.taken()

    def framed(self, batch: "EventBatch") -> bytes:
        return self.frames.of_batch(batch)

    def send(self, data: bytes) -> None:
        self.exchange.send(data)

    def send_heartbeat(self, words: str) -> None:
        self.exchange.send(b": %s\n\n" % words.encode() if words else HEARTBEAT)


def frame(event: Event) -> bytes:
    """One event on the wire; JSON text has no line breaks, so ``data`` is one line."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, event.type.encode("ascii"), encode(event.data))
