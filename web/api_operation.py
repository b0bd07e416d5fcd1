"""An operation of the API, as the OpenAPI document describes it."""

from dataclasses import dataclass

from loom_worker.core.values.api_keys import KeyScope


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """One method of one path."""

    method: str
    path: str
    summary: str
    tag: str
    answers: dict[int, str | None]
    """Status to the name of a schema; None: no JSON body."""
    problems: tuple[int, ...] = ()
    """Statuses with a Problem, in addition to those every operation has."""
    body: str | None = None
    parameters: tuple[str, ...] = ()
    media_type: str = "application/json"
    """Of the answers that have a body."""
    scope: KeyScope | None = None
    """What a key needs for it; every operation under ``/v1`` has one (a test checks), pages and probes have none."""


PAGE = ("limit", "after")
"""Parameters of every list that comes in pages."""
