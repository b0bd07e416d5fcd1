"""The pattern library: what is in it, what fits a question and why, what came of each pattern."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from flask import Response, request

from loom_worker.core.errors import Flaw, Invalid, Unavailable
from loom_worker.core.values.json import Json, rfc3339
from loom_worker.core.values.patterns import Effect, Pattern, PatternMatch
from web.answers import Route, json_answer, list_answer, listed
from web.caller import caller
from web.problems import malformed
from web.query import text_argument, whole_argument

if TYPE_CHECKING:
    from loom_worker.service.service import Service

CANDIDATES, MOST_CANDIDATES = 3, 20
LONGEST_QUESTION = 4_000
"""Characters; the matcher reads no more."""


class PatternViews:
    """The views under ``/v1/patterns``; the library is the same for all workspaces, what came of it is not."""

    def __init__(self, service: "Service") -> None:
        self._service = service

    def routes(self) -> tuple[Route, ...]:
        """Where the views are mounted."""
        return (
            Route("GET", "/v1/patterns", self.list),
            Route("GET", "/v1/patterns/match", self.match),
            Route("GET", "/v1/patterns/<path:pattern_id>", self.get),
        )

    def list(self) -> Response:
        """List all patterns, or those of ``?category``, with the errors in the library's files."""
        catalog = self._service.patterns
        state = catalog.state()
        try:
            processes = tuple(catalog.loaded())
        except Unavailable:  # Redis is away; the library itself is here
            processes = ()
        return json_answer(
            {
                **listed(map(_line, catalog.patterns(text_argument("category"))), "id"),
                "errors": list(state.problems),
                "loaded_at": rfc3339(state.loaded_ms),
                "processes": processes,
            }
        )

    def get(self, pattern_id: str) -> Response:
        """Look at one pattern, and at what came of turns that used it."""
        account = self._service.patterns.account(caller().workspace, pattern_id)
        fields = asdict(account.pattern)
        del fields["digest"], fields["line"]
        outcomes = {
            "effect": _effect(account.effect),
            "effect_of_all_versions": _effect(account.all_time),
        }
        return json_answer({**fields, **_line(account.pattern), **outcomes})

    def match(self) -> Response:
        """Find the patterns that fit ``?q``, the best first, and say why; ``?k`` is 3, more than 20 counts as 20."""
        question, k = request.args.get("q", ""), whole_argument("k", CANDIDATES)
        if k < 1 or len(question) > LONGEST_QUESTION:
            raise malformed(f"k must be 1 to {MOST_CANDIDATES}, q at most {LONGEST_QUESTION} characters")
        most = min(k, MOST_CANDIDATES)
        agent, known = text_argument("agent"), [each.name for each in self._service.agents()]
        if agent is not None and agent not in known:
            detail = f"There is no agent {agent!r}; there are: {', '.join(known)}."
            raise Invalid(detail, (Flaw("/agent", "unknown agent"),))
        found = self._service.patterns.match(question, most, agent)
        return list_answer(map(PatternMatch.as_json, found))


def _line(pattern: Pattern) -> Json:
    return {
        "id": pattern.id,
        "object": "pattern",
        "title": pattern.title,
        "description": pattern.description,
        "category": pattern.category,
        "difficulty": pattern.difficulty,
        "backend_type": pattern.backend_type,
        "tags": list(pattern.tags),
        "source": f"{pattern.source}:{pattern.line}",
        "version": pattern.digest,
    }


def _effect(effect: Effect) -> Json:
    judged = effect.succeeded + effect.failed
    return {
        "uses": effect.uses,
        "succeeded": effect.succeeded,
        "failed": effect.failed,
        "success": round(effect.succeeded / judged, 4) if judged else None,
        "cost_usd": round(effect.cost_usd, 6),
        "tokens": effect.tokens,
        "last_used_at": rfc3339(effect.last_ms),
    }
