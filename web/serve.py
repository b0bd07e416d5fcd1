"""Serve the front end with uvicorn, and stop without cutting anyone off."""

import asyncio
import errno
import gc
import logging
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn

from loom_worker.core.settings_tree import WebSettings
from web.app import create_app, most_streamed
from web.connection_limits import ConnectionLimiter
from web.connections import STUCK_S, Connections
from web.http_connection import HttpConnection, Served
from web.request_threads import RequestThreads

if TYPE_CHECKING:
    from loom_worker.service.service import Service

log = logging.getLogger("loom.web")

DRAIN_S = 4.0
"""Requests that still run when the process stops get this long; with the rest it stays within 5 s."""
MAX_CONNECTIONS = 8192
"""Open connections, idle ones among them; 4 kB each."""
SWITCH_S = 0.0002
"""A thread that waits for Python's interpreter lock asks for it after so long. With 5 ms, the default, a transaction
that gives the lock away with each statement took 190 ms beside 25 clients (measured)."""
OTHER_DESCRIPTORS = 1024
"""Kept for files, the database, Redis and the pipes of children."""
TICK_S = 1.0
"""How often connections are looked through for slow ones."""
BACKLOG = 1024
"""Connections that the system keeps until they are accepted, and the most that are accepted in a row."""
FREED_AT_ONCE = 64
"""Connections that go where the system has no descriptors left."""
_CHECK_S = 0.02
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class HttpServer(uvicorn.Server):
    """A bound web server: start, drain, stop, once each. Its loop has a thread of its own.

    Args:
        streams: see ``Served``; None: as the operations say.

    Raises:
        OSError: the address is taken or not ours.
    """

    def __init__(self, service: "Service", *, streams: Callable[[str, str, bool], int] | None = None) -> None:
        web = service.settings.web
        # Behind proxies all connections come from theirs, so an address has no share of its own there.
        self._known = Connections(limit=_connection_limit(), has_shares=not web.trusted_proxies)
        slots = min(web.max_waiting, self._known.limit // 2)
        self._limiter = ConnectionLimiter(slots=slots, address_slots=self._known.share * 3 // 4)
        self._waiters = (service.waiter, service.runs.waiter)
        self._listener = _listener(web)
        self.port = int(self._listener.getsockname()[1])
        options: dict[str, Any] = {"lifespan": "off", "loop": "asyncio", "ws": "none", "log_config": None}
        options |= {"access_log": False, "proxy_headers": False, "server_header": False, "backlog": BACKLOG}
        # "asgi3" is not wrapped: HttpConnection calls the application itself, as the WSGI that it is.
        app = create_app(service, self._limiter)
        super().__init__(uvicorn.Config(app, http=HttpConnection, interface="asgi3", **options))
        self._threads = RequestThreads(web.threads)
        streams = streams or partial(most_streamed, service.settings.files.most_bytes)
        self.server_state = Served(self._known, self._threads, web.max_body_bytes, streams)
        self._is_up, self._is_over = threading.Event(), asyncio.Event()
        self._loop = threading.Thread(target=self.run, args=([self._listener],), name="loom-web", daemon=True)

    def start(self) -> None:
        """Serve, in threads of its own."""
        self._loop.start()
        self._is_up.wait()

    def drain(self, *, grace_s: float = DRAIN_S) -> None:
        """Refuse new turns, send waiters home, and return once nothing runs or the grace is over."""
        self._limiter.begin_drain()
        for waiter in self._waiters:
            waiter.drain()
        deadline = time.monotonic() + grace_s
        while self._known.are_running and time.monotonic() < deadline:
            time.sleep(_CHECK_S)

    def stop(self) -> None:
        """Close every connection and end the threads."""
        self._threads.shutdown(timeout_s=2.0)
        self._threads.hand_over(self._is_over.set)
        self._loop.join(timeout=1)

    async def main_loop(self) -> None:
        """Look once a second for connections that are too slow, until the server stops."""
        self._threads.loop = loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_error)
        self._is_up.set()
        while not self._is_over.is_set():
            await self.on_tick(0)  # sets the date of answers
            for late in self._known.overdue(time.monotonic()):
                self._known.drop(late, "too slow")
            self._known.report(time.monotonic())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_over.wait(), TICK_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the listener and all connections, without waiting for what runs."""
        for server in self.servers:
            server.close()
        for connection in tuple(self.server_state.connections):
            connection.shutdown()

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Without descriptors asyncio accepts nothing for a second, and says so here: some must go meanwhile."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _EXHAUSTED:
            loop.default_exception_handler(context)
            return
        for _ in range(FREED_AT_ONCE):
            self._known.drop(self._known.idlest(), "no file descriptors")


def serve(service: "Service") -> None:
    """Serve until SIGTERM or SIGINT, then drain and return, within about 5 s; for the main thread.

    Raises:
        SystemExit: 1, with one line that says why, if the address cannot be bound.
    """
    web = service.settings.web
    try:
        server = HttpServer(service)
    except OSError as error:
        service.close()
        raise SystemExit(f"loom web: cannot listen on {web.host}:{web.port}: {error.strerror or error}") from error
    stopping = _stop_signal()
    gc.collect()
    sys.setswitchinterval(SWITCH_S)
    gc.freeze()  # what is loaded by now stays: full collections need not look through it again
    need_key = service.keys.are_required()  # before strangers can take the descriptors that the database needs
    server.start()
    log.info("listening on http://%s:%d", web.host, server.port)
    if not web.api_keys:
        _tell_who_is_served(need_key=need_key)
    stopping.wait()
    log.info("draining")
    server.drain()
    server.stop()
    service.close()
    log.info("stopped")


def _tell_who_is_served(*, need_key: bool) -> None:
    if need_key:
        log.info("LOOM_API_KEYS is not set: clients need a key that `loom keys create` or POST /v1/keys made")
    else:
        log.warning("no API key (`loom keys create`, LOOM_API_KEYS): only clients on this machine are served")


def _stop_signal() -> threading.Event:
    """Set by SIGTERM or SIGINT; a second one changes nothing, as supervisor and terminal often both send theirs."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    return stopping


def _listener(web: WebSettings) -> socket.socket:
    address = (web.host, web.port)
    if ":" in web.host:
        bound = socket.create_server(address, family=socket.AF_INET6, dualstack_ipv6=web.host == "::")
    else:
        bound = socket.create_server(address)
    # What is accepted has these options, too.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # What the client does not take lies in the system's buffer first, where Loom does not see it (Linux, tcp(7)).
        # Twice as long, so that Loom notices first and can answer the client, which the system does not.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(2 * STUCK_S * 1000))
    return bound


def _connection_limit() -> int:
    """How many connections there may be, after the soft limit of descriptors was raised as far as needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = MAX_CONNECTIONS + OTHER_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    # With few descriptors half of them: the store and Redis need theirs.
    return max(1, min(MAX_CONNECTIONS, soft - min(OTHER_DESCRIPTORS, soft // 2)))
