"""Which hosts may be contacted: a URL that others name must not reach what only this machine's network can reach.

A URL is checked when it is submitted, as far as that needs no name server, and again at every attempt, after its
name has been resolved: names change. Connections use the addresses that ``resolve`` returned, so that no second
answer of the name server can slip in between, and cannot outlive their deadline.
"""

import contextlib
import re
import socket
import threading
import time
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from loom_worker.core.errors import Invalid, LoomError, Transient
from loom_worker.core.text import one_line

MAX_URL_CHARS = 2048
"""Longest URL that common servers and proxies take."""

Lookup = Callable[..., list[tuple[Any, ...]]]
"""``socket.getaddrinfo``, or what answers like it."""
Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_DEFAULT_PORTS = {"http": 80, "https": 443}
_LEAST_FREE_PORT = 1024
"""Below it are those of system services: of mail, name and file servers, which take an HTTP request for their own."""
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LOCAL_SUFFIXES = ("localhost", "localdomain", "local", "internal", "ip6-localhost", "ip6-loopback")
"""Last labels that never name a public host: RFC 6761, RFC 6762, ICANN's ``internal``, and /etc/hosts of Debian."""

# Up to the last @ of all, not of the host alone, where a password may hold what ends a host: its colon has no port.
_LOGIN = re.compile(
    r"\A(\s*[a-z][a-z0-9+.-]+:/+)(?:[^/?#]*:(?!\d*(?:[/?#]|\Z)).*@|[^/?#]*@)", re.DOTALL | re.IGNORECASE
)


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ip_network(text) for text in texts)


