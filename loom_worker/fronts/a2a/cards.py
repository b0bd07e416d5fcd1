"""Agent cards: how an agent presents itself to other agents, in one document for both versions. Pure."""

from loom_worker.core.values.agents import Agent
from loom_worker.core.values.json import Json

CARD_PATH = ".well-known/agent-card.json"
_BINDING = "JSONRPC"
_KEY = "apiKey"
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
