"""Sends one question to the API, no further than the API's own origin, and reads the answer, its secret hidden."""

import base64
import html
import json
import re
import socket
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from email.message import Message
from urllib.parse import quote, quote_plus, urljoin, urlsplit

from loom_worker.backends.rest.openapi import BODILESS, READING, may_be_sent
from loom_worker.core.errors import BadSettings, Invalid, ToolFailed, Transient
from loom_worker.core.text import one_line
from loom_worker.core.values.agents import Auth
from loom_worker.guard.net.address import Deadline, Lookup, Target, resolve_in_time, target
from loom_worker.guard.net.http import HttpRequest, HttpResponse, NoResponse, retry_after_s, send_request

HIDDEN = "***"


class SecretMask:
    """Replaces a secret, also in the spellings in which servers repeat what they were sent."""

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        spellings = {spelling for secret in secrets if secret for spelling in _spellings(secret)}
        longest_first = sorted(spellings, key=len, reverse=True)
        self._found = re.compile("|".join(map(re.escape, longest_first))) if spellings else None

    def text(self, text: str) -> str:
        """The text without the secret."""
        return self._found.sub(HIDDEN, text) if self._found else text

    def value(self, value: object) -> object:
        """A JSON value without the secret, be it in a key, a text or a number.

        Raises:
            RecursionError: nested very deep.
        """
        if self._found is None:
            return value
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.text(key): self.value(entry) for key, entry in value.items()}
            case list():
                return [self.value(entry) for entry in value]
            case bool() | None:
                return value
            case _:
                return HIDDEN if self._found.search(str(value)) else value