_HOME = _networks(
    "127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "::1/128", "fc00::/7"
)
"""Loopback, private and carrier-shared networks: what ``allow_private`` opens, and no more.

Link-local stays shut even then: 169.254.169.254 hands out a cloud machine's credentials.
"""
_GLOBAL_V6 = ip_network("2000::/3")
"""All of IPv6 that is given out to hosts; outside lie loopback, mapped, NAT64, link-local, multicast."""
_UNFIT = _networks("192.0.0.0/24", "192.88.99.0/24", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
"""Global for ``ipaddress`` in some version, but no host: protocols, 6to4 (which hides any IPv4), documentation."""
_NAT64 = ip_network("64:ff9b::/96")
_METADATA = _networks("168.63.129.16/32", "100.100.100.200/32", "fd00:ec2::/32", "fd20:ce::/32")
"""Where clouds hand out credentials outside of link-local: Azure (a public address), Alibaba, AWS and Google (IPv6)."""


_PRIVATE = "local, private and reserved targets are refused"


class Private(Invalid):
    """A target that only this machine's network can reach, or that is no host at all."""


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that may be tried, in the parts a connection needs."""

    scheme: str
    host: str
    """Lower case, without brackets: a DNS name or an address."""
    port: int
    path: str
    """With the query, percent-encoded; never empty."""

    @property
    def origin(self) -> str:
        """Scheme, host and port, as they stand in a URL."""
        return f"{self.scheme}://{self.authority}"

    @property
    def authority(self) -> str:
        """The ``Host`` header: the port stands in it unless it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def target(url: str, *, allow_private: bool, ports: Collection[int] | None = None) -> Target:
    """Split a URL into its parts; the connection uses the same parts that are checked here.

    Args:
        allow_private: loopback and private networks are allowed.
        ports: further ones below 1024 than 80 and 443; None: all are allowed.

    Raises:
        Invalid: with the reason, as far as it can be known without a name server; Private for a private target.
    """
    _check_characters(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Invalid("not a URL: host or port cannot be read") from error
    if parts.scheme not in _DEFAULT_PORTS:
        raise Invalid("the scheme must be http or https")
    if "@" in parts.netloc:
        raise Invalid("user name and password do not belong in a URL")
    if port == 0:
        raise Invalid("port 0 cannot be connected to")
    if ports is not None and port is not None and port < _LEAST_FREE_PORT and port not in {80, 443, *ports}:
        raise Invalid(f"port {port}: only 80, 443 and those from 1024 are served (LOOM_TARGET_PORTS adds others)")
    host = parts.hostname or ""
    _check_host(host, allow_private=allow_private)
    return Target(parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme], _path(parts))


def named(source: str) -> str:
    """A path or URL in one line, as it can be shown: without user name and password."""
    return one_line(_LOGIN.sub(r"\1…@", source))


def resolve(host: str, port: int, *, allow_private: bool, lookup: Lookup = socket.getaddrinfo) -> tuple[str, ...]:
    """Return the addresses of a host, each checked, in the order of the name server.

    One address that is not allowed refuses the host, since any of them could be used.

    Raises:
        Invalid: an address is not allowed; Private unless it could not be written as one.
        Transient: the name is unknown, or no name server answered.
    """
    try:
        found = lookup(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Transient("the host name cannot be resolved") from error
    addresses = tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not addresses:
        raise Transient("the host name has no address")
    for address in addresses:
        _check_address(address, allow_private=allow_private)
    return addresses


def _check_characters(url: str) -> None:
    if len(url) > MAX_URL_CHARS:
        raise Invalid(f"longer than {MAX_URL_CHARS} characters")
    if "\\" in url or any(char.isspace() or unicodedata.category(char).startswith("C") for char in url):
        raise Invalid("spaces, control characters and backslashes are not allowed")


def _check_host(host: str, *, allow_private: bool) -> None:
    if not host:
        raise Invalid("the URL names no host")
    if ":" in host and "%" not in host:
        _check_address(host, allow_private=allow_private)
        return
    labels = host.removesuffix(".").split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise Invalid("not a host name; one outside ASCII must be written in its xn-- form")
    if _NUMBER.fullmatch(labels[-1]):
        # A last label that is a number makes an IPv4 address, in spellings only the resolver knows: 127.1, 0x7f000001.
        _check_address(host, allow_private=allow_private)
    elif labels[-1] in _LOCAL_SUFFIXES and not allow_private:
        raise Private(_PRIVATE)


def _check_address(text: str, *, allow_private: bool) -> None:
    try:
        address = ip_address(text)
    except ValueError as error:
        raise Invalid("an address must be written as four decimal numbers, or as IPv6 in brackets") from error
    if isinstance(address, IPv6Address) and address in _NAT64:
        # Where there is only IPv6, the name server gives every IPv4 host such an address: the inner one counts.
        address = IPv4Address(address.packed[-4:])
    is_open = _is_public(address) or (allow_private and _is_in(address, _HOME))
    if not is_open or _is_in(address, _METADATA):
        raise Private(_PRIVATE)


def _is_public(address: Address) -> bool:
    if address.is_multicast or address.is_reserved or not address.is_global or _is_in(address, _UNFIT):
        return False
    return address.version == 4 or address in _GLOBAL_V6


def _is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)


def _path(parts: SplitResult) -> str:
    wanted = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return quote(wanted, safe="/?:@!$&'()*+,;=%-._~[]")


MAX_DIALLED = 4
"""Addresses tried in one attempt: a name with a thousand of them must not turn Loom into a port scanner."""


class Deadline:
    """The moment at which everything about one attempt must be over."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._ends_s = time.monotonic() + timeout_s

    @property
    def left_s(self) -> float:
        """Seconds until then, at least a millisecond: a timeout of 0 means "do not wait" to sockets."""
        return max(self._ends_s - time.monotonic(), 0.001)

    @property
    def is_over(self) -> bool:
        """True from that moment on."""
        return time.monotonic() >= self._ends_s


def resolve_in_time(target: Target, deadline: Deadline, *, allow_private: bool, lookup: Lookup) -> tuple[str, ...]:
    """Resolve in a thread that is abandoned at the deadline: a lookup cannot be interrupted, slow servers take 30 s."""
    answers: SimpleQueue[tuple[str, ...] | LoomError] = SimpleQueue()

    def ask() -> None:
        try:
            answers.put(resolve(target.host, target.port, allow_private=allow_private, lookup=lookup))
        except LoomError as error:
            answers.put(error)

    threading.Thread(target=ask, name="loom-resolve", daemon=True).start()
    try:
        answer = answers.get(timeout=deadline.left_s)
    except Empty as error:
        raise Transient("the name server did not answer in time") from error
    if isinstance(answer, LoomError):
        raise answer
    return answer


def dial(addresses: Sequence[str], port: int, deadline: Deadline) -> socket.socket:
    """Connect to the first address that accepts; each has an equal share of the time that is left.

    Raises:
        OSError: none did; the last one's reason.
    """
    tried = addresses[:MAX_DIALLED]
    for number, address in enumerate(tried, start=1):
        try:
            return socket.create_connection((address, port), timeout=deadline.left_s / (len(tried) - number + 1))
        except OSError:
            if number == len(tried):
                raise
    raise OSError("no address to connect to")


@contextlib.contextmanager
def cut_at(deadline: Deadline, sock: socket.socket) -> Iterator[None]:
    """Shut the connection down at the deadline, whatever it is doing.

    A socket's timeout applies to each read: a byte a second outlives it, in the TLS handshake as in the headers. A
    shutdown wakes the reader. It uses a second handle, since TLS takes over the first one.
    """
    handle = sock.dup()

    def shut() -> None:
        with contextlib.suppress(OSError):  # the receiver may have closed first
            handle.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(deadline.left_s, shut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        handle.close()
