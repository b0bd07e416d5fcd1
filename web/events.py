"""Events of turns and runs as server-sent events: each leaves at once, and a reader can go on where it stopped."""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol

from flask import Response, request

from loom_worker.core import log_context
from loom_worker.core.errors import LoomError, NotFound
from loom_worker.core.values.notifications import Event
from loom_worker.core.values.turns import Turn
from web.answers import Route, encode, known_id
from web.caller import caller
from web.connection_limits import ConnectionLimiter
from web.continuations import HttpTask, coroutine_of
from web.detached import can_detach, detach
from web.long_polls import A
from web.problems import busy
from web.query import whole_argument, whole_number

if TYPE_CHECKING:
    from loom_worker.service.event_source import Place
    from loom_worker.service.followed import EventBatch, FollowedReader
    from loom_worker.service.keys import Keys
    from loom_worker.service.service import Service
    from loom_worker.service.waiter import Waiter

log = logging.getLogger("loom.web")

OPENING = b"retry: 1000\n\n"
"""Sent at once, as headers leave with the first bytes only; a reader that is cut off comes back after 1000 ms."""
HEARTBEAT = b": still here\n\n"
GONE = b": it is gone\n\n"
"""For people who look on: programs skip comments, come back, and get 404, which ends an EventSource for good."""
AHEAD_BYTES = 64 * 1024
"""A reader is given nothing while it has not taken so many bytes."""


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
        """See Frames."""
        return b"".join(map(frame, events))

    def of_batch(self, batch: "EventBatch") -> bytes:
        """See Frames: they are written once."""
        batch.framed = batch.framed or self.of_events(batch.events)
        return batch.framed


class EventViews:
    """The view of ``/v1/turns/{t}/events``."""

    def __init__(self, service: "Service", limiter: ConnectionLimiter) -> None:
        self._service = service
        self._limiter = limiter

    def routes(self) -> tuple[Route, ...]:
        """Where the view is mounted."""
        return (Route("GET", "/v1/turns/<turn_id>/events", self.stream),)

    def stream(self, turn_id: str) -> Response:
        """Stream a turn's events until its final one."""
        return EventStreams(self._service.waiter, self._service.keys, self._limiter).of(known_id(turn_id, "turn"))


class EventStreams(Generic[A]):
    """Streams the events of turns, or of runs."""

    def __init__(self, waiter: "Waiter[A]", keys: "Keys", limiter: ConnectionLimiter) -> None:
        self._waiter = waiter
        self._keys = keys
        self._limiter = limiter

    def of(self, awaited_id: str) -> Response:
        """Stream its events until the final one.

        Raises:
            NotFound: the caller has none of that id.
        """
        given = request.headers.get("Last-Event-ID")
        # A reader that comes back sends this header, which is newer than its URL.
        after = whole_number(given, "Last-Event-ID") if given else whole_argument("starting_after", 0)
        return self.behind(self._waiter.look(caller().tenant, awaited_id), after, NativeFrames())

    def behind(self, awaited: A, after: int, frames: Frames) -> Response:
        """Stream the events behind an id until the final one, or until the frames are over."""
        tenant, waiter = caller().tenant, self._waiter
        if isinstance(awaited, Turn):
            log_context.add(log_context.turn_ids(awaited))
        if not can_detach() or request.method == "HEAD":
            events = waiter.events(tenant, awaited.id, after=after, is_stopping=self._until_the_key_ends())
            return self._in_this_thread(events, awaited.id, frames)
        place, first = waiter.begin(tenant, awaited, after=after)
        self._take_slot()
        detach(coroutine_of(_EventStream(waiter, self._keys, self._limiter, place, frames)), holds_answer=False)
        return _answer(iter([OPENING + frames.opening() + frames.of_events(first)]))

    def _take_slot(self) -> None:
        if not self._limiter.enter(*caller().holders):
            detail = "all slots for event streams are taken, or your share of them; poll the turn meanwhile"
            raise busy("too-many-waiting", detail)

    def _in_this_thread(self, events: Iterator[Event | None], turn_id: str, frames: Frames) -> Response:
        """For servers that let no request leave its thread."""
        self._take_slot()
        answer = _answer(_framed(events, turn_id, frames))
        # Called however the answer ends: read to its end, dropped by the client, or never begun (HEAD).
        answer.call_on_close(partial(self._limiter.leave, *caller().holders))
        return answer

    def _until_the_key_ends(self) -> Callable[[], bool]:
        """True once this process stops, or the reader's key is revoked or has expired: a turn can wait for a day."""
        is_leaving, holder = self._limiter.leaving(), caller().holder
        return lambda: is_leaving() or self._keys.has_ended(holder)


