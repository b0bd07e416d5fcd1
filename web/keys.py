"""API keys, and tokens of sessions: made, replaced and revoked; a new one's secret is in that one answer."""

from typing import Annotated

from flask import Response, request
from pydantic import Field

from loom_worker.core.values.api_keys import (
    ALL_SCOPES,
    MOST_TOKEN_S,
    USUAL_TOKEN_S,
    ApiKey,
    KeyLimits,
    KeyScope,
    NewKey,
)
from loom_worker.core.values.json import rfc3339
from web.answers import json_answer, known_id, page_answer
from web.auth import require_home_token
from web.bodies import WHOLE_NUMBER, Body, User
from web.caller import caller
from web.check import NOT_BLANK, UNIQUE, Moment
from web.operation import NO_CONTENT, Operation, Views
from web.query import PageQuery
from web.schemas import list_of, record

MOST_REQUESTS, MOST_TOKENS = 60_000, 1_000_000_000
"""Requests of a key in a minute. The time of each of the latest requests is kept."""
MAX_GRACE_S = 30 * 86_400


class NewKeyBody(Body):
    """A key to be made."""

    name: str = Field(max_length=128, pattern=NOT_BLANK, description="For people, such as what the key is for.")
    scopes: Annotated[list[KeyScope], Field(min_length=1, max_length=len(ALL_SCOPES), json_schema_extra=UNIQUE)] = (
        Field(
            ["chat"],
            description="read: GET. chat: also what changes sessions and turns. admin: everything, keys included.",
        )
    )
    user: User | None = Field(
        None,
        description="Whom the key acts for: it reaches this user's sessions alone, and the sessions that it creates "
        "are the user's. null: the whole workspace.",
    )
    expires_at: Moment | None = Field(None, description="When the key ends; null: never.")
    requests_per_minute: Annotated[int, Field(ge=1, le=MOST_REQUESTS), WHOLE_NUMBER] | None = Field(
        None, description="In any 60 seconds; null: LOOM_KEY_REQUESTS_PER_MINUTE."
    )
    tokens_per_minute: Annotated[int, Field(ge=1, le=MOST_TOKENS), WHOLE_NUMBER] | None = Field(
        None,
        description="Of the key's turns in any 60 seconds, after which no turn is accepted; null: "
        "LOOM_KEY_TOKENS_PER_MINUTE.",
    )

    def value(self) -> NewKey:
        """As the service makes it."""
        limits = KeyLimits(self.requests_per_minute, self.tokens_per_minute)
        return NewKey(self.name, tuple(self.scopes), user=self.user, expires_ms=self.expires_at, limits=limits)


class RotateKeyBody(Body):
    """How to replace a key; an empty object or no body ends the old one at once."""

    is_optional = True
    grace_s: Annotated[int, Field(ge=0, le=MAX_GRACE_S), WHOLE_NUMBER] = Field(
        0, description="The old key works this many seconds longer."
    )


class NewTokenBody(Body):
    """How long a token lasts; an empty object or no body is the default."""

    is_optional = True
    ttl_s: Annotated[int, Field(ge=1, le=MOST_TOKEN_S), WHOLE_NUMBER] = Field(
        USUAL_TOKEN_S, description="Seconds until the token ends."
    )


KEY = record(
    "Key",
    "An API key, without its secret.",
    "id object=key workspace name prefix scopes user requests_per_minute tokens_per_minute rotated_from created_at "
    "expires_at revoked_at last_used_at",
    ApiKey,
    prefix="text How the secret begins.",
    rotated_from="text? The key that this one replaces.",
    last_used_at="time? Up to a minute old.",
)
_SHOWN_ONCE = {"secret": "text What clients send. It is shown in this answer only."}
MADE_KEY = record("MadeKey", "A new API key.", **KEY.schema["properties"], **_SHOWN_ONCE)
TOKEN = record(
    "Token",
    "A key for a browser, for one session alone.",
    "token expires_at:time",
    token="text It is shown in this answer only.",  # noqa: S106 - a description
)


class KeyViews(Views, tag="keys"):
    """The views under ``/v1/keys``."""

    @Operation("GET /v1/keys", list_of(KEY), scope="admin")
    def list(self, page: PageQuery) -> Response:
        """List API keys, ended ones too."""
        return page_answer(self.service.keys.page(caller().holder, limit=page.limit, after=page.after))

    @Operation("POST /v1/keys", {201: MADE_KEY}, scope="admin")
    def create(self, new: NewKeyBody) -> Response:
        """Make an API key; its secret is shown in this answer only."""
        # The first one is for those alone who can read the home, which keeps confined tools from it.
        if caller().holder.key_id is None:
            require_home_token(request, self.service.settings.home)
        return _made(*self.service.keys.create(caller().holder, new.value()), status=201)

    @Operation("DELETE /v1/keys/{key_id}", NO_CONTENT, scope="admin", problems=(409,))
    def revoke(self, key_id: str) -> Response:
        """Revoke an API key."""
        # Over HTTP nobody may take the last key away: without any, programs on this machine need none.
        has_others = bool(self.service.settings.web.api_keys)
        self.service.keys.revoke(caller().holder, known_id(key_id, "key"), may_be_last=has_others)
        return Response(status=204)

    @Operation("POST /v1/keys/{key_id}/rotate", MADE_KEY, scope="admin", problems=(409,))
    def rotate(self, key_id: str, how: RotateKeyBody) -> Response:
        """Replace an API key by a new one, whose secret is shown in this answer only."""
        known = known_id(key_id, "key")
        return _made(*self.service.keys.rotate(caller().holder, known, grace_s=how.grace_s), status=200)

    @Operation("POST /v1/sessions/{session_id}/token", {201: TOKEN}, scope="chat")
    def open_session(self, session_id: str, wanted: NewTokenBody) -> Response:
        """Make a token for a browser, which opens this session alone."""
        known = known_id(session_id, "session")
        token, ends_ms = self.service.keys.open_session(caller().holder, known, ttl_s=wanted.ttl_s)
        return json_answer({"token": token, "expires_at": rfc3339(ends_ms)}, 201)

    @Operation("DELETE /v1/sessions/{session_id}/token", NO_CONTENT, scope="chat")
    def close_session(self, session_id: str) -> Response:
        """End all tokens of a session."""
        self.service.keys.close_session(caller().holder, known_id(session_id, "session"))
        return Response(status=204)


def _made(key: ApiKey, secret: str, *, status: int) -> Response:
    return json_answer({**key.as_json(), "secret": secret}, status)
