"""API keys that are made at run time: what they allow, whom they act for, and when they end."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from loom_worker.core.values.json import Json, rfc3339
from loom_worker.core.values.tenants import LOCAL, Actor, Tenant, WorkspaceSession, WorkspaceUser

KeyScope = Literal["read", "chat", "admin"]
SCOPES: tuple[KeyScope, ...] = get_args(KeyScope)
ALL_SCOPES: frozenset[KeyScope] = frozenset(SCOPES)
_INCLUDED: Mapping[KeyScope, frozenset[KeyScope]] = {
    "read": frozenset({"read"}),
    "chat": frozenset({"chat", "read"}),
    "admin": ALL_SCOPES,
}

SECRET_PREFIX = "loom_"  # noqa: S105 - what every secret begins with
SECRET_BYTES = 32
SHOWN_CHARS = 11
"""Characters of a secret that lists show: its prefix and six characters, 36 of its 256 bits."""
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SECRET_DIGITS = 43
"""62 ** 43 > 2 ** 256, so every secret has this length."""
TOKEN_PREFIX = "token_"  # noqa: S105 - what stands before the id of the key that made it
MOST_TOKEN_S = 3600
"""Longest life of a session's token."""
USUAL_TOKEN_S = 900


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """How much a key may do in any minute; None: as much as the settings say."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


NO_LIMITS = KeyLimits()


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """Who sends a request, as the key says it."""

    workspace: str
    scopes: frozenset[KeyScope]
    """All that the key allows, scopes that are included in others too."""
    user: str | None = None
    """The user whom the key acts for; None: the whole workspace."""
    digest: str | None = field(default=None, repr=False)
    """The hash of the key's secret; None for keys of the environment, and where none is needed."""
    key_id: str | None = None
    """``key_…``; ``env_…`` for keys of the environment; None where no key is needed."""
    limits: KeyLimits = NO_LIMITS
    session: str | None = None
    """The one session that a token opens; None for keys."""

    @property
    def tenant(self) -> Tenant:
        """Whose data the holder may reach."""
        if self.session is not None:
            return WorkspaceSession(self.workspace, self.user, self.session)
        return self.workspace if self.user is None else WorkspaceUser(self.workspace, self.user)

    @property
    def actor(self) -> Actor:
        """Who acts, for the audit."""
        return Actor(self.key_id or LOCAL.key_id, self.user)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key as somebody asks for it, already validated."""

    name: str
    scopes: tuple[KeyScope, ...]
    user: str | None = None
    expires_ms: int | None = None
    limits: KeyLimits = NO_LIMITS


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key's row, without the hash of its secret."""

    id: str
    workspace: str
    name: str
    prefix: str
    """The beginning of the secret, for recognition."""
    scopes: tuple[KeyScope, ...]
    created_ms: int
    user: str | None = None
    expires_ms: int | None = None
    revoked_ms: int | None = None
    rotated_from: str | None = None
    """The key that this one replaces."""
    last_used_ms: int | None = None
    """Up to a minute old."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    session: str | None = None
    """The one session that it opens, which makes it a token; limits and end are those of the key that made it."""

    @property
    def limits(self) -> KeyLimits:
        return KeyLimits(self.requests_per_minute, self.tokens_per_minute)

    @property
    def holder(self) -> KeyHolder:
        """Who uses the key."""
        about = {"key_id": self.id, "session": self.session}
        return KeyHolder(self.workspace, included(self.scopes), self.user, limits=self.limits, **about)

    def end(self, now_ms: int) -> Literal["revoked", "expired"] | None:
        """How the key has ended; None while it is valid."""
        if self.revoked_ms is not None and self.revoked_ms <= now_ms:
            return "revoked"
        return "expired" if self.expires_ms is not None and self.expires_ms <= now_ms else None

    def brief(self) -> "ApiKey":
        return self

    def as_json(self) -> Json:
        """The Key of the HTTP API; never the secret."""
        return {
            "id": self.id,
            "object": "key",
            "workspace": self.workspace,
            "name": self.name,
            "prefix": self.prefix,
            "scopes": list(self.scopes),
            "user": self.user,
            "requests_per_minute": self.requests_per_minute,
            "tokens_per_minute": self.tokens_per_minute,
            "rotated_from": self.rotated_from,
            "created_at": rfc3339(self.created_ms),
            "expires_at": rfc3339(self.expires_ms),
            "revoked_at": rfc3339(self.revoked_ms),
            "last_used_at": rfc3339(self.last_used_ms),
        }


def included(scopes: Iterable[KeyScope]) -> frozenset[KeyScope]:
    """The scopes with those that they include: chat includes read, and admin includes both."""
    return frozenset[KeyScope]().union(*(_INCLUDED[scope] for scope in scopes))


def secret_of(random: bytes) -> str:
    """The secret for 32 random bytes: ``loom_`` and 43 digits of base 62."""
    number = int.from_bytes(random)
    digits = (number // 62**place % 62 for place in reversed(range(_SECRET_DIGITS)))
    return SECRET_PREFIX + "".join(_BASE62[digit] for digit in digits)


def digest_of(secret: str) -> str:
    """SHA-256 of a secret, in hexadecimal digits, which is what is stored.

    Slow hashes and salts protect passwords, which people choose and reuse. A secret here has 256 random bits: nobody
    finds it by trying, and a fast hash can be looked up by an index for each request.
    """
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
