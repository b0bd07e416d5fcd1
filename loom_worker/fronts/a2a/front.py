"""What is done with the protocol's calls: messages become turns or decisions, tasks are turns, contexts sessions."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from loom_worker.core.errors import NotFound
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.json import Json
from loom_worker.core.values.tenants import Actor, Tenant
from loom_worker.core.values.turns import NewTurn, Turn
from loom_worker.core.values.webhooks import Webhook
from loom_worker.fronts.a2a import rpc
from loom_worker.fronts.a2a.messages import SentMessage
from loom_worker.fronts.a2a.push import config_of
from loom_worker.fronts.a2a.rpc import RpcError

if TYPE_CHECKING:
    from loom_worker.service.service import Service


CARD_PATH = ".well-known/agent-card.json"
_BINDING = "JSONRPC"
_KEY = "apiKey"
_DECIDED = {"approve": "approved", "reject": "rejected", "edit": "edited"}
_MODES = ["text/plain", "application/json"]


def card(agent: Agent, *, url: str, needs_key: bool) -> Json:
    """The card of an agent.

    Args:
        url: where its methods are called.
        needs_key: whether clients need an API key.
    """
    return {
        "name": agent.name,
        "description": agent.description or f"The agent {agent.name}",
        "version": agent.version,
        "supportedInterfaces": [
            {"url": url, "protocolBinding": _BINDING, "protocolVersion": version} for version in ("1.0", "0.3")
        ],
        "url": url,
        "preferredTransport": _BINDING,
        "protocolVersion": "0.3.0",
        "capabilities": {"streaming": True, "pushNotifications": True, "extendedAgentCard": False},
        "defaultInputModes": _MODES,
        "defaultOutputModes": ["text/plain"],
        "skills": [skill.as_json() for skill in agent.card_skills] or [_own_skill(agent)],
        **(_security() if needs_key else {}),
    }


def _own_skill(agent: Agent) -> Json:
    """What an agent can do whose file names no skills: what its description says."""
    return {
        "id": agent.name,
        "name": agent.name,
        "description": agent.description or f"Whatever the agent {agent.name} is asked",
        "tags": ["agent"],
    }


def _security() -> Json:
    # 1.0 nests the scheme by its kind, 0.3 names its kind in ``type``: readers of either pass over the other's members.
    scheme = {"httpAuthSecurityScheme": {"scheme": "bearer"}, "type": "http", "scheme": "bearer"}
    return {
        "securitySchemes": {_KEY: scheme},
        "securityRequirements": [{"schemes": {_KEY: {"list": []}}}],
        "security": [{_KEY: []}],
    }


@dataclass(frozen=True, slots=True)
class A2aClient:
    """Who calls, and which agent."""

    tenant: Tenant
    agent: str
    actor: Actor
    fingerprint: str
    """SHA-256 of what is asked, to tell another message with the same id from the same message again."""
    origin: NewTurn
    """What each turn of the request has in common: trace, request id, key."""


class A2aFront:
    """The agents of an installation as the protocol knows them."""

    def __init__(self, service: "Service") -> None:
        self._service = service

    def agent(self, name: str) -> Agent:
        """An agent, or raise NotFound."""
        found = next((agent for agent in self._service.agents() if agent.name == name), None)
        if found is None:
            raise NotFound("no such agent")
        return found

    def send(self, client: A2aClient, message: SentMessage) -> Turn:
        """Begin a task, or answer the question of one that asks.

        Raises:
            RpcError: the task ended, asks nothing, or is another agent's; the message is no answer to its question.
            Invalid, Conflict, QueueFull, Forbidden, Unavailable: as Service.submit.
        """
        if message.task_id is not None:
            return self._decide(client, message, self.task(client, message.task_id))
        if message.webhook is not None:
            self._service.check_webhook(message.webhook)
        new = replace(
            client.origin,
            input=message.text,
            webhook=message.webhook,
            metadata=message.metadata,
            idempotency_key=message.key(client.agent),
            fingerprint=client.fingerprint,
        )
        context_id = message.context_id or message.new_context(client.agent)
        turn, _ = self._service.submit(client.tenant, context_id, new, agent=client.agent)
        return turn

    def task(self, client: A2aClient, task_id: str) -> Turn:
        """A task of the agent.

        Raises:
            RpcError: TASK_NOT_FOUND, also for a task of another agent.
        """
        try:
            turn = self._service.turn(client.tenant, task_id)
        except NotFound as error:
            raise _not_found(task_id) from error
        if turn.agent != client.agent:
            raise _not_found(task_id)
        return turn

    def cancel(self, client: A2aClient, task_id: str) -> Turn:
        """Ask a task to end; what it has said stays.

        Raises:
            RpcError: TASK_NOT_CANCELABLE, it has ended.
        """
        if self.task(client, task_id).is_finished:
            raise RpcError(f"the task {task_id} has ended", rpc.TASK_NOT_CANCELABLE)
        return self._service.cancel(client.tenant, task_id, "interrupt")

    def set_push(self, client: A2aClient, task_id: str, webhook: Webhook) -> Json:
        """Have the task's end, and its questions, reported.

        Raises:
            Conflict: the task has ended, or another configuration.
            Invalid: the URL may not be called.
        """
        turn = self.task(client, task_id)
        self._service.check_webhook(webhook)
        if webhook.name == turn.id:
            webhook = replace(webhook, name=None)
        return config_of(self._service.set_webhook(client.tenant, task_id, webhook)) or {}

    def push(self, client: A2aClient, task_id: str, config_id: str | None) -> Json:
        """The task's configuration.

        Raises:
            RpcError: TASK_NOT_FOUND, it has none, or none of that id.
        """
        config = config_of(self.task(client, task_id))
        if config is None or config_id not in (None, "", config["id"]):
            raise RpcError(f"the task {task_id} has no such push notification configuration", rpc.TASK_NOT_FOUND)
        return config

    def pushes(self, client: A2aClient, task_id: str) -> list[Json]:
        """The configurations of a task: one or none."""
        config = config_of(self.task(client, task_id))
        return [] if config is None else [config]

    def delete_push(self, client: A2aClient, task_id: str, config_id: str | None) -> None:
        """Have nothing reported any more; a configuration that is not there is no error."""
        if any(config_id in (None, "", config["id"]) for config in self.pushes(client, task_id)):
            self._service.set_webhook(client.tenant, task_id, None)

    def _decide(self, client: A2aClient, message: SentMessage, turn: Turn) -> Turn:
        if message.context_id not in (None, turn.session_id):
            raise RpcError(f"the task {turn.id} belongs to the context {turn.session_id}", rpc.INVALID_PARAMS)
        if turn.is_finished:
            raise RpcError(f"the task {turn.id} has ended; send the message without taskId", rpc.UNSUPPORTED_OPERATION)
        decision, call_id = message.decision()
        known = [call for call in turn.calls if call.approval is not None and call_id in (None, call.id)]
        waiting = [call for call in known if call.is_waiting]
        if not waiting and any(call.approval == _DECIDED[decision.verdict] for call in known):
            return turn  # the same message once more
        if len(waiting) > 1:
            detail = f"{len(waiting)} calls wait: name one as tool_call_id in a data part, of "
            raise RpcError(detail + ", ".join(call.id for call in waiting), rpc.INVALID_PARAMS)
        if not waiting:
            detail = f"the task {turn.id} waits for no decision; send the message without taskId to have it queued"
            raise RpcError(detail, rpc.UNSUPPORTED_OPERATION)
        if message.webhook is not None:
            self.set_push(client, turn.id, message.webhook)
        by_client = replace(decision, by=client.actor)
        return self._service.approvals.decide(client.tenant, turn.id, waiting[0].id, by_client)


def _not_found(task_id: str) -> RpcError:
    return RpcError(f"there is no task {task_id}", rpc.TASK_NOT_FOUND)
