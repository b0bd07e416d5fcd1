"""Who is served: holders of a key or, while there is none, this machine alone; and which pages of other origins."""

import hmac
import ipaddress
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from flask import Request, Response
from werkzeug.datastructures import HeaderSet

from loom_worker.core.errors import Unavailable
from loom_worker.core.isolation.home_secrets import HOME_TOKEN, home_token
from loom_worker.core.settings_tree import WebSettings
from loom_worker.core.values.api_keys import ALL_SCOPES, SECRET_PREFIX, KeyHolder, digest_of
from loom_worker.core.values.ids import now_ms
from web.operation import TOKEN_PARAMETER, Operation
from web.problems import ProblemDetails, Refused

if TYPE_CHECKING:
    from loom_worker.service.keys import Keys

_NAME = re.compile(r"[A-Za-z0-9._-]{1,253}")
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[^:\[\]]+))(?::(?P<port>[0-9]{0,5}))?")
LOCAL_WORKSPACE = "default"
_CHALLENGE = 'Bearer realm="loom"'
_INVALID = f'{_CHALLENGE}, error="invalid_token"'
ENDED_KEY = ProblemDetails(401, "unauthorized", "this key has ended meanwhile", {}, {"WWW-Authenticate": _INVALID})
"""For a request that waited longer than its key was valid."""
_CHANGES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
ENV_DIGITS = 8
"""Digits of the hash of a key of LOOM_API_KEYS, in the audit: enough to tell a few keys apart, too few to guess one
by."""
PREFLIGHT_S = 600
"""A browser remembers the answer to its preflight so long; Chromium caps it at two hours."""
_METHODS = ("GET", "HEAD", *sorted(_CHANGES))
_READABLE = (
    *("Content-Range", "ETag", "Idempotency-Replayed", "Link", "Location", "RateLimit", "RateLimit-Policy"),
    *("Retry-After", "traceparent", "X-Request-Id"),
)
"""Headers of answers that a page of another origin may read in addition to those that it always may."""
_FORWARDED = frozenset({"FORWARDED", "X_REAL_IP"})


def holder_of(request: Request, web: WebSettings, keys: "Keys") -> KeyHolder:
    """Who sends the request, and what they may do.

    A key of Loom's own form always counts, also where none is needed: what was revoked must not work again because no
    key is left.

    Raises:
        Refused: 401 without a valid key; 403 for a foreign client, host name or web page.
        Unavailable: the database, which knows the keys, did not answer.
    """
    token = request.args.get(TOKEN_PARAMETER)
    if token is not None and "Authorization" not in request.headers:
        return _by_stored_key(token, keys, is_token=True)
    if web.api_keys or SECRET_PREFIX in request.headers.get("Authorization", "") or keys.are_required():
        return _by_key(request, web, keys)
    _require_loopback(request)
    _refuse_foreign_page(request, web)
    return KeyHolder(LOCAL_WORKSPACE, ALL_SCOPES)


def require_scope(operation: Operation, holder: KeyHolder, named: Mapping[str, str]) -> None:
    """Let pass who may do this.

    Args:
        named: the ids in the path, by the names of their parameters.

    Raises:
        Refused: 403, the key lacks the scope, which the answer names, or a session's token is not for this; 404 for a
            token's request to another session.
    """
    if holder.session is not None:
        _require_token(operation, holder.session, named)
    needed = operation.scope or "admin"  # one that was forgotten is served to the fewest
    if needed not in holder.scopes:
        has = ", ".join(sorted(holder.scopes))
        detail = f"this needs a key with the scope {needed}; this one has {has}"
        challenge = f'{_CHALLENGE}, error="insufficient_scope", scope="{needed}"'
        extra, headers = {"required_scope": needed}, {"WWW-Authenticate": challenge}
        raise Refused(ProblemDetails(403, "insufficient-scope", detail, extra, headers))


def _require_token(operation: Operation, session: str, named: Mapping[str, str]) -> None:
    if not operation.by_session_token:
        raise _forbidden("a session's token submits, reads and streams turns of that session; this needs a key")
    # A turn would make the session; a turn's id is looked up among the session's own.
    if named.get("session_id", session) != session:
        raise Refused(ProblemDetails(404, "not-found", "this token opens another session"))


def require_metrics_reader(request: Request, web: WebSettings, keys: "Keys") -> None:
    """Let pass who may see figures of all workspaces: any key, as all include the scope ``read``, but that of a user.

    Where there is no key, this machine may, and while nobody can know of one: what the database holds is not shown
    then. With LOOM_METRICS_OPEN everybody may. Raises as ``holder_of``.
    """
    if web.metrics_are_open:
        return
    try:
        tenant = holder_of(request, web, keys).tenant
    except Unavailable:
        if foreign(request):
            raise
        return
    if not isinstance(tenant, str):
        raise _forbidden("these are figures of all users; a key that acts for one of them does not show them")


