"""Who asks: the header that says so, and the veil over its secret in all that comes back."""

import base64
import html
import json
import re
from collections.abc import Mapping
from urllib.parse import quote, quote_plus

from loom_worker.backends.rest.arguments import may_be_sent
from loom_worker.core.errors import BadSettings
from loom_worker.core.values.agents import Auth

HIDDEN = "***"


class Veil:
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


def headers(auth: Auth | None, secret: str | None, *, needed_by: str = "backend") -> Mapping[str, str]:
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


def veil(auth: Auth | None, secret: str | None) -> Veil:
    """What hides the secret."""
    if auth is None or not secret:
        return Veil()
    return Veil((secret, _pair(auth, secret)) if auth.kind == "basic" else (secret,))


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
