"""What an administrator sets for a workspace: it narrows what agents, sessions and turns may do, and widens nothing."""

from dataclasses import dataclass

from loom_worker.core.values.json import Json, rfc3339


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a workspace; None: as if there were none."""

    budget: Json | None = None
    """What all its sessions may spend together: ``{usd?, tokens?, tool_calls?, day?: {…}, month?: {…}}``."""
    is_disabled: bool = False
    """True: no turn is accepted or begun, and what runs is interrupted."""
    retention_days: int | None = None
    """Sessions that nobody used for so many days are deleted; None: as LOOM_CONVERSATION_DAYS says."""
    guardrails: Json | None = None
    """``{stage: {kind: action}}``, see Guardrails."""

    @classmethod
    def of(cls, stored: Json | None) -> "Rules":
        """Read what ``as_json`` wrote; what is missing is not set."""
        stored = stored or {}
        days = stored.get("retention_days")
        return cls(
            budget=stored.get("budget"),
            is_disabled=stored.get("disabled", False),
            retention_days=None if days is None else int(days),
            guardrails=stored.get("guardrails"),
        )

    def as_json(self) -> Json:
        """As they are stored, and as PATCH takes them."""
        return {
            "budget": self.budget,
            "disabled": self.is_disabled,
            "retention_days": self.retention_days,
            "guardrails": self.guardrails,
        }


NO_RULES = Rules()


@dataclass(frozen=True, slots=True)
class Workspace:
    """A workspace with its rules."""

    name: str
    rules: Rules = NO_RULES
    updated_ms: int | None = None
    """None: nothing was ever set."""

    def as_json(self) -> Json:
        """The Workspace of the HTTP API."""
        return {
            "name": self.name,
            "object": "workspace",
            **self.rules.as_json(),
            "updated_at": rfc3339(self.updated_ms),
        }
