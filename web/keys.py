"""API keys, and tokens of sessions: made, replaced and revoked; a new one's secret is in that one answer."""

from typing import TYPE_CHECKING

from flask import Response, request

from loom_worker.core.values.api_keys import ApiKey
from loom_worker.core.values.json import rfc3339
from web.answers import Route, json_answer, known_id, page_answer
from web.auth import require_home_token
from web.bodies import json_body, new_key, rotation_grace_s, token_ttl_s
from web.caller import caller
from web.query import page_wanted

if TYPE_CHECKING:
    from loom_worker.service.service import Service


class KeyViews:
    """The views under ``/v1/keys``."""

    def __init__(self, service: "Service") -> None:
        self._keys, self._home = service.keys, service.settings.home
        self._has_others = bool(service.settings.web.api_keys)

    def routes(self) -> tuple[Route, ...]:
        """Where the views are mounted."""
        return (
            Route("GET", "/v1/keys", self.list),
            Route("POST", "/v1/keys", self.create),
            Route("DELETE", "/v1/keys/<key_id>", self.revoke),
            Route("POST", "/v1/keys/<key_id>/rotate", self.rotate),
            Route("POST", "/v1/sessions/<session_id>/token", self.open_session),
            Route("DELETE", "/v1/sessions/<session_id>/token", self.close_session),
        )

    def list(self) -> Response:
        """List the keys of the workspace, or of the user whom the caller's key acts for."""
        limit, after = page_wanted()
        return page_answer(self._keys.page(caller().holder, limit=limit, after=after))

    def create(self) -> Response:
        """Make a key; the first one for those alone who can read the home, which keeps confined tools from it."""
        if caller().holder.key_id is None:
            require_home_token(request, self._home)
        return _made(*self._keys.create(caller().holder, new_key(json_body())), status=201)

    def rotate(self, key_id: str) -> Response:
        """Replace a key by a new one."""
        known, grace_s = known_id(key_id, "key"), rotation_grace_s()
        return _made(*self._keys.rotate(caller().holder, known, grace_s=grace_s), status=200)

    def revoke(self, key_id: str) -> Response:
        """End a key now."""
        # Over HTTP nobody may take the last key away: without any, programs on this machine need none.
        self._keys.revoke(caller().holder, known_id(key_id, "key"), may_be_last=self._has_others)
        return Response(status=204)

    def open_session(self, session_id: str) -> Response:
        """Make a token for one session."""
        known, ttl_s = known_id(session_id, "session"), token_ttl_s()
        token, ends_ms = self._keys.open_session(caller().holder, known, ttl_s=ttl_s)
        return json_answer({"token": token, "expires_at": rfc3339(ends_ms)}, 201)

    def close_session(self, session_id: str) -> Response:
        """End the session's tokens."""
        self._keys.close_session(caller().holder, known_id(session_id, "session"))
        return Response(status=204)


def _made(key: ApiKey, secret: str, *, status: int) -> Response:
    return json_answer({**key.as_json(), "secret": secret}, status)
