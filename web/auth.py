"""Who is served: holders of a key, or, with no key configured, this machine alone."""

import hmac
import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from flask import Request

from loom_worker.core.settings import WebSettings
from web.problems import ProblemDetails, Refused

_NAME = re.compile(r"[A-Za-z0-9._-]{1,253}")
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[^:\[\]]+))(?::(?P<port>[0-9]{0,5}))?")
LOCAL_WORKSPACE = "default"
_CHANGES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_FORWARDED = frozenset({"FORWARDED", "X_REAL_IP"})


def workspace_of(request: Request, web: WebSettings) -> str:
    """The workspace the request may act in.

    Raises:
        Refused: 401 without a valid key; 403 for a foreign client, host name or web page.
    """
    if web.api_keys:
        return _by_key(request.headers.get("Authorization", ""), web.api_keys)
    _require_loopback(request)
    _refuse_foreign_page(request)
    return LOCAL_WORKSPACE


def require_key_or_this_machine(request: Request, web: WebSettings) -> None:
    """Let pass who holds any key, and this machine without one: for what belongs to no workspace.

    Raises:
        Refused: 401 where there are keys, 403 where there are none.
    """
    if web.api_keys and (_foreign(request) or "Authorization" in request.headers):
        _by_key(request.headers.get("Authorization", ""), web.api_keys)
    elif not web.api_keys:
        _require_loopback(request)


def socket_address(request: Request) -> str:
    """Who is at the other end of the connection, whatever a forwarded header says of the client behind it."""
    before_proxies = request.environ.get("werkzeug.proxy_fix.orig", request.environ)
    return str(before_proxies.get("REMOTE_ADDR") or "")


def _require_loopback(request: Request) -> None:
    if why := _foreign(request):
        raise _forbidden(why)


def _foreign(request: Request) -> str | None:
    """Why this is no request of this machine; None if it is one.

    By the address of the socket, as anybody can write a header: with LOOM_TRUSTED_PROXIES whoever sent
    ``X-Forwarded-For: 127.0.0.1`` past the proxy was let in. By the host's name too, or DNS rebinding would let web
    pages in.
    """
    headers = (key.removeprefix("HTTP_") for key in request.environ if key.startswith("HTTP_"))
    if any(name in _FORWARDED or name.startswith("X_FORWARDED_") for name in headers):
        return "a proxy stands in front, so clients need a key: set LOOM_API_KEYS"
    if not is_loopback(socket_address(request)):
        return "no API key is configured, so only clients on this machine are served"
    if not is_loopback(host_name(request.environ.get("HTTP_HOST", "")) or ""):
        return "no API key is configured, so the Host header must name this machine (localhost)"
    return None


def _refuse_foreign_page(request: Request) -> None:
    """A browser names the page behind every change it sends elsewhere; without keys only our own may change things.

    With keys a page cannot do harm: browsers do not add a bearer's key by themselves.
    """
    origin = request.headers.get("Origin")
    if origin is None or request.method not in _CHANGES:
        return
    if urlsplit(origin).netloc.lower() != request.environ.get("HTTP_HOST", "").lower():
        raise _forbidden("a page of another origin may not change anything here")


def _by_key(authorization: str, keys: Mapping[str, str]) -> str:
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise _unauthorized("send your key: Authorization: Bearer <key>", 'Bearer realm="loom"')
    # WSGI hands headers over as latin-1, so this gives back the bytes that were sent; compare_digest fails on
    # text beyond ASCII. Every key is compared, so the time does not reveal which one came close.
    sent = given.strip().encode("latin-1", "replace")
    found = [workspace for key, workspace in keys.items() if hmac.compare_digest(key.encode(), sent)]
    if not found:
        raise _unauthorized("this key is not known", 'Bearer realm="loom", error="invalid_token"')
    return found[0]


def _unauthorized(detail: str, challenge: str) -> Refused:
    return Refused(ProblemDetails(401, "unauthorized", detail, {}, {"WWW-Authenticate": challenge}))


def _forbidden(detail: str) -> Refused:
    return Refused(ProblemDetails(403, "forbidden", detail))


@lru_cache(maxsize=1024)
def host_name(host: str) -> str | None:
    """The name or address in a Host header, without port and brackets; None if it is not ``host[:port]``.

    Strict, as a lenient reader takes ``[::1].evil.com`` for ``::1``.
    """
    found = _HOST.fullmatch(host)
    if found is None or int(found["port"] or 0) > 65_535:
        return None
    if found["v6"] is not None:
        return found["v6"] if _is_ipv6(found["v6"]) else None
    return found["name"] if _NAME.fullmatch(found["name"]) else None


@lru_cache(maxsize=1024)
def is_loopback(name: str) -> bool:
    """True for ``localhost`` and the loopback addresses, IPv4 in IPv6 included."""
    if name.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
