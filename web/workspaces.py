"""Workspaces: their rules, what is spent in them, and what waits and runs."""

from typing import Annotated, Any

from flask import Response
from pydantic import Field, create_model

from loom_worker.core.errors import NotFound
from loom_worker.core.values.agents import PROVIDERS
from loom_worker.core.values.guardrails import OTHER_WORDS, STAGES, Action, Stage, by_stage, kinds_at
from loom_worker.core.values.json import Json
from loom_worker.core.values.usage import GROUPS, Purpose, UsageFilter
from loom_worker.core.values.waiting import WaitsFor
from web.answers import json_answer, listed
from web.bodies import WHOLE_NUMBER, Body, BudgetOverTime, ModelName
from web.caller import caller
from web.check import ABSENT, Given, Model, any_of, word_of
from web.operation import Operation, Views
from web.query import PeriodQuery, Text
from web.schemas import NUMBER, TEXT, USAGE, WHOLE, Named, array, list_of, nullable, one_of, record

_Globs = Annotated[list[Annotated[str, Field(min_length=1, max_length=128)]], Field(max_length=256)]


class _Names(Model):
    allow: _Globs = Field(ABSENT, description="Names, with `*` and `?`; absent: all that are not denied.")
    deny: _Globs = Field(ABSENT, description="Counts more than `allow`.")


def _stage(stage: Stage) -> Any:
    """Actions by kind, or a list of rules."""
    kinds: Any = dict.fromkeys(kinds_at(stage), (Action, ABSENT))
    by_kind = create_model(f"{stage}_by_kind", __base__=Model, **kinds)
    found = Annotated[str, word_of((*kinds_at(stage), *OTHER_WORDS))]
    rule = create_model(f"{stage}_rule", __base__=Model, find=(found, ...), action=(Action, ...))
    return any_of(object=by_kind, array=list.__class_getitem__(rule))


_stages: Any = {stage: (_stage(stage), ABSENT) for stage in STAGES}
_Guardrails = create_model("_Guardrails", __base__=Model, **_stages)
_Days = Annotated[int, Field(ge=1, le=3650), WHOLE_NUMBER]


class _Retention(Model):
    days: _Days


_RETENTION = any_of(object=_Retention, number=_Days) | None
_NAMES = Given(_Names | None)


class WorkspacePatchBody(Body):
    """Rules that are to change: absent members stay as they are, null clears."""

    budget: Annotated[Any, Given(BudgetOverTime | None)] = Field(
        None, description="For all sessions of the workspace together."
    )
    disabled: bool = Field(
        ABSENT, description="true: what runs is interrupted, what is queued waits, and no turn is accepted (403)."
    )
    retention: Annotated[Any, Given(_RETENTION)] = Field(
        None,
        description="Sessions that nobody used for so many days are deleted; a number alone means days, too. null: as "
        "LOOM_CONVERSATION_DAYS says. The shorter of both counts.",
    )
    guardrails: Annotated[Any, Given(_Guardrails | None)] = Field(
        None,
        description="What texts are searched for, and what becomes of what is found: at each stage actions by kind, or "
        "a list of rules. With an agent's own guardrails the stricter action holds.",
    )
    model: ModelName | None = Field(
        None, description="Answers instead of the agents' own models, unless a session has chosen one."
    )
    provider: Annotated[str, word_of(PROVIDERS)] | None = Field(
        None, description="Serves the models instead of the agents' own providers."
    )
    tools: Annotated[Any, _NAMES] = Field(None, description="Which of its tools an agent may call in this workspace.")
    skills: Annotated[Any, _NAMES] = Field(None, description="Which of the workspace's skills agents have.")

    def value(self) -> Json:
        changes = dict(self.given)
        if self.guardrails is not None:
            changes["guardrails"] = by_stage(self.guardrails)
        if isinstance(self.retention, int | float):
            changes["retention"] = {"days": int(self.retention)}
        return changes


