"""Bodies of requests: a model for each; and what other headers say of how to take one.

All raise Refused: 415 or 400 for a body or a header that cannot be read, 422 with every flaw for one that can.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Self

from flask import request
from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationError
from werkzeug.datastructures import Headers

from loom_worker.core.errors import Flaw
from loom_worker.core.values.json import Json
from loom_worker.core.values.tenants import USER_ID
from loom_worker.core.values.webhooks import Webhook
from web.caller import caller
from web.check import ABSENT, IDENTIFIER, Given, Model, any_of, flawed, flaws_of, repeated
from web.problems import ProblemDetails, Refused, invalid, malformed
from web.schemas import Named, schema_of_model
from web.strict_json import parse_object

_WAIT = re.compile(r'(?:^|[,;])\s*wait\s*=\s*"?([0-9]{1,9})"?\s*(?=[,;]|$)', re.IGNORECASE)
_QUOTED = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_PLAIN = re.compile(r"[\x21\x23-\x7e][\x20-\x7e]*")
MAX_DEADLINE_S = 86_400
MOST_USD, MOST_TOKENS = 1_000_000, 1_000_000_000_000
"""Most of a budget; what is larger is unlimited for all practical purposes, and its sums would not be exact."""


class Body(Model):
    """What a client sends: its class' name without ``Body`` names its schema, its docstring describes it."""

    is_optional: ClassVar[bool] = False
    """True: no body at all counts as an empty object."""
    _given: Json = PrivateAttr(default_factory=dict)

    @classmethod
    def read(cls) -> Self:
        """The body of the current request; one of unknown length (chunked) has a length here, too."""
        return cls.of({} if cls.is_optional and not request.content_length else json_body())

    @classmethod
    def of(cls, given: Json) -> Self:
        """Check what was sent.

        Raises:
            Refused: 422, with every flaw.
        """
        schema = schema_of_model(cls)
        flaws = (*cls.further_flaws(given), *repeated(given, schema))
        try:
            found = cls.model_validate(given)
        except ValidationError as error:
            flaws = (*flaws, *flaws_of(error, schema))
        if flaws:
            raise invalid(tuple({flaw.pointer: flaw for flaw in reversed(flaws)}.values())[::-1])
        found._given = given
        return found

    @classmethod
    def further_flaws(cls, given: Json) -> Iterable[Flaw]:
        """Flaws that no single member has; the body may have any others."""
        return ()

    @classmethod
    def named(cls) -> Named:
        """Its schema."""
        return Named(cls.__name__.removesuffix("Body"), schema_of_model(cls))

    @property
    def given(self) -> Json:
        """The body as it was sent."""
        return self._given


class EmptyBody(Body):
    """No members: an empty object, or no body at all."""

    is_optional = True


def json_body() -> Json:
    """The body of the current request.

    Raises:
        Refused: 415 if it is not declared as JSON, 400 if it is none.
        RequestEntityTooLarge: over the limit; seen from its length, before it is read.
    """
    if request.mimetype != "application/json" or request.headers.get("Content-Encoding", "identity") != "identity":
        detail = "send Content-Type: application/json, not compressed"
        raise Refused(ProblemDetails(415, "unsupported-media-type", detail, {}, {"Accept": "application/json"}))
    try:
        return parse_object(request.get_data(cache=False))
    except ValueError as error:
        raise malformed(str(error)) from error


def _whole(given: Any) -> Any:
    """JSON Schema takes 3.0 for an integer too."""
    return int(given) if isinstance(given, float) and given.is_integer() else given


def _at_most(most_bytes: int) -> AfterValidator:
    def fits(given: Json) -> Json:
        if given and len(json.dumps(given, ensure_ascii=False).encode("utf-8")) > most_bytes:
            raise flawed(f"must have at most {most_bytes} bytes as JSON")
        return given

    return AfterValidator(fits)


Name = Annotated[str, Field(pattern=IDENTIFIER)]
User = Annotated[str, Field(pattern=USER_ID)]
ModelName = Annotated[str, Field(min_length=1, max_length=128)]
WHOLE_NUMBER = BeforeValidator(_whole)
"""Behind the bounds of an integer."""
Metadata = Annotated[Json, _at_most(16 * 1024), Field(description="Yours to fill; at most 16 KiB of JSON.")]
Kernel = Annotated[
    Json, _at_most(64 * 1024), Field(description="User identity, goals, preferences; at most 64 KiB of JSON.")
]
Deadline = Annotated[
    float | None,
    Given(Annotated[float | None, Field(gt=0, le=MAX_DEADLINE_S)]),
    Field(description="Seconds from acceptance after which it is given up."),
]


class Amounts(Model):
    """What may be spent; an absent member is unlimited."""

    usd: float = Field(ABSENT, ge=0, le=MOST_USD)
    tokens: Annotated[int, Field(ge=0, le=MOST_TOKENS), WHOLE_NUMBER] = ABSENT
    tool_calls: Annotated[int, Field(ge=0, le=MOST_TOKENS), WHOLE_NUMBER] = ABSENT


class BudgetOverTime(Amounts):
    """What may be spent for good, and under `day` and `month` (UTC) in each; an absent member is unlimited."""

    day: Amounts = ABSENT
    month: Amounts = ABSENT


class _WebhookObject(Model):
    url: str = Field(max_length=2048)
    secret: str | None = Field(None, max_length=256)


def _webhook(given: str | Json | None) -> Webhook | None:
    if given is None:
        return None
    if isinstance(given, str):
        return Webhook(given)
    return Webhook(given["url"], given.get("secret"))


WebhookMember = Annotated[
    Webhook | None,
    Given(any_of(string=Annotated[str, Field(max_length=2048)], object=_WebhookObject) | None, _webhook),
    Field(description="Where to report the end of the turn: a URL, or a URL with its own secret."),
]


def request_fields(scope: str, given: Json) -> dict[str, Any]:
    """What turns and runs keep of the request that asks for them.

    Args:
        scope: the session of a submitted turn, else the path: no id of a session has a slash.
    """
    key, asking = idempotency_key(request.headers), caller()
    return {
        "idempotency_key": key,
        "fingerprint": None if key is None else fingerprint(asking.workspace, scope, given),
        "traceparent": asking.traceparent,
        "trace": asking.trace,
        "request_id": asking.request_id,
        "key_id": asking.holder.key_id,
    }


def fingerprint(workspace: str, scope: str, body: Json) -> str:
    """SHA-256 of what was asked; the order of keys and the spaces between them do not count."""
    canonical = json.dumps([workspace, scope, body], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def idempotency_key(headers: Headers) -> str | None:
    """The ``Idempotency-Key``, quoted or not (a structured string, or the bare word that many clients send)."""
    raw = headers.get("Idempotency-Key")
    if raw is None:
        return None
    raw = raw.strip()
    quoted = _QUOTED.fullmatch(raw)
    key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else raw
    if not 1 <= len(key) <= 255 or not (quoted or _PLAIN.fullmatch(raw)):
        raise malformed("Idempotency-Key must be 1 to 255 printable ASCII characters, quoted or not")
    return key


def preferred_wait_s(headers: Headers) -> int | None:
    """``wait`` of the ``Prefer`` header (RFC 7240), in seconds; None if absent or unreadable: it is but a request."""
    found = _WAIT.search(headers.get("Prefer", ""))
    return None if found is None else int(found[1])
