"""Loom's HTTP API as the commands use it."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

import urllib3

from loom_worker.core.errors import BadSettings, LoomError, Rejected, StreamBroken, Transient
from loom_worker.core.settings import Settings
from loom_worker.core.text import one_line
from loom_worker.core.values.json import Json
from loom_worker.supervisor import home

TIMEOUT_S = 75.0
"""Longer than the longest wait that may be asked for (60 s)."""
SILENCE_S = 60.0
"""A stream that says nothing for so long, not even a comment, is taken for dead."""
_PIECE_BYTES = 64 * 1024


class NotRunning(LoomError):
    """Nothing answers where Loom should be."""


def address(settings: Settings, url: str | None) -> str | None:
    """The URL of Loom: the given one, else that of the Loom on this home; None if none runs there.

    The port of the settings is not asked: another home's Loom may listen on it.

    Raises:
        BadSettings: the given URL is not the address of a server.
    """
    if not url:
        return home.url_of(settings.home)
    refusal = f"--url (LOOM_URL): {one_line(url)!r} is no address such as http://127.0.0.1:8000"
    try:
        # Without a scheme urllib3 would guess, and warn that it does.
        parts = urllib3.util.parse_url(url) if "://" in url else None
    except urllib3.exceptions.LocationParseError as error:
        raise BadSettings(refusal) from error
    if parts is None or parts.scheme not in ("http", "https") or not parts.host or parts.query or parts.fragment:
        raise BadSettings(refusal)
    return url.rstrip("/")


def path_to(*steps: str) -> str:
    """The path below ``/v1`` that leads to a thing by these steps.

    Raises:
        Rejected: one is ``.`` or ``..``, which would lead to another address.
    """
    if astray := {".", ".."}.intersection(steps):
        raise Rejected(f"there is nothing called {astray.pop()!r}")
    return "/v1/" + "/".join(quote(sendable(step), safe="") for step in steps)


def sendable(text: str) -> str:
    """The text as it can be encoded: what was no UTF-8 on the command line (a lone surrogate here) becomes U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class LoomClient:
    """Calls of one Loom, with a key if there is one."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self.url = url
        self._headers = {"User-Agent": "loom-cli", **({"Authorization": f"Bearer {key}"} if key else {})}
        self._pool = urllib3.PoolManager(retries=False)

    def call(self, method: str, path: str, *, body: Json | None = None) -> Json:
        """One request; the answer's JSON object.

        Raises:
            NotRunning: no connection.
            Transient: the connection broke, or Loom answered 5xx.
            Rejected: Loom answered 4xx, the text is its problem's title and detail; or what answers is not Loom.
        """
        return self._answered(method, path, body=body, headers={})[0]

    def every(self, path: str, query: Json | None = None) -> Iterator[Json]:
        """The entries of all pages of a list, in its order; a page is asked for when it is needed."""
        asked = query or {}
        while True:
            page = self.call("GET", f"{path}?{urlencode(asked)}" if asked else path)
            yield from page["data"]
            if not page["has_more"]:
                return
            asked = {**asked, "after": page["next"]}

    def call_once(self, path: str, *, key: str, body: Json | None = None) -> tuple[Json, bool]:
        """POST under an Idempotency-Key, which does nothing the second time.

        Returns:
            The answer's JSON object, and True if an earlier request made what it shows.
        """
        content, headers = self._answered("POST", path, body=body, headers={"Idempotency-Key": key})
        return content, "Idempotency-Replayed" in headers

    def _answered(
        self, method: str, path: str, *, body: Json | None, headers: Mapping[str, str]
    ) -> tuple[Json, Mapping[str, str]]:
        try:
            answer = self._pool.request(
                method, self.url + path, json=body, headers={**self._headers, **headers}, timeout=TIMEOUT_S
            )
        except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError) as error:
            raise NotRunning(f"Loom is not running at {self.url}; start it with `loom up`") from error
        except urllib3.exceptions.HTTPError as error:
            raise Transient(f"{self.url} broke off: {error}") from error
        content = {} if answer.status == 204 else _json(answer.data)
        if answer.status >= 300 or content is None:
            problem = _problem(answer.status, content, self.url)
            raise Transient(problem) if answer.status >= 500 else Rejected(problem)
        return content, answer.headers

    def stream(self, path: str, *, last_event_id: int) -> Iterator[bytes]:
        """The bytes of an event stream as they come, until the server ends it.

        Raises:
            StreamBroken: no connection, a cut one, silence, or 5xx: ask again from the last id.
            Rejected: Loom answered 4xx.
        """
        headers = {**self._headers, "Accept": "text/event-stream"}
        if last_event_id:
            headers["Last-Event-ID"] = str(last_event_id)
        timeout = urllib3.Timeout(connect=5.0, read=SILENCE_S)
        try:
            answer = self._pool.request("GET", self.url + path, headers=headers, timeout=timeout, preload_content=False)
            try:
                if answer.status != 200:
                    problem = _problem(answer.status, _json(answer.data), self.url)
                    raise StreamBroken(problem) if answer.status >= 500 else Rejected(problem)
                while piece := answer.read1(_PIECE_BYTES):
                    yield piece
            finally:
                # Not kept for another request: what is left of a stream is nobody's answer.
                answer.close()
        except urllib3.exceptions.HTTPError as error:
            raise StreamBroken(f"the event stream broke off: {error}") from error


def client(settings: Settings, url: str | None) -> LoomClient:
    """The Loom that these settings mean.

    Raises:
        NotRunning: no URL was given, and none runs on this home.
        BadSettings: the given URL is not the address of a server.
    """
    where = address(settings, url)
    if where is None:
        raise NotRunning(nobody(settings.home))
    return LoomClient(where, settings.key or next(iter(settings.web.api_keys), None))


def nobody(directory: Path) -> str:
    """What to tell somebody whose home no Loom serves, and what to do."""
    if home.is_held(directory):
        return f"Loom is not running on {directory} yet: it is just starting"
    return f"Loom is not running on {directory}; start it with `loom up`, or name another one by --url (LOOM_URL)"


def _json(data: bytes) -> Json | None:
    """The object that was answered; None if it is none, as nothing of Loom's that is asked here."""
    try:
        content = json.loads(data)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _problem(status: int, content: Json | None, url: str) -> str:
    if content is None or "title" not in content:
        return f"{url} answered {status}, and not as Loom does; is this its address?"
    words = [str(content.get(name)) for name in ("title", "detail") if content.get(name)]
    text = f"{status} " + ": ".join(words)
    if status == 401:
        text += " (commands send LOOM_KEY, or the first key of LOOM_API_KEYS)"
    flaws = [f"{flaw.get('pointer') or 'body'}: {flaw.get('detail')}" for flaw in content.get("errors") or []]
    # The detail may name the first ones itself.
    return "; ".join([text, *(flaw for flaw in flaws if f"; {flaw};" not in f"; {content.get('detail')};")])
