"""The one declaration of an operation, on its view: route, scope, parameters, body and description come from it."""

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, wraps
from typing import TYPE_CHECKING, Literal

from flask import Flask, Request, Response, current_app, request

from loom_worker.core.text import closest
from loom_worker.core.values.api_keys import KeyScope
from web import rate_limits
from web.bodies import Body
from web.caller import caller
from web.problems import busy, malformed
from web.query import PageQuery, Query
from web.schemas import Member, Named

if TYPE_CHECKING:
    from loom_worker.service.service import Service
    from web.connection_limits import ConnectionLimiter

View = Callable[..., Response]
Answers = Named | Mapping[int, Named | None] | None
NO_CONTENT: Answers = {204: None}
IDEMPOTENT = ("Idempotency-Key", "Prefer")
HEADERS: Mapping[str, Member] = {
    "Last-Event-ID": "whole As starting_after, and before it.",
    "Idempotency-Key": {
        "type": "string",
        "maxLength": 255,
        "description": "The same key, path and body give the same turn again (`Idempotency-Replayed: true`).",
    },
    "Range": "text One range, such as `bytes=0-1023`; several, or what cannot be read, give the whole.",
    "If-Range": "text An ETag: of another version the whole is sent.",
    "If-None-Match": "text ETags: 304 if the client already has it.",
    "Prefer": "text `wait=N`: answer 200 with the ended turn if it ends within N (at most 60) seconds.",
}
"""Headers that operations read."""
TOKEN_PARAMETER = "access_token"  # noqa: S105 - its name
"""Where a browser's EventSource, which sends no header, gives a session's token."""
PARTS_BYTES = 28 * 1024 * 1024
"""Bytes of a body with files in base64."""
LARGE_BODIES, LARGE_WAIT_S = 4, 10.0
"""How many such bodies are taken at once, and how long a further one waits."""
_LARGE = threading.BoundedSemaphore(LARGE_BODIES)
_LONGEST_NAME = 64
"""Characters of an unknown name that the answer repeats."""


