"""Which port is free."""

import errno
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from loom_worker.core.errors import BadSettings, LoomError

ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  # compared with, not listened on
HAS_ABSTRACT_NAMES = sys.platform == "linux"
TRIED_AFTER = 20
"""So many ports after the default are tried."""


class PortTaken(LoomError):
    """Somebody else listens there."""


@contextmanager
def reserved(host: str, port: int, *, is_explicit: bool) -> Iterator[int]:
    """The port to listen on: the one asked for, or, if nobody asked for it, the next free one.

    No other `loom up` on this machine chooses it meanwhile: between choosing and listening lie seconds.

    Raises:
        PortTaken: it was asked for and is taken, or none of the next ones is free.
        BadSettings: no port of this host can be listened on, or not this one.
    """
    number, token = _first_free(host, port, last=port if is_explicit else min(port + TRIED_AFTER, 65_535))
    with token:
        yield number


def _first_free(host: str, port: int, *, last: int) -> tuple[int, socket.socket]:
    for number in range(port, last + 1):
        if is_free(host, number) and (token := _token(number)):
            return number, token
    if last == port:
        raise PortTaken(
            f"port {port} is taken on {host}; choose another with `loom up --port {_near(port)}`"
            f" (make up PORT={_near(port)}, or LOOM_PORT)"
        )
    raise PortTaken(f"ports {port}-{last} are all taken on {host}; choose one with `loom up --port N`")


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


def is_free(host: str, port: int) -> bool:
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
            raise unusable(host, port, error) from error
    return True


def unusable(host: str, port: int, error: OSError | UnicodeError) -> BadSettings:
    """Which setting is to blame that nobody can listen there, and why."""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    if isinstance(error, PermissionError):
        return BadSettings(f"LOOM_PORT={port} (or --port): may not be listened on ({reason}); choose one above 1023")
    return BadSettings(f"LOOM_HOST={host!r}: cannot be listened on ({reason}); name an address of this machine")


def url_of(host: str, port: int) -> str:
    """Where a client on this machine reaches a server that listens on ``host``."""
    reachable = ANY_HOST.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def _near(port: int) -> int:
    return port + 1 if port < 65_535 else 8000