class _EventStream(Generic[A]):
    """A stream of events that goes on without a thread."""

    holds_answer = False

    def __init__(
        self, waiter: "Waiter[A]", keys: "Keys", limiter: ConnectionLimiter, place: "Place", frames: Frames
    ) -> None:
        self._waiter = waiter
        self._frames = frames
        self._keys = keys
        self._limiter = limiter
        self._place = place
        self._holder, self._holders = caller().holder, caller().holders
        self._ids = log_context.ids()
        self._task: HttpTask | None = None
        self._reader: FollowedReader | None = None
        self._has_left = self._is_full = False

    def begin(self, task: HttpTask) -> None:
        self._task = task
        self._reader = self._waiter.follow(self._place, self)
        if self._has_left:
            self._waiter.leave(self._reader)

    def leave(self) -> None:
        self._has_left = True
        if self._reader is not None:
            self._waiter.leave(self._reader)

    def resume(self) -> None:
        if self._is_full and self._reader is not None and self.has_room():
            self._waiter.resume(self._reader)

    def conclude(self) -> bool:
        return True

    def close(self) -> None:
        self._limiter.leave(*self._holders)

    def has_room(self) -> bool:
        self._is_full = self._task is not None and self._task.unsent_bytes >= AHEAD_BYTES
        return not self._is_full

    def is_barred(self) -> bool:
        return self._keys.has_ended(self._holder)

    def send(self, batch: "EventBatch") -> None:
        self._send(self._frames.of_batch(batch))
        if self._frames.is_over:
            self.leave()

    def wait_words(self) -> str:
        return self._waiter.in_words(self._place)

    def send_heartbeat(self, words: str) -> None:
        self._send(b": %s\n\n" % words.encode() if words else HEARTBEAT)

    def end(self, error: LoomError | None) -> None:
        if isinstance(error, NotFound):
            self._send(GONE)
        elif error is not None:
            with log_context.about(self._ids):
                _tell_cut(self._place.turn_id, error)
        if self._task is not None:
            self._task.end()

    def _send(self, frames: bytes) -> None:
        if self._task is not None and frames:
            self._task.send(frames)


def frame(event: Event) -> bytes:
    """One event on the wire; JSON text has no line breaks, so ``data`` is one line."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, event.type.encode("ascii"), encode(event.data))


def _answer(frames: Iterator[bytes]) -> Response:
    answer = Response(frames, content_type="text/event-stream; charset=utf-8")
    answer.headers["X-Accel-Buffering"] = "no"
    return answer


def _framed(events: Iterator[Event | None], turn_id: str, frames: Frames) -> Iterator[bytes]:
    yield OPENING + frames.opening()
    try:
        for event in events:
            yield HEARTBEAT if event is None else frames.of_events([event])
            if frames.is_over:
                return
    except NotFound:
        yield GONE
    except LoomError as error:
        _tell_cut(turn_id, error)


def _tell_cut(turn_id: str, error: LoomError) -> None:
    # The answer has begun, so its status is spent: end it, and the reader comes back with Last-Event-ID.
    log.warning("events of %s cut: %s", turn_id, error)
