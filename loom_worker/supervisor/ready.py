"""Whether everything serves: asked over HTTP, as a client would."""

import json
import socket

import urllib3

from loom_worker.core.values.json import Json

_TIMEOUT_S = 2.0


def readiness(url: str) -> Json | None:
    """The body of ``/readyz`` with ``ready`` added, None if nobody answers (yet)."""
    answer = _asked(f"{url}/readyz")
    if answer is None:
        return None
    try:
        body = json.loads(answer.data)
    except ValueError:
        body = {"answer": answer.data[:200].decode(errors="replace")}
    return {"ready": answer.status == 200, **(body if isinstance(body, dict) else {"answer": body})}


def needs_key(url: str) -> bool:
    """True if the API answers this machine only with a key; False also if nobody answers."""
    answer = _asked(f"{url}/v1/agents?limit=1")
    return answer is not None and answer.status == 401


def _asked(url: str) -> urllib3.BaseHTTPResponse | None:
    try:
        # A connection of its own, closed at once: one kept open would hold the web up when it stops.
        with urllib3.PoolManager(headers={"Connection": "close"}, retries=False) as pool:
            return pool.request("GET", url, timeout=_TIMEOUT_S, redirect=False)
    except urllib3.exceptions.HTTPError:
        return None


def listens(host: str, port: int) -> bool:
    """True if somebody takes connections there."""
    try:
        with socket.create_connection((host, port), timeout=_TIMEOUT_S):
            return True
    except OSError:
        return False
