"""A session and the messages in it."""

from dataclasses import dataclass, field, replace
from typing import Literal

from loom_worker.core.values.chat import ChatMessage, Usage
from loom_worker.core.values.cutting import FIELD_BYTES, cut_mark, entries, fit, text
from loom_worker.core.values.json import Json, rfc3339
from loom_worker.core.values.workspaces import ALL_NAMES, NameRules, Rules

SessionStatus = Literal["active", "paused", "archived"]
Clearable = Literal["title", "model", "budget", "tools", "backend"]
"""What a session can be without."""


LISTED_CALLS = 50
"""Calls and results of one message in a list; a reply has no more but where most of them were refused."""
LEAST_BYTES = 512
"""What each of them may have in any case."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a session and its workspace chose instead of an agent's own; None is the agent's."""

    model: str | None = None
    tools: tuple[str, ...] | None = None
    """Names, of those the agent may use."""
    backend: str | None = None
    """A database, of those the agent may work on."""
    provider: str | None = None
    permitted: NameRules = ALL_NAMES
    version: str | None = None
    """The stored version of the agent that the session keeps; None: none yet, so the agent is as its file is now."""

    def under(self, rules: Rules) -> "Choice":
        """With what the session's workspace says: it chooses where the session did not, and restricts in any case."""
        return replace(self, model=self.model or rules.model, provider=rules.provider, permitted=rules.tools)