@cache
def _served(path: str) -> re.Pattern[str]:
    """What paths of requests look like that an operation's path stands for."""
    return re.compile(re.sub(r"{\w+}", "[^/]+", path))


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path: a decorator of its view.

    The view's docstring becomes the summary. Its parameters that are annotated with a Body or a Query are read, and
    checked, before it is called.
    """

    call: str
    """Method and path, such as ``POST /v1/sessions/{session_id}/turns``; ``{path:…}`` takes slashes, too."""
    answers: Answers = None
    """The schema of a 200, or status to schema; None: no JSON."""
    scope: KeyScope | None = "read"
    """What a key needs for it; None: it is served without a key."""
    problems: tuple[int, ...] = ()
    """Statuses with a Problem, in addition to those that ``all_problems`` finds."""
    headers: tuple[str, ...] = ()
    """Names of those HEADERS that it reads."""
    media_type: str = "application/json"
    """Media type of the answers that have a body."""
    by_session_token: bool = False
    """True: a session's token opens it."""
    streams: Literal["never", "large", "always"] = "never"
    """When its view reads the body while it comes in: if that is over the usual bound (to PARTS_BYTES), or always."""
    is_upload: bool = False
    """True: its body is multipart/form-data with a file."""
    begins_turn: bool = False
    """True: it is refused (429) while the key may use no more of the models' tokens."""
    tag: str = ""
    """Heading in the document; empty: that of the views' class."""
    summary: str = ""
    body: type[Body] | None = None
    """The body of a view that reads its body itself."""
    query: type[Query] | None = None

    def __post_init__(self) -> None:
        if self.scope == "read" and self.method != "GET":
            raise TypeError(f"{self.call} is no GET: name the scope that it needs, chat or admin")

    def __call__(self, view: View) -> View:
        """The view, which reads its body and query itself, with this declaration as its ``operation``."""
        models = {
            name: kind
            for name, kind in view.__annotations__.items()
            if isinstance(kind, type) and issubclass(kind, Body | Query)
        }

        @wraps(view)
        def served(views: Views, *ids: str, **named: str) -> Response:
            if self.begins_turn:
                rate_limits.admit(views.service.rate_limits.look_at_tokens(caller().holder))
            with self._large_body():
                return view(views, *ids, **named, **{name: model.read() for name, model in models.items()})

        body = next((each for each in models.values() if issubclass(each, Body)), self.body)
        query = next((each for each in models.values() if issubclass(each, Query)), None)
        summary = " ".join((view.__doc__ or "").split()).removesuffix(".")
        vars(served)["operation"] = replace(self, summary=summary, body=body, query=query)
        return served

    @contextmanager
    def _large_body(self) -> Iterator[None]:
        """Let a body be large while the view runs, a few at a time: it is held several times over."""
        usual_bytes, length = current_app.config["MAX_CONTENT_LENGTH"], request.content_length
        if self.streams != "large" or usual_bytes is None or (length is not None and length <= usual_bytes):
            yield
            return
        if not _LARGE.acquire(timeout=LARGE_WAIT_S):
            raise busy("busy", "too many large requests come in at once; send it again")
        try:
            request.max_content_length = PARTS_BYTES
            yield
        finally:
            _LARGE.release()

    def reads(self, path: str, *, is_large: bool) -> bool:
        """True of a request that its view reads while it comes in; is_large: over the usual bound, or of no length."""
        is_when = self.streams == "always" or (self.streams == "large" and is_large)
        return is_when and _served(self.path).fullmatch(path) is not None

    @property
    def method(self) -> str:
        """In capitals."""
        return self.call.partition(" ")[0]

    @property
    def path(self) -> str:
        """With the names of its parameters in braces."""
        return self.call.partition(" ")[2].replace("{path:", "{")

    @property
    def rule(self) -> str:
        """The path as a route of Flask."""
        return re.sub(r"{((?:path:)?\w+)}", r"<\1>", self.call.partition(" ")[2])

    @property
    def by_status(self) -> Mapping[int, Named | None]:
        """The schemas of its answers."""
        return self.answers if isinstance(self.answers, Mapping) else {200: self.answers}

    @property
    def all_problems(self) -> list[int]:
        """Statuses with a Problem; those of ``/v1`` follow from path, body and parameters.

        The API may refuse anyone and be busy at any time; what a path names may be missing, a body or cursor invalid.
        """
        found = set(self.problems)
        if self.path.startswith("/v1/"):
            found |= {400, 401, 403, 429, 503}
            found |= {404} if "{" in self.path else set()
            found |= {413, 415, 422} if self.body else set()
            found |= {422} if self.query and issubclass(self.query, PageQuery) else set()
        return sorted(found)

    def require_declared(self, request: Request) -> None:
        """Refuse query parameters that the operation does not have: a misspelt filter must not list everything.

        Raises:
            Refused: 400.
        """
        known = tuple(self.query.parameters()) if self.query else ()
        taken = (*known, TOKEN_PARAMETER) if self.by_session_token else known
        unknown = next((name[:_LONGEST_NAME] for name in request.args if name not in taken), None)
        if unknown is None:
            return
        hint = "this operation takes none"
        if known:
            nearest = closest(unknown.lower(), known, least=0.0)
            hint = f"did you mean {nearest!r}? Known are {', '.join(known)}"
        raise malformed(f"unknown query parameter {unknown!r}; {hint}")


class Views:
    """The views of a resource over a service; a subclass says under which heading the document has them."""

    def __init_subclass__(cls, *, tag: str) -> None:
        for view, operation in zip(cls._views().values(), cls.operations(), strict=True):
            vars(view)["operation"] = replace(operation, tag=operation.tag or tag)

    def __init__(self, service: "Service", limiter: "ConnectionLimiter") -> None:
        self.service = service
        self.limiter = limiter

    @property
    def max_wait_s(self) -> int:
        """The longest that a request can wait."""
        return self.service.settings.web.max_wait_s

    @classmethod
    def operations(cls) -> tuple[Operation, ...]:
        """The declarations of its views, in their order."""
        return tuple(vars(view)["operation"] for view in cls._views().values())

    def mount(self, app: Flask) -> None:
        """Serve the views."""
        for name, operation in zip(self._views(), self.operations(), strict=True):
            app.add_url_rule(operation.rule, operation.call, getattr(self, name), methods=[operation.method])

    @classmethod
    def _views(cls) -> dict[str, View]:
        return {name: each for name, each in vars(cls).items() if "operation" in getattr(each, "__dict__", ())}


def operation_of(request: Request) -> Operation | None:
    """The operation that a request means; None if no route matches it, or a browser asks what it may send."""
    if request.endpoint is None or request.method == "OPTIONS":
        return None
    found: Operation | None = getattr(current_app.view_functions[request.endpoint], "operation", None)
    return found
