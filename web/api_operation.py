"""An operation of the API, as the OpenAPI document describes it."""

from dataclasses import dataclass, replace

from loom_worker.core.values.api_keys import KeyScope

PAGE = ("limit", "after")
"""Parameters of every list that comes in pages."""


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """One method of one path."""

    call: str
    """Method and path: ``POST /v1/sessions/{session_id}/turns``."""
    summary: str
    answers: dict[int, str | None]
    """Status to the name of a schema; None: no JSON body."""
    body: str | None = None
    parameters: tuple[str, ...] = ()
    problems: tuple[int, ...] = ()
    """Statuses with a Problem, in addition to those that ``implied_problems`` finds."""
    scope: KeyScope | None = None
    """What a key needs for it; every operation under ``/v1`` has one (a test checks), pages and probes have none."""
    media_type: str = "application/json"
    """Schemas of the answers that have a body."""
    tag: str = ""

    @property
    def method(self) -> str:
        """In capitals."""
        return self.call.partition(" ")[0]

    @property
    def path(self) -> str:
        """With the names of its parameters in braces."""
        return self.call.partition(" ")[2]

    def implied_problems(self) -> set[int]:
        """Statuses that follow from the path, the body and the parameters of an operation under ``/v1``.

        The API may refuse anyone and be busy at any time; what a path names may be missing, a body or cursor invalid.
        """
        if not self.path.startswith("/v1/"):
            return set()
        named = {404} if "{" in self.path else set()
        bodies = {413, 415, 422} if self.body else set()
        paged = {422} if "after" in self.parameters else set()
        return {400, 401, 403, 429, 503} | named | bodies | paged


def get(
    path: str,
    summary: str,
    answer: str | None,
    parameters: tuple[str, ...] = (),
    *,
    problems: tuple[int, ...] = (),
    scope: KeyScope | None = "read",
) -> ApiOperation:
    """An operation that reads: it answers 200, and a key of any scope may call it unless another scope is named."""
    return ApiOperation(f"GET {path}", summary, {200: answer}, None, parameters, problems, scope)


def tagged(tag: str, *operations: ApiOperation) -> tuple[ApiOperation, ...]:
    """The operations under one heading of the document."""
    return tuple(replace(operation, tag=tag) for operation in operations)
