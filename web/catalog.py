"""What there is and how it goes: agents, tools, the queue, webhook deliveries."""

from typing import TYPE_CHECKING

from flask import Response

from loom_worker.core.errors import NotFound
from loom_worker.core.values.agents import Agent, ApprovalPolicy
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Tool
from web.answers import Route, json_answer, known_id, listed, page_answer
from web.bodies import no_body
from web.caller import caller
from web.query import page_wanted, text_argument

if TYPE_CHECKING:
    from loom_worker.service.service import Service


class CatalogViews:
    """The views that look around; only a delivery's replay changes anything."""

    def __init__(self, service: "Service") -> None:
        self._service = service

    def routes(self) -> tuple[Route, ...]:
        """Where the views are mounted."""
        return (
            Route("GET", "/v1/agents", self.agents),
            Route("GET", "/v1/agents/<name>", self.agent),
            Route("GET", "/v1/tools", self.tools),
            Route("GET", "/v1/queue/stats", self.queue_stats),
            Route("GET", "/v1/deliveries", self.deliveries),
            Route("POST", "/v1/deliveries/<delivery_id>/replay", self.replay_delivery),
        )

    def agents(self) -> Response:
        """List the agents a session can have."""
        return json_answer(listed((agent_json(agent) for agent in self._service.agents()), "name"))

    def agent(self, name: str) -> Response:
        """Look at one agent."""
        for agent in self._service.agents():
            if agent.name == name:
                return json_answer(self._service.agent_versions.understood(agent) | agent_json(agent))
        raise NotFound("no such agent")

    def tools(self) -> Response:
        """List the tools that ``?agent`` has in the workspace, with their schemas, and whether a call would wait."""
        name = text_argument("agent") or "default"
        tools = self._service.tools(caller().tenant, name)
        approval = next((agent.approval for agent in self._service.agents() if agent.name == name), ApprovalPolicy())
        return json_answer(listed((_tool_json(tool, approval) for tool in tools), "name"))

    def queue_stats(self) -> Response:
        """Count what waits, what runs and who works."""
        return json_answer(self._service.queue_stats(caller().tenant))

    def deliveries(self) -> Response:
        """List webhook deliveries."""
        limit, after = page_wanted()
        return page_answer(self._service.outbox.page(caller().tenant, limit=limit, after=after))

    def replay_delivery(self, delivery_id: str) -> Response:
        """Send a webhook delivery again."""
        no_body()
        known = known_id(delivery_id, "delivery")
        delivery = self._service.replay_delivery(caller().tenant, known, by=caller().holder.actor)
        return json_answer(delivery.as_json(), 202)


def agent_json(agent: Agent) -> Json:
    """An agent as lists have it."""
    return {
        "name": agent.name,
        "object": "agent",
        "version": agent.version,
        "description": agent.description,
        "provider": agent.provider,
        "model": agent.model,
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