def require_page_reader(request: Request, web: WebSettings, keys: "Keys") -> None:
    """Let everyone read the pages and the contract where there are keys: they hold no data, and ask for a key.

    Raises:
        Refused: 403 for other machines where there are none.
    """
    if not web.api_keys and (why := foreign(request)) and not keys.are_required():
        raise _forbidden(why)


def require_home_token(request: Request, home: Path) -> None:
    """Let pass who sends the token that lies in the home: without keys any program of this machine could ask.

    Raises:
        Refused: 403 without it.
    """
    sent = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
    with suppress(OSError):  # a read-only home, whose token nobody has
        if hmac.compare_digest(home_token(home).text.encode(), sent.encode()):
            return
    how = f"send the token in {home / HOME_TOKEN} (Authorization: Bearer <token>), or run `loom keys create`"
    raise Refused(ProblemDetails(403, "first-key", f"this would be the first key: {how} on this machine"))


def socket_address(request: Request) -> str:
    """Who is at the other end of the connection, whatever a forwarded header says of the client behind it."""
    before_proxies = request.environ.get("werkzeug.proxy_fix.orig", request.environ)
    return str(before_proxies.get("REMOTE_ADDR") or "")


def preflight(request: Request, origins: Collection[str]) -> Response | None:
    """Answer a browser that asks, without a key, whether a page may send a request; None: the request asks nothing.

    All headers are allowed: they are the page's own, and no cookie opens anything here.
    """
    asked = request.access_control_request_method
    if request.method != "OPTIONS" or asked is None or request.headers.get("Origin") not in origins:
        return None
    answer = Response(status=204)
    answer.access_control_allow_methods = HeaderSet(_METHODS)
    answer.access_control_allow_headers = request.access_control_request_headers
    answer.access_control_max_age = PREFLIGHT_S
    return answer


def share(answer: Response, request: Request, origins: Collection[str]) -> Response:
    """Let the page of a known origin read an answer, refusals too."""
    if origins:
        answer.vary.add("Origin")
    if (origin := request.headers.get("Origin", "")) in origins:
        answer.access_control_allow_origin = origin
        answer.access_control_expose_headers = HeaderSet(_READABLE)
    return answer


def _require_loopback(request: Request) -> None:
    if why := foreign(request):
        raise _forbidden(why)


def foreign(request: Request) -> str | None:
    """Why this is no request of this machine; None if it is one.

    By the address of the socket, as anybody can write a header: with LOOM_TRUSTED_PROXIES whoever sent
    ``X-Forwarded-For: 127.0.0.1`` past the proxy was let in. By the host's name too, or DNS rebinding would let web
    pages in.
    """
    headers = (key.removeprefix("HTTP_") for key in request.environ if key.startswith("HTTP_"))
    if any(name in _FORWARDED or name.startswith("X_FORWARDED_") for name in headers):
        return "a proxy stands in front, so clients need a key: `loom keys create`, or LOOM_API_KEYS"
    if not is_loopback(socket_address(request)):
        return "there is no API key, so only clients on this machine are served"
    if not is_loopback(host_name(request.environ.get("HTTP_HOST", "")) or ""):
        return "there is no API key, so the Host header must name this machine (localhost)"
    return None


def _refuse_foreign_page(request: Request, web: WebSettings) -> None:
    """A browser names the page behind every change it sends elsewhere; without keys only our own may change things.

    With keys a page cannot do harm: browsers do not add a bearer's key by themselves.
    """
    origin = request.headers.get("Origin")
    if origin is None or request.method not in _CHANGES or origin in web.cors_origins:
        return
    if urlsplit(origin).netloc.lower() != request.environ.get("HTTP_HOST", "").lower():
        raise _forbidden("a page of another origin may not change anything here")


def _by_key(request: Request, web: WebSettings, keys: "Keys") -> KeyHolder:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise _unauthorized("send your key: Authorization: Bearer <key>", _CHALLENGE)
    # WSGI hands headers over as latin-1, so this gives back the bytes that were sent; compare_digest fails on
    # text beyond ASCII. Every key is compared, so the time does not reveal which one came close.
    sent = given.strip().encode("latin-1", "replace")
    found = [workspace for key, workspace in web.api_keys.items() if hmac.compare_digest(key.encode(), sent)]
    if not found:
        return _by_stored_key(sent.decode("latin-1"), keys)
    return KeyHolder(found[0], ALL_SCOPES, key_id=f"env_{digest_of(sent.decode('latin-1'))[:ENV_DIGITS]}")


def _by_stored_key(secret: str, keys: "Keys", *, is_token: bool = False) -> KeyHolder:
    key = keys.find(secret) if secret.startswith(SECRET_PREFIX) else None
    if key is None or (is_token and key.session is None):  # URLs end up in logs of proxies: keys do not belong there
        raise _unauthorized("this key is not known", _INVALID)
    if (end := key.end(now_ms())) is not None:
        raise _unauthorized(f"this key ({key.prefix}…) is {end}", _INVALID)
    return replace(key.holder, digest=digest_of(secret))


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
