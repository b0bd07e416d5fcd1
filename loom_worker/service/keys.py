"""API keys: who sends a request, and making, replacing and ending keys."""

import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from loom_worker.core.errors import Flaw, Forbidden, Invalid, Unavailable
from loom_worker.core.values.api_keys import (
    SECRET_BYTES,
    SHOWN_CHARS,
    TOKEN_PREFIX,
    ApiKey,
    KeyHolder,
    NewKey,
    digest_of,
    included,
    secret_of,
)
from loom_worker.core.values.ids import new_id, now_ms
from loom_worker.core.values.pages import Page
from loom_worker.core.values.tenants import LOCAL
from loom_worker.store.api_keys import TOUCH_MS, KeyRows

log = logging.getLogger(__name__)

CACHED_S = 5.0
"""What a process has read of a key it takes for true this long: a key that another process revokes works that much
longer at most."""
CACHED_KEYS = 1024
"""Keys that a process remembers; those read least lately are forgotten first."""


class Keys:
    """The keys of all workspaces. Secrets are returned once, by the call that makes them, and never logged."""

    def __init__(self, rows: KeyRows, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._rows = rows
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[ApiKey, float]] = OrderedDict()
        self._required: tuple[bool, float] | None = None

    def find(self, secret: str) -> ApiKey | None:
        """The key with this secret, also if it has ended; None: there is none.

        The secret is compared by its hash alone, so the time this takes says nothing of any other secret. Unknown ones
        are not remembered: whoever tries many would fill the cache with them. Unavailable: the database did not answer.
        """
        digest = digest_of(secret)
        key, read_s = self._read(digest)
        if key is not None and key.id == f"{TOKEN_PREFIX}{LOCAL.key_id}" and self.are_required():
            return None  # made while this machine needed no key
        return key if key is None else self._used(digest, key, read_s)

    def has_ended(self, holder: KeyHolder) -> bool:
        """True once the holder's key is not valid any more, for answers that take long; False if that is not known."""
        if holder.digest is None:
            return False
        with suppress(Unavailable):
            key, _ = self._read(holder.digest)
            return key is None or key.end(now_ms()) is not None
        return False

    def are_required(self) -> bool:
        """True once there is a key that is not revoked: from then on nobody is served without one.

        While the database does not answer, what it said last holds: nobody can make or revoke a key meanwhile.
        Unavailable: the database did not answer, and never did before.
        """
        moment_s, known = self._clock_s(), self._required
        if known is not None and moment_s - known[1] < CACHED_S:
            return known[0]
        try:
            is_required = self._rows.has_kept()
        except Unavailable:
            if known is None:
                raise
            return known[0]
        self._required = (is_required, moment_s)
        return is_required

    def create(self, holder: KeyHolder, new: NewKey) -> tuple[ApiKey, str]:
        """Make a key in the holder's workspace.

        Returns:
            The key, and its secret, which cannot be had again.

        Raises:
            Forbidden: it would allow more than the holder may do, or act for another user.
            Invalid: it would have expired already.
        """
        if holder.user is not None and new.user not in (None, holder.user):
            raise Forbidden("A key that acts for a user makes keys for that user only.")
        _require_no_more(holder, new)
        if new.expires_ms is not None and new.expires_ms <= now_ms():
            raise Invalid("The key would have expired already.", (Flaw("/expires_at", "must be in the future"),))
        key, secret = _made(holder.workspace, replace(new, user=new.user or holder.user))
        self._rows.add(key, digest_of(secret), by=holder.actor)
        self.forget()
        log.info("key created", extra={"key": key.id, "workspace": key.workspace})
        return key, secret

    def rotate(self, holder: KeyHolder, key_id: str, *, grace_s: int) -> tuple[ApiKey, str]:
        """Replace a key by a new one, which allows the same until the same moment.

        Args:
            grace_s: the old key works this much longer.

        Returns:
            The new key, and its secret, which cannot be had again.

        Raises:
            NotFound: the holder has no such key.
            Conflict: the key has ended.
            Forbidden: it allows more than the holder may do.
        """
        old = self._rows.get(holder.tenant, key_id)
        same = NewKey(old.name, old.scopes, old.user, old.expires_ms, old.limits)
        _require_no_more(holder, same)
        key, secret = _made(old.workspace, same, rotated_from=old.id)
        ends_ms = key.created_ms + grace_s * 1000
        self._rows.replace(old, key, digest_of(secret), ends_ms=ends_ms, by=holder.actor)
        self.forget()
        log.info("key rotated", extra={"key": key.id, "rotated_from": old.id, "workspace": key.workspace})
        return key, secret

    def revoke(self, holder: KeyHolder, key_id: str, *, may_be_last: bool) -> ApiKey:
        """End a key now, in other processes within CACHED_S.

        Args:
            may_be_last: True where requests need a key even if no other key is left.

        Raises:
            NotFound: the holder has no such key.
            Conflict: it is the last key, and may not be (slug ``last-key``).
        """
        moment_ms, by = now_ms(), holder.actor
        key = self._rows.revoke(holder.tenant, key_id, now_ms=moment_ms, may_be_last=may_be_last, by=by)
        self.forget()
        log.info("key revoked", extra={"key": key.id, "workspace": key.workspace})
        return key

    def open_session(self, holder: KeyHolder, session_id: str, *, ttl_s: int) -> tuple[str, int]:
        """Make a token for one session, which ends with the holder's key at the latest; NotFound: it is not theirs.

        Returns:
            The token, which cannot be had again, and when it ends, in ms.
        """
        secret, moment_ms = secret_of(secrets.token_bytes(SECRET_BYTES)), now_ms()
        term = (moment_ms, moment_ms + ttl_s * 1000)
        self._rows.add_token(holder.tenant, session_id, digest_of(secret), term, by=holder.actor)
        return secret, term[1]

    def close_session(self, holder: KeyHolder, session_id: str) -> None:
        """End all tokens of a session, in other processes within CACHED_S; NotFound: the holder has no such session."""
        self._rows.end_tokens(holder.tenant, session_id, now_ms=now_ms(), by=holder.actor)
        self.forget()

    def page(self, holder: KeyHolder, *, limit: int, after: str | None) -> Page[ApiKey]:
        """List the holder's keys, the newest first; ``after`` is the id of the last one seen."""
        return self._rows.page(holder.tenant, limit=limit, after=after)

    def _read(self, digest: str) -> tuple[ApiKey | None, float]:
        """The key with this hash, and when it was read: now, or within the last CACHED_S."""
        moment_s = self._clock_s()
        with self._lock:
            key, read_s = self._known.get(digest, (None, 0.0))
        if key is None or moment_s - read_s >= CACHED_S:
            key, read_s = self._rows.by_hash(digest), moment_s
            self._remember(digest, key, read_s)
        return key, read_s

    def _remember(self, digest: str, key: ApiKey | None, read_s: float) -> None:
        with self._lock:
            self._known.pop(digest, None)
            if key is not None:
                self._known[digest] = (key, read_s)
            while len(self._known) > CACHED_KEYS:
                self._known.popitem(last=False)

    def forget(self) -> None:
        """Read every key anew: some were changed."""
        with self._lock:
            self._known.clear()
            self._required = None

    def _used(self, digest: str, key: ApiKey, read_s: float) -> ApiKey:
        """Write down that a valid key was used, at most once a minute."""
        moment_ms = now_ms()
        is_noted = key.last_used_ms is not None and moment_ms - key.last_used_ms < TOUCH_MS
        is_noted = is_noted or key.session is not None  # a token's use is its maker's
        if is_noted or key.end(moment_ms) is not None:
            return key
        used = replace(key, last_used_ms=moment_ms)
        self._remember(digest, used, read_s)
        with suppress(Unavailable):  # the request itself may need no writing
            self._rows.touch(key.id, now_ms=moment_ms)
        return used


def _require_no_more(holder: KeyHolder, new: NewKey) -> None:
    missing = sorted(included(new.scopes) - holder.scopes)
    if missing:
        raise Forbidden(f"Your key lacks the scope {missing[0]}, so it cannot give it to another one.")


def _made(workspace: str, new: NewKey, *, rotated_from: str | None = None) -> tuple[ApiKey, str]:
    secret = secret_of(secrets.token_bytes(SECRET_BYTES))
    key = ApiKey(
        id=new_id("key_"),
        workspace=workspace,
        name=new.name,
        prefix=secret[:SHOWN_CHARS],
        scopes=new.scopes,
        created_ms=now_ms(),
        user=new.user,
        expires_ms=new.expires_ms,
        rotated_from=rotated_from,
        requests_per_minute=new.limits.requests_per_minute,
        tokens_per_minute=new.limits.tokens_per_minute,
    )
    return key, secret
