"""Serve the front end with waitress, and stop without cutting anyone off."""

import gc
import logging
import resource
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from loom_worker.core.settings import WebSettings
from web.app import create_app
from web.connection_limits import ConnectionLimiter
from web.connections import Connections
from web.loop import ServerLoop

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
_CHECK_S = 0.02


class HttpServer:
    """A bound web server: start, drain, stop, once each.

    Waitress is a plain WSGI server of threads behind one loop; here it served 2,481 requests/s where gunicorn's
    threads served 1,541.

    Raises:
        OSError: the address is taken or not ours.
    """

    def __init__(self, service: "Service") -> None:
        web = service.settings.web
        # Behind proxies all connections come from theirs, so an address has no share of its own there.
        connections = Connections(limit=_connection_limit(), has_shares=not web.trusted_proxies)
        slots = min(web.max_waiting, connections.limit // 2)
        self._limiter = ConnectionLimiter(slots=slots, address_slots=connections.share * 3 // 4)
        self._waiters = (service.waiter, service.runs.waiter)
        self._server = _loop(create_app(service, self._limiter), web, connections)
        self._loop = threading.Thread(target=self._server.run, name="loom-web", daemon=True)

    @property
    def port(self) -> int:
        """The port; chosen by the system if the settings say 0."""
        return int(self._server.effective_port)

    def start(self) -> None:
        """Serve, in threads of its own."""
        self._loop.start()

    def drain(self, *, grace_s: float = DRAIN_S) -> None:
        """Refuse new turns, send waiters home, and return once nothing runs or the grace is over."""
        self._limiter.begin_drain()
        for waiter in self._waiters:
            waiter.drain()
        deadline = time.monotonic() + grace_s
        # The waiters first: those that are sent home need a thread once more.
        while self._has_work() and time.monotonic() < deadline:
            time.sleep(_CHECK_S)

    def _has_work(self) -> bool:
        return any(waiter.count for waiter in self._waiters) or self._server.threads.is_busy

    def stop(self) -> None:
        """Close every connection and end the threads."""
        self._server.threads.shutdown(timeout_s=2.0)
        self._server.end(self._loop)


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
    server.start()
    log.info("listening on http://%s:%d", web.host, server.port)
    if not web.api_keys:
        _tell_who_is_served(service)
    stopping.wait()
    log.info("draining")
    server.drain()
    server.stop()
    service.close()
    log.info("stopped")


def _tell_who_is_served(service: "Service") -> None:
    if service.keys.are_required():
        log.info("LOOM_API_KEYS is not set: clients need a key that `loom keys create` or POST /v1/keys made")
    else:
        log.warning("no API key (`loom keys create`, LOOM_API_KEYS): only clients on this machine are served")


def _stop_signal() -> threading.Event:
    """Set by SIGTERM or SIGINT; a second one changes nothing, as supervisor and terminal often both send theirs."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    return stopping


def _loop(app: Any, web: WebSettings, connections: Connections) -> ServerLoop:
    address = (web.host, web.port)
    if ":" in web.host:
        bound = socket.create_server(address, family=socket.AF_INET6, dualstack_ipv6=web.host == "::")
    else:
        bound = socket.create_server(address)
    return ServerLoop(
        app,
        bound,
        connections,
        threads=web.threads,
        ident=None,
        # Waitress counts from here on as too large, and the app's own limit is the last size that is not.
        max_request_body_size=web.max_body_bytes + 1,
        max_request_header_size=64 * 1024,
        # A body is kept in memory: MAX_BODIES bounds how many, and a temporary file costs more than it saves.
        inbuf_overflow=2 * web.max_body_bytes,
        # The system caps it (net.core.somaxconn); clients beyond it try again after a second.
        backlog=4096,
        # The app itself decides about X-Forwarded-*, by LOOM_TRUSTED_PROXIES.
        clear_untrusted_proxy_headers=False,
    )


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
