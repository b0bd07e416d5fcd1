"""Every error a client can see, as RFC 9457 problem+json; the one place where errors become status codes."""

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from urllib.parse import quote

from flask import Response, current_app, g, request
from werkzeug.exceptions import HTTPException
from werkzeug.exceptions import NotFound as RouteNotFound

from loom_worker.core.errors import (
    Conflict,
    Flaw,
    Forbidden,
    Invalid,
    LoomError,
    NotFound,
    QueueFull,
    Rejected,
    Transient,
    Unavailable,
)
from loom_worker.core.text import closest
from loom_worker.core.values.json import Json
from web.schemas import array, record

log = logging.getLogger("loom.web")

MEDIA_TYPE = "application/problem+json"
PROBLEM = record(
    "Problem",
    "RFC 9457 problem details.",
    "title:text detail:text instance:text",
    type={"type": "string", "format": "uri-reference"},
    status={"type": "integer"},
    also={
        "request_id": "text?",
        "errors": array(record("", "One flaw of the body.", "pointer:text detail:text")),
        "reasons": "text[]",
    },
)
_LONGEST_COMPARED = 256
"""Characters of an unknown path that are compared with those that are served."""
RETRY_S = 1
"""What a busy answer suggests when nothing better is known."""


@dataclass(frozen=True, slots=True)
class ProblemDetails:
    """One error answer."""

    status: int
    slug: str
    """The last part of ``type``, such as ``queue-full``; stable, for programs."""
    detail: str
    extra: Json = field(default_factory=dict)
    """Further members of the JSON object, such as ``errors``."""
    headers: Mapping[str, str] = field(default_factory=dict)

    def as_json(self, *, instance: str, request_id: str | None) -> Json:
        """The problem's object; ``type`` is a relative URI."""
        return {
            "type": f"/problems/{self.slug}",
            "title": self.slug.replace("-", " ").capitalize(),
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
            "request_id": request_id,
            **self.extra,
        }


class Refused(Rejected):
    """The front end itself refuses a request; ``args[0]`` is the ProblemDetails."""

    @property
    def problem(self) -> ProblemDetails:
        found: ProblemDetails = self.args[0]
        return found


def malformed(detail: str) -> Refused:
    """400: the request cannot be read at all."""
    return Refused(ProblemDetails(400, "malformed", detail))


def invalid(flaws: tuple[Flaw, ...], *, slug: str = "invalid", detail: str | None = None) -> Refused:
    """422: readable, but some values are refused; ``errors`` names each of them."""
    places = [{"pointer": flaw.pointer, "detail": flaw.detail} for flaw in flaws]
    text = detail or "; ".join(f"{flaw.pointer or 'body'}: {flaw.detail}" for flaw in flaws[:3])
    return Refused(ProblemDetails(422, slug, text, {"errors": places} if places else {}))


def busy(slug: str, detail: str, *, status: int = 503, retry_s: float | None = RETRY_S) -> Refused:
    """503 or 429 with ``Retry-After`` in whole seconds, rounded up; without it if waiting does not help."""
    headers = {} if retry_s is None else {"Retry-After": str(max(1, math.ceil(retry_s)))}
    return Refused(ProblemDetails(status, slug, detail, {}, headers))


def problem_of(error: Exception) -> ProblemDetails:
    """Translate any error; what is not known here is a bug, so its text stays inside."""
    match error:
        case Refused():
            return error.problem
        case RouteNotFound() if request.url_rule is None:
            return _of_no_route(request.path)
        case HTTPException():
            allowed = getattr(error, "valid_methods", None)
            headers = {"Allow": ", ".join(sorted(allowed))} if allowed else {}
            slug = error.name.lower().replace(" ", "-")
            return ProblemDetails(error.code or 500, slug, error.description or error.name, {}, headers)
        case Rejected():
            return _of_rejected(error)
        case Transient():
            known = error.slug if isinstance(error, Unavailable) else None
            return busy(known or "unavailable", str(error), retry_s=_retry_s(error) or RETRY_S).problem
        case _:
            return ProblemDetails(500, "internal", "Loom failed to answer; its log has the request id")


def _of_no_route(path: str) -> ProblemDetails:
    """404 with the served path that is nearest, in which the given ids stand."""
    short = path if len(path) <= _LONGEST_COMPARED else ""
    in_version = f"/v1{short}"
    nearest = in_version if in_version in _served_as(in_version) else closest(short, _served_as(short))
    hint = f"; did you mean {nearest}?" if nearest else "; /docs lists what is served"
    extra = {"nearest": nearest} if nearest else {}
    return ProblemDetails(404, "not-found", f"nothing is served at this path{hint}", extra)


def _served_as(path: str) -> set[str]:
    """The paths of all routes, with what a path has in the places of their parameters."""
    given = path.split("/")
    routes = (rule.rule.split("/") for rule in current_app.url_map.iter_rules())
    filled = (zip_longest(parts, given[: len(parts)], fillvalue="") for parts in routes)
    return {"/".join((own or part) if part.startswith("<") else part for part, own in each) for each in filled}


def _of_rejected(error: Rejected) -> ProblemDetails:
    match error:
        case NotFound():
            return ProblemDetails(404, error.slug or "not-found", str(error))
        case Forbidden():
            return ProblemDetails(403, error.slug or "forbidden", str(error))
        case Conflict():
            return ProblemDetails(409, error.slug or "conflict", str(error))
        case Invalid():
            return invalid(error.flaws, slug=error.slug or "invalid", detail=str(error)).problem
        case QueueFull():
            slug = error.slug or "queue-full"
            return busy(slug, str(error), status=429, retry_s=_retry_s(error)).problem
        case _:
            return ProblemDetails(400, error.slug or "rejected", str(error))


def answer(error: Exception) -> Response:
    """The response for any error raised while a request was served."""
    problem = problem_of(error)
    request_id = g.get("request_id")
    if problem.status >= 500 and not isinstance(error, Transient | Refused):
        log.error("request %s: %s %s failed", request_id, request.method, request.path, exc_info=error)
    body = body_of(problem, path=request.path, request_id=request_id)
    return Response(body, problem.status, headers=dict(problem.headers), content_type=MEDIA_TYPE)


def body_of(problem: ProblemDetails, *, path: str, request_id: str | None) -> str:
    """The body of an error answer to a request."""
    return json.dumps(problem.as_json(instance=quote(path), request_id=request_id), separators=(",", ":"))


def _retry_s(error: LoomError) -> float | None:
    """The error's second argument if it is a number, None if it is none, RETRY_S if there is no such argument."""
    second = error.args[1] if len(error.args) > 1 else RETRY_S
    return float(second) if isinstance(second, int | float) else None
