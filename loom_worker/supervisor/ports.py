"""Which port is free."""

import errno
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from loom_worker.core.errors import BadSettings, LoomError

ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  # compared with, not listened on
HAS_ABSTRACT_NAMES = sys.platform == "linux"
TRIED_AFTER = 20
"""So many ports after the default are tried."""


class PortTaken(LoomError):
    """Somebody else listens there."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """How an address and a port are chosen, for errors."""

    host: str
    port: str
    near: str
    """How another port is chosen; it is formatted with one as ``port``."""


WEB = Chosen("LOOM_HOST", "LOOM_PORT", "`loom up --port {port}` (make up PORT={port}, or LOOM_PORT)")
FLOWER = Chosen("LOOM_FLOWER_ADDRESS", "LOOM_FLOWER_PORT", "LOOM_FLOWER_PORT={port}")


@contextmanager
def reserved(host: str, port: int, *, is_explicit: bool, by: Chosen = WEB) -> Iterator[int]:
    """The port to listen on: the one asked for, or, if nobody asked for it, the next free one.

    No other `loom up` on this machine chooses it meanwhile: between choosing and listening lie seconds.

    Raises:
        PortTaken: it was asked for and is taken, or none of the next ones is free.
        BadSettings: no port of this host can be listened on, or not this one.
    """
    number, token = _first_free(host, port, last=port if is_explicit else min(port + TRIED_AFTER, 65_535), by=by)
    with token:
        yield number


def _first_free(host: str, port: int, *, last: int, by: Chosen) -> tuple[int, socket.socket]:
    for number in range(port, last + 1):
        if is_free(host, number, by) and (token := _token(number)):
            return number, token
    if last == port:
        raise PortTaken(f"port {port} is taken on {host}; choose another with {by.near.format(port=_near(port))}")
    raise PortTaken(f"ports {port}-{last} are all taken on {host}; choose one with {by.near.format(port='N')}")


def _token(port: int) -> socket.socket | None:
    """A claim on the port that only Looms heed, gone with this process; None if another has it.

    The abstract names of Linux belong to the network namespace, as ports do. Elsewhere nothing is claimed.
    """
    token = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        if HAS_ABSTRACT_NAMES:
            token.bind(f"\0loom-port-{port}")
    except OSError:
        token.close()
        return None
    return token


def is_free(host: str, port: int, by: Chosen = WEB) -> bool:
    """True if this process could listen there now, False if somebody else does.

    Raises:
        BadSettings: nobody could: the host is no address of this machine, or the port is reserved for root.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: a connection in TIME_WAIT from the last run does not count as taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        # A name that no name could be, such as one with two dots in a row, is a UnicodeError.
        except (OSError, UnicodeError) as error:
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                return False
            raise unusable(host, port, error, by) from error
    return True


def unusable(host: str, port: int, error: OSError | UnicodeError, by: Chosen = WEB) -> BadSettings:
    """Which setting is to blame that nobody can listen there, and why."""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    if isinstance(error, PermissionError):
        return BadSettings(f"{by.port}={port} (or --port): may not be listened on ({reason}); choose one above 1023")
    return BadSettings(f"{by.host}={host!r}: cannot be listened on ({reason}); name an address of this machine")


def reachable(host: str) -> str:
    """The address at which this machine reaches what listens on ``host``."""
    return ANY_HOST.get(host, host)


def url_of(host: str, port: int) -> str:
    """Where a client on this machine reaches a server that listens on ``host``."""
    address = reachable(host)
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def _near(port: int) -> int:
    return port + 1 if port < 65_535 else 8000
