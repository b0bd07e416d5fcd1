"""The pattern library: what is in it, what fits a question and why, what came of each pattern."""

from dataclasses import asdict

from flask import Response
from pydantic import Field

from loom_worker.core.errors import Flaw, Invalid, Unavailable
from loom_worker.core.values.json import Json, rfc3339
from loom_worker.core.values.patterns import Effect, Pattern, PatternMatch
from web.answers import json_answer, list_answer, listed
from web.caller import caller
from web.operation import Operation, Views
from web.query import Count, PageQuery, Query, Text
from web.schemas import array, list_of, record

MOST_CANDIDATES = 20
LONGEST_QUESTION = 4_000
"""Characters; the matcher reads no more."""


class _PatternQuery(PageQuery):
    category: Text | None = Field(None, description="Of this category, library or folder of libraries only.")


class _PatternMatchQuery(Query):
    q: str = Field(
        "", max_length=LONGEST_QUESTION, description="What a user would say; without any word nothing is found."
    )
    k: Count = Field(3, description=f"Most candidates; more than {MOST_CANDIDATES} counts as {MOST_CANDIDATES}.")
    agent: Text | None = Field(None, description="Only patterns that fit what this agent works on; unless given, all.")


_LINE = record(
    "",
    "A pattern.",
    "id object=pattern title description category difficulty backend_type tags source version",
    Pattern,
    source="text File and line, within the library's folder.",
    version="text Another one as soon as the pattern says something else.",
)
PATTERN_LIST = record(
    "PatternList",
    "The whole library as the answering process has it.",
    "object=list has_more:flag next:text? loaded_at:time",
    data=array(_LINE),
    errors="text[] What of the library's files could not be read, and why.",
    processes="free[] What each worker process has loaded.",
)
_EFFECT = record(
    "",
    "What came of the workspace's turns that used a pattern.",
    "uses succeeded failed success cost_usd tokens last_used_at:time?",
    Effect,
    success="number? Of those that count, 0 to 1.",
)
PATTERN = record(
    "Pattern",
    "A pattern, whole; `extra` are keys of its file that Loom does not know.",
    "use_cases intents related_patterns parameters examples common_errors name priority templates best_practices "
    "syntax extra",
    Pattern,
    effect=_EFFECT,
    effect_of_all_versions=_EFFECT,
    **_LINE.schema["properties"],
)
PATTERN_MATCH = record(
    "PatternMatch",
    "A candidate for a question.",
    "id:text object=pattern_match title:text score confidence terms",
    PatternMatch,
    score="number How alike question and pattern are, 0 to 1.",
    confidence="number The chance that it is the right one, 0 to 1.",
    terms="text[] The words that counted, the weightiest first.",
)


class PatternViews(Views, tag="patterns"):
    """The views under ``/v1/patterns``; the library is the same for all workspaces, what came of it is not."""

    @Operation("GET /v1/patterns", PATTERN_LIST)
    def list(self, asked: _PatternQuery) -> Response:
        """List the patterns, and what of their files is in error."""
        catalog = self.service.patterns
        state = catalog.state()
        try:
            processes = tuple(catalog.loaded())
        except Unavailable:  # Redis is away; the library itself is here
            processes = ()
        return json_answer(
            {
                **listed(map(_line, catalog.patterns(asked.category)), "id", asked),
                "errors": list(state.problems),
                "loaded_at": rfc3339(state.loaded_ms),
                "processes": processes,
            }
        )

    @Operation("GET /v1/patterns/match", list_of(PATTERN_MATCH), problems=(422,))
    def match(self, asked: _PatternMatchQuery) -> Response:
        """Find the patterns that fit a question, and why."""
        known = [each.name for each in self.service.agents()]
        if asked.agent is not None and asked.agent not in known:
            detail = f"There is no agent {asked.agent!r}; there are: {', '.join(known)}."
            raise Invalid(detail, (Flaw("/agent", "unknown agent"),))
        most = min(asked.k, MOST_CANDIDATES)
        found = self.service.patterns.match(asked.q, most, asked.agent)
        return list_answer(map(PatternMatch.as_json, found))

    @Operation("GET /v1/patterns/{path:pattern_id}", PATTERN)
    def get(self, pattern_id: str) -> Response:
        """Look at a pattern, and at what came of it."""
        account = self.service.patterns.account(caller().workspace, pattern_id)
        fields = asdict(account.pattern)
        del fields["digest"], fields["line"]
        outcomes = {
            "effect": _effect(account.effect),
            "effect_of_all_versions": _effect(account.all_time),
        }
        return json_answer({**fields, **_line(account.pattern), **outcomes})


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
