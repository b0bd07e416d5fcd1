"""Agents, the tools that they have, and their versions: look at them, compare them, activate one."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Literal

from flask import Response
from pydantic import Field

from loom_worker.core.errors import Flaw, NotFound
from loom_worker.core.values.agent_versions import LATEST, ActivationRequest, LabelName
from loom_worker.core.values.agents import UNSHOWN, Agent, ApprovalPolicy
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Tool
from web.answers import json_answer, known_id, listed, page_answer
from web.bodies import Body
from web.caller import caller
from web.check import ABSENT
from web.operation import Operation, Views
from web.query import PageQuery, Query, Text
from web.schemas import array, list_of, nullable, one_of, record

_PATH = "/v1/agents/{name}"


class AgentActivationBody(Body):
    """Which version of an agent sessions of the workspace are to get."""

    version: str = Field(
        min_length=1,
        max_length=64,
        description="A version, a label, or `latest`: the label goes, and new sessions follow the file again.",
    )
    label: LabelName = Field("production", alias="as")
    share: float = Field(ABSENT, ge=0, le=1, description="Of new sessions, for `canary`, which needs it.")
    sessions: Literal["new", "all"] = Field(
        "new", description="all: sessions of the workspace that have begun move to the version, too."
    )

    @classmethod
    def further_flaws(cls, given: Json) -> Iterator[Flaw]:
        """Shares are of canaries, and what has begun does not move to one."""
        label = given.get("as", "production")
        if label == "canary" and "share" not in given and given.get("version") != LATEST:
            yield Flaw("/share", "is needed for a canary")
        if label == "production" and "share" in given:
            yield Flaw("/as", "production takes no share")
        if label == "canary" and given.get("sessions") == "all":
            yield Flaw("/sessions", "all goes with production alone")

    def value(self) -> ActivationRequest:
        share = 1.0 if self.share is None else self.share
        return ActivationRequest(self.version, self.label, share, self.sessions == "all")


class _ToolQuery(PageQuery):
    agent: Text = Field("default", description="An agent's name.")


class _DiffQuery(Query):
    before: Text | None = Field(
        None, alias="from", description="A version or label; unless given, the version before it."
    )


AGENT = record(
    "Agent",
    "Who answers. Agents come from YAML files; null means the setting of the process holds.",
    "name object=agent version description provider:text? model:text? tools max_llm_calls max_tool_calls timeout_s "
    "patterns_enabled unknown_keys",
    Agent,
    also=" ".join(each.name for each in fields(Agent) if each.name not in UNSHOWN | {"tools"}),
    tools="text[]? null: every tool there is.",
)
TOOL = record(
    "Tool",
    "A tool, with the JSON Schema of its arguments.",
    "name:text object=tool description:text input_schema:free is_read_only is_idempotent needs_approval timeout_s",
    Tool,
    needs_approval="flag A call by this agent waits for a person.",
)
MODEL = record(
    "Model",
    "A model that can be named; null where nothing is known of it.",
    "id:text object=model context_tokens:whole? max_output_tokens:whole?",
    can="text[] Some of tools, images, files, thinking, json_schema.",
    prices=nullable(
        record("", "USD per million tokens.", "input:number output:number cache_write:number cache_read:number")
    ),
)
AGENT_VERSION = record(
    "AgentVersion",
    "One text that an agent's file has had.",
    "object=agent.version agent:text",
    version="text As the file declares it, with a number where another text had that already.",
    digest="text SHA-256 of the document.",
    by="text `file`: an edit was noticed.",
    labels=array(one_of(LabelName)) | {"description": "In the caller's workspace."},
    active="flag New sessions of the workspace get it, those of the canary aside.",
    created_at="time When it was noticed.",
)
_VERSION = AGENT_VERSION.schema["properties"]
AGENT_VERSION_DOCUMENT = record(
    "AgentVersionDocument",
    "A version with its text.",
    **_VERSION,
    document="free All that the file says about the agent.",
)
AGENT_DIFF = record(
    "AgentDiff",
    "What a version of an agent changed.",
    "object=agent.diff agent:text from:text to:text",
    diff="text A unified diff of the documents as YAML; empty if they say the same.",
)
AGENT_ACTIVATED = record(
    "AgentActivated",
    "The version that was activated.",
    moved_sessions="whole Sessions that had another version, or none yet.",
    **_VERSION,
)


class AgentViews(Views, tag="agents"):
    """The views of agents and their tools."""

    @Operation("GET /v1/agents", list_of(AGENT))
    def list(self, page: PageQuery) -> Response:
        """List agents."""
        return json_answer(listed((agent_json(agent) for agent in self.service.agents()), "name", page))

    @Operation(f"GET {_PATH}", AGENT)
    def get(self, name: str) -> Response:
        """Look at an agent."""
        for agent in self.service.agents():
            if agent.name == name:
                return json_answer(self.service.agent_versions.understood(agent) | agent_json(agent))
        raise NotFound("no such agent")

    @Operation("GET /v1/models", list_of(MODEL))
    def models(self, page: PageQuery) -> Response:
        """List the models that agents, sessions and your workspace can name, as `provider/model`."""
        return json_answer(listed(self.service.models(caller().tenant), "id", page))

    @Operation("GET /v1/tools", list_of(TOOL))
    def tools(self, asked: _ToolQuery) -> Response:
        """List the tools that an agent has in your workspace."""
        tools, agents = self.service.tools(caller().tenant, asked.agent), self.service.agents()
        approval = next((agent.approval for agent in agents if agent.name == asked.agent), ApprovalPolicy())
        return json_answer(listed((_tool_json(tool, approval) for tool in tools), "name", asked))


class AgentVersionViews(Views, tag="agents"):
    """The views of an agent's versions."""

    @Operation(f"GET {_PATH}/versions", list_of(AGENT_VERSION))
    def list(self, name: str, page: PageQuery) -> Response:
        """List the versions of an agent, the newest first."""
        tenant, known = caller().tenant, known_id(name, "agent")
        return page_answer(self.service.agent_versions.page(tenant, known, limit=page.limit, after=page.after))

    @Operation(f"GET {_PATH}/versions/{{version}}", AGENT_VERSION_DOCUMENT, scope="admin")
    def get(self, name: str, version: str) -> Response:
        """Look at a version of an agent, with its document."""
        known, known_version = known_id(name, "agent"), known_id(version, "version")
        return json_answer(self.service.agent_versions.get(caller().tenant, known, known_version).with_document())

    @Operation(f"GET {_PATH}/versions/{{version}}/diff", AGENT_DIFF, scope="admin", problems=(422,))
    def diff(self, name: str, version: str, asked: _DiffQuery) -> Response:
        """Compare two versions of an agent."""
        known, known_version = known_id(name, "agent"), known_id(version, "version")
        return json_answer(self.service.agent_versions.diff(caller().tenant, known, known_version, before=asked.before))

    @Operation(f"POST {_PATH}/activate", AGENT_ACTIVATED, scope="admin", problems=(409,))
    def activate(self, name: str, asked: AgentActivationBody) -> Response:
        """Let sessions of the workspace have a version of an agent."""
        known, by = known_id(name, "agent"), caller().holder.actor
        return json_answer(self.service.agent_versions.activate(caller().tenant, known, asked.value(), by=by))


def agent_json(agent: Agent) -> Json:
    """An agent as lists have it."""
    return {
        "name": agent.name,
        "object": "agent",
        "version": agent.version,
        "description": agent.description,
        "provider": agent.llm.provider,
        "model": agent.llm.model,
        "tools": None if agent.tools is None else [*agent.tools, *agent.custom],
        "max_llm_calls": agent.max_llm_calls,
        "max_tool_calls": agent.max_tool_calls,
        "timeout_s": agent.timeout_s,
        "patterns_enabled": agent.patterns_enabled,
        "unknown_keys": list(agent.unknown_keys),
    }


def _tool_json(tool: Tool, approval: ApprovalPolicy) -> Json:
    return {
        "name": tool.spec.name,
        "object": "tool",
        "description": tool.spec.description,
        "input_schema": dict(tool.spec.input_schema),
        "is_read_only": tool.is_read_only,
        "is_idempotent": tool.is_idempotent,
        "needs_approval": approval.holds(tool),
        "timeout_s": tool.timeout_s,
    }
