"""Requests that wait without a thread: how a view leaves one, and how it goes on."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from flask import request
from waitress.channel import ClientDisconnected
from waitress.task import Task, WSGITask
from werkzeug.http import HTTP_STATUS_CODES

DETACH = "loom.detach"
"""The key of WSGI's environ under which a view finds ``HttpTask.detach``; other servers than ours have none."""


class Detached(BaseException):
    """The request goes on without this thread. Not an Exception: waitress would take it for one of the application."""


@dataclass(frozen=True, slots=True)
class FinalAnswer:
    """An answer that was not known when the view returned; the headers that the view gave it are kept."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Continuation(Protocol):
    """How a request goes on that has left its thread."""

    holds_answer: bool
    """True: of what the view returned nothing is sent but its headers, with the final answer."""

    def begin(self, task: "HttpTask") -> None:
        """Go on from here; what was to be sent so far is sent. ``task.end`` is called once, at any time from now on."""

    def conclude(self) -> FinalAnswer | bool:
        """With a thread again, after ``task.end``: the rest of the answer; True: there is none; False: not over yet."""

    def leave(self) -> None:
        """The client has gone, or says no more; called by any thread, perhaps more than once."""

    def resume(self) -> None:
        """The client has taken some of what it was sent."""

    def close(self) -> None:
        """The request is over, however it ended; called once."""


def can_detach() -> bool:
    """True if the current request can wait without a thread."""
    return DETACH in request.environ


def detach(continuation: Continuation) -> None:
    """Let the current request go on without its thread once the view has returned."""
    request.environ[DETACH](continuation)


class HttpTask(WSGITask):  # type: ignore[misc]  # waitress has no types
    """A request that is served, by one thread after the other if it waits between."""

    continuation: Continuation | None = None
    _is_concluding = False

    def get_environment(self) -> dict[str, Any]:
        """WSGI's environ, with the way to leave the thread."""
        environ: dict[str, Any] = super().get_environment()
        environ[DETACH] = self._detach
        return environ

    def service(self) -> None:
        """Serve the request, or what is left of it.

        Raises:
            Detached: it goes on without a thread.
        """
        if self.continuation is not None:
            self._conclude(self.continuation)
        else:
            super().service()

    def write(self, data: bytes) -> None:
        """Send a piece of the answer, unless it is only held."""
        if self.continuation is None or not self.continuation.holds_answer or self._is_concluding:
            super().write(data)

    def finish(self) -> None:
        """End the answer, or leave the thread."""
        if self.continuation is not None:
            self._park(self.continuation)
        super().finish()

    def send(self, data: bytes) -> None:
        """Send a piece of an answer whose request has left its thread; of one whose client has gone, nothing."""
        with suppress(ClientDisconnected):
            self.write(data)

    def end(self) -> None:
        """The wait is over: a thread is to conclude the request; by any thread."""
        self.channel.unpark()

    @property
    def unsent_bytes(self) -> int:
        """Of the answer, not yet taken by the client."""
        return int(self.channel.unsent_bytes)

    def _detach(self, continuation: Continuation) -> None:
        self.continuation = continuation

    def _park(self, continuation: Continuation) -> None:
        self.channel.park(self)
        # From here on another thread may go on with the request.
        continuation.begin(self)
        if not self.channel.connected:
            continuation.leave()
        raise Detached

    def _conclude(self, continuation: Continuation) -> None:
        answer = continuation.conclude()
        if answer is False:
            self._park(continuation)
        self._is_concluding = True
        try:
            if isinstance(answer, FinalAnswer):
                self._answer(answer)
            Task.finish(self)
        except OSError:  # as waitress has it
            self.close_on_finish = True

    def _answer(self, answer: FinalAnswer) -> None:
        given = {name.lower() for name in answer.headers} | {"content-length"}
        kept = [header for header in self.response_headers if header[0].lower() not in given]
        self.response_headers: list[tuple[str, str]] = [*kept, *answer.headers.items()]
        self.status = f"{answer.status} {HTTP_STATUS_CODES[answer.status]}"
        self.content_length = len(answer.body)
        if self.request.command != "HEAD":
            self.write(answer.body)
