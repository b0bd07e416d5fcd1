"""The loop that owns all connections: accepts, reads, writes, and drops those that are too many or too slow.

Waitress looks at every connection in each round (5,000 idle ones cost it 20 ms a round), takes one new connection a
round, stops listening when it has too many, and takes any byte for a sign of life. Here a round costs what happens in
it: connections stand in the selector, and one that a thread has changed is looked at once that thread has noted it.
"""

import errno
import logging
import select
import selectors
import socket
import struct
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.server import TcpWSGIServer

from web.channel import HttpChannel
from web.connections import STUCK_S, Connections
from web.request_threads import RequestThreads

log = logging.getLogger("loom.web")

ACCEPTS_A_ROUND = 64
"""New connections taken before the others are served again."""
TICK_S = 1.0
"""How often connections are looked through for slow ones."""
REPORT_S = 60.0
"""How often the log says what was dropped, if anything was."""
_PAUSE_S = 0.1
"""Without descriptors nothing is accepted for so long."""
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class ServerLoop(TcpWSGIServer):  # type: ignore[misc]  # waitress has no types
    """A server of waitress with a loop of our own.

    Args:
        listener: bound; the loop closes it.
        connections: empty; the loop alone uses it.
        options: of waitress' Adjustments.
    """

    def __init__(self, app: Any, listener: socket.socket, connections: Connections, **options: Any) -> None:
        adjustments = Adjustments(sockets=[listener], **options)
        adjustments.socket_options = _socket_options()
        self.threads = RequestThreads(adjustments.threads)
        self.thread_id = 0
        self._connections = connections
        self._selector = selectors.DefaultSelector()
        self._noted: deque[HttpChannel] = deque()
        self._dropped: dict[str, int] = {}
        self._next_tick_s = self._next_report_s = self._paused_until_s = 0.0
        self._is_ending = self._is_woken = False
        sockinfo = (listener.family, listener.type, listener.proto, listener.getsockname())
        super().__init__(
            app, {}, True, listener, dispatcher=self.threads, adj=adjustments, bind_socket=False, sockinfo=sockinfo
        )

    def run(self) -> None:
        """Serve until stopped."""
        self.thread_id = threading.get_ident()
        for each in (self, self.trigger):
            self._selector.register(each._fileno, selectors.EVENT_READ, each)
        while not self._is_ending:
            self._round()

    def note(self, made: HttpChannel) -> None:
        """A connection has changed: look at it now; for any thread."""
        self._noted.append(made)
        self.pull_trigger()

    def pull_trigger(self) -> None:
        """Begin another round now; for any thread."""
        if not (self._is_woken or self._is_ending):  # once it has ended, its pipe may be another's file
            self._is_woken = True
            super().pull_trigger()

    def end(self, thread: threading.Thread) -> None:
        """End the loop, which runs in a thread, and close every connection, the listener and the trigger."""
        self._is_ending = True
        self.trigger.pull_trigger()
        thread.join(timeout=1)
        if not thread.is_alive():
            # Not by the loop as it ends: we, who wake it, might find another file under the number of its pipe.
            wasyncore.close_all(self._map)
            self._selector.close()

    def add_task(self, task: HttpChannel) -> None:
        """Have a request served; for any thread."""
        if self.threads.add_task(task) and threading.get_ident() != self.thread_id:
            self.pull_trigger()  # the loop sleeps until something is due, and this may be sooner

    def forget(self, made: Any, descriptor: int | None) -> None:
        """A connection or the listener is about to be closed; waitress may say so twice, without descriptor then."""
        if descriptor is None:
            return
        self._connections.remove(made)
        with suppress(KeyError):  # Nothing is wanted of it while its request runs.
            self._selector.unregister(descriptor)

    def del_channel(self, map: Any = None) -> None:
        """Called by waitress when the listener is closed."""
        self.forget(self, self._fileno)
        super().del_channel(map)

    def handle_accept(self) -> None:
        """Take what waits, but let those served that are here already."""
        for _ in range(ACCEPTS_A_ROUND):
            try:
                accepted = self.accept()
            except OSError as error:
                self._without_descriptors(error)
                return
            if accepted is None:
                return
            self._admit(*accepted)

    def _admit(self, connection: socket.socket, address: Any) -> None:
        is_over, idlest = self._connections.over_limit(address[0])
        if is_over:
            self._drop(idlest, "too many connections")
        if is_over and idlest is None:
            connection.close()
            return
        try:
            self.set_socket_options(connection)
            made = HttpChannel(self, connection, address, self.adj, map=self._map)
        except OSError:
            connection.close()  # It has gone already.
            return
        self._connections.add(made, address[0], time.monotonic())
        self._review(made)

    def _without_descriptors(self, error: OSError) -> None:
        """The listener stays readable while nothing can be accepted: not to look at it is what keeps the CPU free."""
        if error.errno not in _EXHAUSTED:
            return  # The client left before it was accepted.
        idlest = self._connections.idlest()
        if idlest is not None:
            self._drop(idlest, "no file descriptors")
            return
        self._paused_until_s = time.monotonic() + _PAUSE_S
        self._selector.unregister(self._fileno)

    def _round(self) -> None:
        self._is_woken = False  # first: what is noted from here on wakes the next round
        while self._noted:
            self._review(self._noted.popleft())
        due_in_s = self.threads.due_in_s()
        longest_s = _PAUSE_S if self._paused_until_s else TICK_S
        for key, events in self._selector.select(longest_s if due_in_s is None else min(due_in_s, longest_s)):
            if self._map.get(key.fd) is key.data:
                flags = select.POLLIN if events & selectors.EVENT_READ else 0
                flags |= select.POLLOUT if events & selectors.EVENT_WRITE else 0
                wasyncore.readwrite(key.data, flags)
                if isinstance(key.data, HttpChannel):
                    self._review(key.data)
        if due_in_s is not None:
            self.threads.relieve()
        now_s = time.monotonic()
        if self._paused_until_s and now_s >= self._paused_until_s and self.accepting:
            self._paused_until_s = 0.0
            self._selector.register(self._fileno, selectors.EVENT_READ, self)
        if now_s >= self._next_tick_s:
            self._next_tick_s = now_s + TICK_S
            self._tick(now_s)

    def _tick(self, now_s: float) -> None:
        for made in self._connections.overdue(now_s):
            self._drop(made, "too slow")
        if self._dropped and now_s >= self._next_report_s:
            self._next_report_s = now_s + REPORT_S
            dropped = ", ".join(f"{count} ({why})" for why, count in self._dropped.items())
            log.warning("connections dropped: %s; %d are open", dropped, len(self._connections))
            self._dropped = {}

    def _drop(self, made: Any, why: str) -> None:
        if made is not None:
            self._dropped[why] = self._dropped.get(why, 0) + 1
            if made.unsent_bytes:
                # Or the system would keep what lies in its buffer, and try for minutes to get rid of it.
                made.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            made.handle_close()

    def _review(self, made: HttpChannel) -> None:
        """Book what a connection does now, and what it waits for."""
        if made._fileno is None:
            return
        self._drop(self._connections.move(made, made.stage(), time.monotonic()), "too many uploads")
        if made._fileno is None:
            return
        wanted = (selectors.EVENT_READ if made.readable() else 0) | (selectors.EVENT_WRITE if made.writable() else 0)
        if wanted != made.wanted:
            self._want(made, wanted)

    def _want(self, made: HttpChannel, wanted: int) -> None:
        # A descriptor of which nothing is wanted must leave: the selector would tell again and again that the client
        # has hung up, and a request that runs is not to be disturbed by that.
        if not wanted:
            self._selector.unregister(made._fileno)
        elif made.wanted:
            self._selector.modify(made._fileno, wanted, made)
        else:
            self._selector.register(made._fileno, wanted, made)
        made.wanted = wanted


def _socket_options() -> list[tuple[int, int, int]]:
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # What the client does not take lies in the system's buffer first, where Loom does not see it (Linux, tcp(7)).
        # Twice as long, so that Loom notices first and can answer the client, which the system does not.
        options.append((socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(2 * STUCK_S * 1000)))
    return options