def auth_headers(auth: Auth | None, secret: str | None, *, needed_by: str = "backend") -> Mapping[str, str]:
    """Return the header that carries the secret; none without ``auth``.

    Args:
        needed_by: the section of the agent's file that names it.

    Raises:
        BadSettings: the secret is missing or cannot stand in a header; its text is never repeated.
    """
    if auth is None:
        return {}
    if not secret:
        raise BadSettings(f"LOOM_SECRET_{auth.secret} is not set, and the agent's {needed_by} needs it")
    if not re.fullmatch(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?", secret):
        raise BadSettings(f"LOOM_SECRET_{auth.secret}: expected printable ASCII characters")
    match auth.kind:
        case "bearer":
            return {"Authorization": f"Bearer {secret}"}
        case "basic":
            return {"Authorization": f"Basic {_pair(auth, secret)}"}
        case "header":
            if auth.header.lower() != "authorization" and not may_be_sent(auth.header):
                raise BadSettings(f"auth.header: {auth.header[:100]!r} cannot carry a secret")
            return {auth.header: secret}


def secret_mask(auth: Auth | None, secret: str | None) -> SecretMask:
    """The mask of what ``auth_headers`` sends."""
    if auth is None or not secret:
        return SecretMask()
    return SecretMask((secret, _pair(auth, secret)) if auth.kind == "basic" else (secret,))


def _pair(auth: Auth, secret: str) -> str:
    return base64.b64encode(f"{auth.user}:{secret}".encode()).decode("ascii")


def _spellings(secret: str) -> set[str]:
    escaped = json.dumps(secret)[1:-1]
    return {
        secret,
        escaped,
        escaped.replace("/", "\\/"),
        html.escape(secret),
        quote(secret, safe=""),
        quote(secret),
        quote_plus(secret),
        base64.b64encode(secret.encode()).decode("ascii"),
    }


MAX_SHOWN_CHARS = 500
"""Characters of the body of an answer that is a failure."""
_TOLD = ("content-type", "content-length", "etag", "last-modified", "allow")
"""Headers of an answer that has no body by design."""
_CHARSETS = frozenset(
    {"utf-8", "us-ascii", "iso-8859-1", "iso-8859-15", "windows-1252", "utf-16", "utf-16le", "utf-16be"}
)
"""Others are read as UTF-8: not every codec of Python is one of text, and some are slow."""
_GZIP = b"\x1f\x8b"
_TEXT = re.compile(r"text/.*|application/([a-z0-9.+-]+\+)?(json|xml|yaml)|application/(x-ndjson|x-yaml|javascript)")


@dataclass(frozen=True, slots=True)
class _Content:
    data: bytes
    is_longer: bool
    """True: ``data`` is only the beginning."""
    media_type: str
    """In lower case, without parameters; empty if the server named none."""
    charset: str

    @property
    def text(self) -> str:
        return self.data.decode(self.charset, "replace")


def read_answer(answer: HttpResponse, *, method: str, mask: SecretMask, max_bytes: int) -> object:
    """Return what the model gets of an answer of status 2xx.

    Args:
        max_bytes: of the body once unpacked; what is longer comes as text, cut, and says so.

    Raises:
        ToolFailed: UNAVAILABLE: the body is packed in a way that was not asked for, or broken.
    """
    content = _content(answer, max_bytes)
    if method == "HEAD":
        headers = {name: answer.headers[name] for name in _TOLD if name in answer.headers}
        return mask.value({"status": answer.status, "headers": headers})
    if not content.data:
        return {"status": answer.status}
    if content.media_type and not _TEXT.fullmatch(content.media_type):
        return mask.value({"bytes": len(content.data), "content_type": content.media_type[:200]})
    if content.is_longer:
        return mask.text(f"[Warning: longer than {max_bytes:,} bytes; only its beginning follows]\n{content.text}")
    return _parsed(content, mask)


def failure_text(answer: HttpResponse, *, mask: SecretMask, max_bytes: int) -> str:
    """The beginning of the text that explains a failure, in one line; empty if there is none."""
    try:
        content = _content(answer, max_bytes)
    except ToolFailed:
        return ""
    if content.media_type and not _TEXT.fullmatch(content.media_type):
        return ""
    # The secret is looked for before the text is cut, which could otherwise leave half of it.
    return one_line(mask.text(content.text), MAX_SHOWN_CHARS)


def _parsed(content: _Content, mask: SecretMask) -> object:
    """The JSON value; text where it is none, such as with NaN, or is nested deeper than a parser goes."""
    if content.media_type and not content.media_type.endswith("json"):
        return mask.text(content.text)
    try:
        return mask.value(json.loads(content.text, parse_constant=_refuse))
    except (ValueError, RecursionError):
        return mask.text(content.text)


def _refuse(constant: str) -> float:
    raise ValueError(constant)


def _content(answer: HttpResponse, max_bytes: int) -> _Content:
    data, is_longer = answer.body[:max_bytes], answer.is_longer or len(answer.body) > max_bytes
    packed = answer.headers.get("Content-Encoding", "").strip().lower()
    if data and packed in ("gzip", "x-gzip"):
        data, is_longer = _unpacked(data, max_bytes, is_longer)
    elif data and packed not in ("", "identity"):
        raise ToolFailed("the answer is packed in a way that was not asked for", "UNAVAILABLE")
    parsed = Message()
    parsed["Content-Type"] = answer.headers.get("Content-Type", "")
    charset = (parsed.get_content_charset() or "utf-8").lower()
    media_type = parsed.get_content_type() if answer.headers.get("Content-Type") else ""
    return _Content(data, is_longer, media_type, charset if charset in _CHARSETS else "utf-8")


def _unpacked(packed: bytes, max_bytes: int, is_cut: bool) -> tuple[bytes, bool]:
    """Unpack gzip up to ``max_bytes``: a megabyte can stand for a thousand of them."""
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        data = unpacker.decompress(packed, max_bytes + 1)
    except zlib.error as error:
        raise ToolFailed("the answer is not the gzip that it says it is", "UNAVAILABLE") from error
    is_longer = is_cut or len(data) > max_bytes
    if not is_longer and (not unpacker.eof or unpacker.unused_data.startswith(_GZIP)):
        raise ToolFailed("the answer's gzip ends too early, or has several parts", "UNAVAILABLE")
    return data[:max_bytes], is_longer


MAX_ANSWER_BYTES = 10_000_000
"""Read of an answer, as it is sent and once it is unpacked."""
MAX_REDIRECTS = 3
_REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True)
class RestClient:
    """Asks one API; may be used from many threads."""

    base: Target
    """The operator's own choice: only scheme, host and port count here."""
    headers: Mapping[str, str] = field(repr=False)
    """Sent with every question, the secret among them."""
    timeout_s: float
    """For all of a call: name server, connection, TLS, redirects, answer."""
    allow_private: bool
    """The base may be a loopback or private address. Redirects never leave its origin, so it opens no other."""
    lookup: Lookup = socket.getaddrinfo

    def ask(self, question: HttpRequest) -> HttpResponse:
        """Return the answer, whatever its status, except for a redirect that is not followed.

        Raises:
            ToolFailed: UNAVAILABLE: there was no whole answer, or it points elsewhere.
        """
        deadline = Deadline(self.timeout_s)
        sent = replace(question, headers={"Accept": "application/json, */*;q=0.5", **question.headers})
        sent = replace(sent, headers={**sent.headers, "Accept-Encoding": "gzip", **self.headers})
        for _ in range(MAX_REDIRECTS + 1):
            answer = self._once(sent, deadline)
            if answer.status not in _REDIRECTS:
                return answer
            sent = replace(sent, path=self._next(sent, answer))
        raise _unavailable(f"more than {MAX_REDIRECTS} redirects")

    def _once(self, question: HttpRequest, deadline: Deadline) -> HttpResponse:
        """Resolve and ask anew at each hop: the addresses that were checked are the ones that are dialled."""
        try:
            addresses = resolve_in_time(self.base, deadline, allow_private=self.allow_private, lookup=self.lookup)
            answer = send_request(self.base, addresses, question, deadline=deadline, max_bytes=MAX_ANSWER_BYTES)
        except Invalid as error:
            raise _unavailable(f"{self.base.host} may not be called: {error}") from error
        except NoResponse as error:
            raise _unavailable(str(error) + _doubt(question.method, error.may_have_arrived)) from error
        except Transient as error:
            raise _unavailable(str(error)) from error
        if answer.error is not None and not answer.is_longer:
            raise _unavailable(
                f"HTTP {answer.status}, but the body is not whole: {answer.error}{_doubt(question.method, True)}"
            )
        return answer

    def _next(self, question: HttpRequest, answer: HttpResponse) -> str:
        """The path a redirect leads to, within the same origin."""
        location = answer.headers.get("Location", "")
        try:
            hop = target(urljoin(self.base.origin + question.path, location), allow_private=self.allow_private)
        except (Invalid, ValueError) as error:
            raise _unavailable(f"HTTP {answer.status}: it redirects to what may not be called ({error})") from error
        if question.method not in BODILESS or hop.origin != self.base.origin:
            elsewhere = f"{hop.origin}{urlsplit(hop.path).path}"
            raise _unavailable(f"HTTP {answer.status}: it redirects to {elsewhere[:300]}, which is not followed")
        return hop.path


def retry_advice(answer: HttpResponse) -> str:
    """What an answer's Retry-After asks for, in words; empty if it asks for nothing."""
    wished_s = retry_after_s(answer.headers.get("Retry-After"), now_s=time.time())
    return "" if wished_s is None else f" (asks to wait {wished_s:.0f} s)"


def _doubt(method: str, may_have_arrived: bool) -> str:
    if method in READING or not may_have_arrived:
        return ""
    return f"; whether this {method} was done is unknown"


def _unavailable(detail: str) -> ToolFailed:
    return ToolFailed(detail, "UNAVAILABLE")
