"""A turn's events as server-sent events: each leaves at once, and a reader can go on where it stopped."""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from flask import Response, request

from loom_worker.core import log_context
from loom_worker.core.errors import LoomError, NotFound
from loom_worker.core.values.notifications import Event
from web.answers import Route, encode
from web.caller import caller
from web.connection_limits import ConnectionLimiter
from web.problems import busy
from web.query import whole_argument, whole_number
from web.turns import known_turn_id

if TYPE_CHECKING:
    from loom_worker.service.service import Service

log = logging.getLogger("loom.web")

OPENING = b"retry: 1000\n\n"
"""Sent at once, as headers leave with the first bytes only; a reader that is cut off comes back after 1000 ms."""
HEARTBEAT = b": still here\n\n"
GONE = b": the turn is gone\n\n"
"""For people who look on: programs skip comments, come back, and get 404, which ends an EventSource for good."""


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
        given = request.headers.get("Last-Event-ID")
        # A reader that comes back sends this header, which is newer than its URL.
        after = whole_number(given, "Last-Event-ID") if given else whole_argument("starting_after", 0)
        tenant = caller().tenant
        turn = self._service.turn(tenant, known_turn_id(turn_id))
        log_context.add(log_context.turn_ids(turn))
        holders = caller().holders
        if not self._limiter.enter(*holders):
            detail = "all slots for event streams are taken, or your share of them; poll the turn meanwhile"
            raise busy("too-many-waiting", detail)
        events = self._service.waiter.events(tenant, turn.id, after=after, is_stopping=self._until_the_key_ends())
        answer = Response(_frames(events, turn.id), content_type="text/event-stream; charset=utf-8")
        # Called however the answer ends: read to its end, dropped by the client, or never begun (HEAD).
        answer.call_on_close(partial(self._limiter.leave, *holders))
        answer.headers["X-Accel-Buffering"] = "no"
        return answer

    def _until_the_key_ends(self) -> Callable[[], bool]:
        """True once this process stops, or the reader's key is revoked or has expired: a turn can wait for a day."""
        is_leaving, holder = self._limiter.leaving(), caller().holder
        return lambda: is_leaving() or self._service.keys.has_ended(holder)


def frame(event: Event) -> bytes:
    """One event on the wire; JSON text has no line breaks, so ``data`` is one line."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, event.type.encode("ascii"), encode(event.data))


def _frames(events: Iterator[Event | None], turn_id: str) -> Iterator[bytes]:
    yield OPENING
    try:
        for event in events:
            yield HEARTBEAT if event is None else frame(event)
    except NotFound:
        yield GONE
    except LoomError as error:
        # The answer has begun, so its status is spent: end it, and the reader comes back with Last-Event-ID.
        log.warning("events of %s cut: %s", turn_id, error)