class _UsageQuery(PeriodQuery):
    group_by: Annotated[str, word_of(GROUPS)] = Field("workspace", description="What to sum by; times are in UTC.")
    turn: Text | None = Field(None, description="Of this turn only.")
    session: Text | None = Field(None, description="Of this session only.")
    agent: Text | None = Field(None, description="Of this agent only.")
    model: Text | None = Field(None, description="Of this model only.")
    kind: Purpose | None = Field(None, description="Of calls for this purpose only.")


_AMOUNTS: Json = {"type": "object", "properties": {"usd": NUMBER, "tokens": WHOLE, "tool_calls": WHOLE}}
SPENDING = record(
    "Spending",
    "What is used of a limit; `window` is the day or month in UTC, null for good. Calls that are under way count at "
    "the most they can cost.",
    "level:text window:text? renews_at:time?",
    limit=_AMOUNTS,
    used=_AMOUNTS,
)
_ANY = {"type": ["object", "null"]}
WORKSPACE = record(
    "Workspace",
    "A workspace and the rules that its administrator has set.",
    "name:text disabled:flag model:text? provider:text? updated_at:time?",
    object={"type": "string", "const": "workspace"},
    budget=_ANY,
    retention=nullable(record("", "After how many days without use a session is deleted.", "days:whole")),
    guardrails=_ANY,
    tools=_ANY,
    skills=_ANY,
    spending=array(SPENDING),
)
USAGE_ROW = Named(
    "UsageRow",
    {
        "type": "object",
        "description": "Sums over one group; `key` names it.",
        "properties": {"key": TEXT, "turns": WHOLE, "tool_calls": WHOLE, **USAGE.schema["properties"]},
        "required": ["key", "turns", "input_tokens", "output_tokens", "cost_usd"],
    },
)
QUEUE_STATS = record(
    "QueueStats",
    "What waits, what runs and who works.",
    "workers:whole dead:whole",
    oldest_waiting_for=nullable(one_of(WaitsFor)),
    **dict.fromkeys(("lanes", "queued", "running", "waiting"), WHOLE),
    **{f"oldest_{state}_age_s": nullable(NUMBER) for state in ("queued", "running", "waiting")},
)


class WorkspaceViews(Views, tag="operation"):
    """The views under ``/v1/workspaces``, ``/v1/usage`` and ``/v1/queue``."""

    @Operation("GET /v1/usage", list_of(USAGE_ROW))
    def usage(self, asked: _UsageQuery) -> Response:
        """Sum tokens and cost."""
        where = UsageFilter(
            turn_id=asked.turn,
            session_id=asked.session,
            agent=asked.agent,
            model=asked.model,
            kind=asked.kind,
            since_ms=asked.since,
            until_ms=asked.until,
        )
        rows = self.service.usage(caller().tenant, group_by=asked.group_by, where=where)
        return json_answer(listed(rows, "key", asked))

    @Operation("GET /v1/workspaces/{workspace}", WORKSPACE)
    def get(self, workspace: str) -> Response:
        """Look at your workspace, and at what is used of its budget."""
        return json_answer(self.service.workspaces.report(_own(workspace)))

    @Operation("PATCH /v1/workspaces/{workspace}", WORKSPACE, scope="admin")
    def patch(self, workspace: str, changes: WorkspacePatchBody) -> Response:
        """Change the rules of your workspace."""
        by = caller().holder.actor
        return json_answer(self.service.workspaces.change(_own(workspace), changes.value(), by=by))

    @Operation("GET /v1/queue/stats", QUEUE_STATS)
    def queue_stats(self) -> Response:
        """Count what waits and runs."""
        return json_answer(self.service.queue_stats(caller().tenant))


def _own(workspace: str) -> str:
    """The caller's own workspace, if that is meant; a key that acts for one user reaches no rules of all users.

    Raises:
        NotFound: another one is meant.
    """
    if caller().tenant != workspace:
        raise NotFound("no such workspace")
    return workspace
