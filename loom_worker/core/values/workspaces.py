"""What an administrator sets for a workspace: it narrows what agents, sessions and turns may do, and widens nothing."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from loom_worker.core.values.json import Json, rfc3339


@dataclass(frozen=True, slots=True)
class NameRules:
    """Which of some names may be used, by patterns such as ``sql_*``."""

    allow: tuple[str, ...] | None = None
    """None: all that are not denied."""
    deny: tuple[str, ...] = ()

    @classmethod
    def of(cls, stored: Json | None) -> "NameRules":
        """Read ``{allow?, deny?}``."""
        stored = stored or {}
        allow = stored.get("allow")
        return cls(None if allow is None else tuple(allow), tuple(stored.get("deny") or ()))

    def permit(self, name: str) -> bool:
        """Whether a name may be used; what is denied may not, though it is allowed too."""
        return not self.denies(name) and (self.allow is None or any(fnmatchcase(name, each) for each in self.allow))

    def denies(self, name: str) -> bool:
        """Whether a name is denied."""
        return any(fnmatchcase(name, each) for each in self.deny)

    def as_json(self) -> Json | None:
        """As it is stored; None: it says nothing."""
        if self == ALL_NAMES:
            return None
        allow = {} if self.allow is None else {"allow": list(self.allow)}
        return {**allow, **({"deny": list(self.deny)} if self.deny else {})}


ALL_NAMES = NameRules()


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
    model: str | None = None
    """Answers instead of an agent's own, unless a session has chosen one."""
    provider: str | None = None
    """Serves the models instead of the agent's own."""
    tools: NameRules = ALL_NAMES
    skills: NameRules = ALL_NAMES

    @classmethod
    def of(cls, stored: Json | None) -> "Rules":
        """Read what ``as_json`` wrote; what is missing is not set."""
        stored = stored or {}
        days = (stored.get("retention") or {}).get("days")
        return cls(
            budget=stored.get("budget"),
            is_disabled=stored.get("disabled", False),
            retention_days=None if days is None else int(days),
            guardrails=stored.get("guardrails"),
            model=stored.get("model"),
            provider=stored.get("provider"),
            tools=NameRules.of(stored.get("tools")),
            skills=NameRules.of(stored.get("skills")),
        )

    def as_json(self) -> Json:
        """As they are stored, and as PATCH takes them."""
        return {
            "budget": self.budget,
            "disabled": self.is_disabled,
            "retention": None if self.retention_days is None else {"days": self.retention_days},
            "guardrails": self.guardrails,
            "model": self.model,
            "provider": self.provider,
            "tools": self.tools.as_json(),
            "skills": self.skills.as_json(),
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
        return {
            "name": self.name,
            "object": "workspace",
            **self.rules.as_json(),
            "updated_at": rfc3339(self.updated_ms),
        }