DEFAULT_AGENT = "default"
"""Who answers in a session for which no agent was ever named."""


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session as a client asks for it, already validated."""

    id: str | None = None
    agent: str | None = None
    """None: its first turn may name one."""
    user: str | None = None
    title: str | None = None
    metadata: Json = field(default_factory=dict)
    kernel: Json = field(default_factory=dict)
    budget: Json | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class SessionPatch:
    """The fields of a session that a client changes; None leaves a field as it is, unless ``clear`` names it."""

    title: str | None = None
    metadata: Json | None = None
    kernel: Json | None = None
    status: SessionStatus | None = None
    model: str | None = None
    budget: Json | None = None
    tools: tuple[str, ...] | None = None
    backend: str | None = None
    agent: str | None = None
    """``name@version``: the session moves to that version of its agent, or to the one with that label, and its system
    text is made anew; ``name@latest``: to the one that its file has when its next turn begins."""
    version: str | None = None
    """What ``agent`` names, once it is looked up; None: what a new session gets."""
    clear: frozenset[Clearable] = frozenset()
    """Fields that are to have no value any more."""

    def changes(self) -> Json:
        """The new values by field; None for those to be cleared."""
        names = ("title", "metadata", "kernel", "status", "model", "budget", "tools", "backend")
        named = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        changed: Json = {**named, **dict.fromkeys(self.clear)}
        if self.agent is not None:
            moved = {"agent_version": self.version, **dict.fromkeys(("rom", "learned_version", "learned_part"))}
            return changed | moved
        return changed | (dict.fromkeys(("rom", "learned_part")) if "backend" in changed else {})


@dataclass(frozen=True, slots=True)
class Session:
    """A session's row. ``lane`` is its internal, unguessable key and never leaves the system."""

    lane: str
    id: str
    workspace: str
    agent: str
    status: SessionStatus
    created_ms: int
    updated_ms: int
    user: str | None = None
    title: str | None = None
    metadata: Json = field(default_factory=dict)
    kernel: Json = field(default_factory=dict)
    model: str | None = None
    budget: Json | None = None
    usage: Usage = field(default_factory=Usage)
    tools: tuple[str, ...] | None = None
    backend: str | None = None
    rom: str | None = None
    """The system text as first sent: byte-stable for the life of the session."""
    agent_version: str | None = None
    """Version of its agent, which it keeps from its first turn on; None before that."""
    learned_version: int | None = None
    """Version of the learned layer that it began with; 0: with none, None: it has not begun."""
    learned_part: Json | None = None
    """What of that version is in the system text; None: nothing, or it has not been sent."""
    token_correction: float | None = None
    """The provider's tokens of the latest request over our estimate of them; None before the first reply."""
    queue_depth: int = 0
    """Unfinished turns, the running one included."""
    is_busy: bool = False
    is_cut: bool = False
    """True for a session in a list whose fields are longer than shown."""

    @property
    def choice(self) -> Choice:
        """What it chose instead of its agent's own."""
        return Choice(self.model, self.tools, self.backend, version=self.agent_version)

    def brief(self) -> "Session":
        """As lists hold it: without the system text, which none shows."""
        metadata, kernel = (fit(each, FIELD_BYTES, entries) for each in (self.metadata, self.kernel))
        is_cut = metadata is not self.metadata or kernel is not self.kernel
        return replace(self, metadata=metadata, kernel=kernel, rom=None, is_cut=is_cut)

    def as_json(self) -> Json:
        return {
            "id": self.id,
            "object": "session",
            "agent": self.agent,
            "user": self.user,
            "title": self.title,
            "status": self.status,
            "busy": self.is_busy,
            "queue_depth": self.queue_depth,
            "metadata": self.metadata,
            "kernel": self.kernel,
            "model": self.model,
            "tools": None if self.tools is None else list(self.tools),
            "backend": self.backend,
            "agent_version": self.agent_version,
            "learned_version": self.learned_version or None,
            "budget": self.budget,
            "cumulative_usage": self.usage.as_json(),
            "created_at": rfc3339(self.created_ms),
            "updated_at": rfc3339(self.updated_ms),
            **cut_mark(self.is_cut, f"/v1/sessions/{self.id}"),
        }


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it was said; rows are only ever appended."""

    id: str
    session_id: str
    turn_id: str
    chat: ChatMessage
    token_count: int
    created_ms: int
    usage: Usage | None = None
    """Usage of an assistant's message: what its reply cost."""
    n: int = 0
    """Its row's number, which grows along the conversation; 0 before it is stored."""
    is_cut: bool = False
    """True for a message in a list whose fields are longer than shown."""

    def brief(self) -> "Message":
        """As lists hold it: some calls and results share what one long field may have."""
        chat = self.chat
        uses, outcomes = chat.tool_uses[:LISTED_CALLS], chat.outcomes[:LISTED_CALLS]
        room = max(FIELD_BYTES // max(len(uses), len(outcomes), 1), LEAST_BYTES)
        kept = replace(
            chat,
            text=fit(chat.text, FIELD_BYTES, text),
            context="",
            opaque=(),
            tool_uses=tuple(replace(use, arguments=fit(use.arguments, room, entries)) for use in uses),
            outcomes=tuple(replace(outcome, content=fit(outcome.content, room, text)) for outcome in outcomes),
        )
        is_cut = (kept.text, kept.tool_uses, kept.outcomes) != (chat.text, chat.tool_uses, chat.outcomes)
        return replace(self, chat=kept, is_cut=is_cut)

    def as_json(self) -> Json:
        return {
            "id": self.id,
            "object": "message",
            "session_id": self.session_id,
            "turn_id": self.turn_id,
            "role": self.chat.role,
            "content": self.chat.text,
            "files": [{"file_id": each.file_id, "name": each.name} for each in self.chat.all_media],
            "tool_calls": [{"id": u.id, "name": u.name, "arguments": u.arguments} for u in self.chat.tool_uses],
            "tool_results": [
                {
                    "tool_id": o.tool_use_id,
                    "tool_name": o.name,
                    "error" if o.is_error else "content": o.content,
                    "reference": o.ref,
                    "error_id": o.error_id,
                    "duration_ms": o.duration_ms,
                }
                for o in self.chat.outcomes
            ],
            "usage": None if self.usage is None else self.usage.as_json(),
            "token_count": self.token_count,
            "timestamp": rfc3339(self.created_ms),
            **cut_mark(self.is_cut, f"/v1/sessions/{self.session_id}/messages/{self.id}"),
        }
