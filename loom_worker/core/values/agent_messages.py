"""Messages between agents: kinds, states, and which of them pass on their content by reference."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from loom_worker.core.values.cutting import FIELD_BYTES, cut_mark, fit, text
from loom_worker.core.values.json import Json, rfc3339

MessageKind = Literal[
    "message", "control", "pattern_reference", "session_state", "workflow_context", "collaboration_state"
]
KINDS: tuple[MessageKind, ...] = (
    *("message", "control", "pattern_reference"),
    *("session_state", "workflow_context", "collaboration_state"),
)
MessageStatus = Literal["queued", "taken", "done", "dead"]
"""queued: nobody has it · taken: a turn that goes on has it · done: that turn is completed · dead: nobody gets it."""
Policy = Literal["value", "reference", "by_size"]
"""How content is passed on: as it is, as a reference to where it is stored, or as its size says."""
POLICIES: Mapping[MessageKind, Policy] = {
    "message": "by_size",
    "control": "value",
    "pattern_reference": "value",
    "session_state": "reference",
    "workflow_context": "reference",
    "collaboration_state": "reference",
}
EXPIRED, TRIED = "expired", "attempts"
"""Reasons of dead messages: nobody took it in time; all turns that took it failed."""
TTL_MS = 24 * 3600 * 1000
"""For so long a message waits for its agent."""
MOST_ATTEMPTS = 4
"""Turns that may take a message: one, and three more where the one before failed."""
MOST_QUEUED = 1_000
"""Messages that wait for one agent."""
VALUE_BYTES = 64 * 1024
"""Bytes of a message that is always passed by value."""
_REF = re.compile(r"\bref_[0-9a-f]{32}\b")


def is_by_reference(kind: MessageKind, size_bytes: int, *, most_bytes: int) -> bool:
    """Whether the content of a message is stored apart from it.

    Args:
        most_bytes: content of this size or more goes by reference where the size decides.
    """
    policy = POLICIES[kind]
    return policy == "reference" or (policy == "by_size" and size_bytes >= most_bytes)


def refs_in(content: str) -> frozenset[str]:
    """The large results that a text names."""
    return frozenset(_REF.findall(content))


def scope_of(run_id: str | None, user: str | None) -> str:
    """Who shares the queue of an agent: the turns of one run, else those of one user, else the whole workspace."""
    return f"run:{run_id}" if run_id else f"user:{user}" if user else ""


@dataclass(frozen=True, slots=True)
class AgentMessage:
    """What one agent tells another, kept until that one has dealt with it."""

    id: str
    to_agent: str
    from_agent: str
    from_session: str
    from_turn_id: str
    kind: MessageKind
    body: str
    created_ms: int
    expires_ms: int
    n: int = 0
    """Its place among all messages."""
    workspace: str = ""
    scope: str = ""
    user: str | None = None
    ref: str | None = None
    """Reference to the whole content, where ``body`` is but a preview of it."""
    in_reply_to: str | None = None
    status: MessageStatus = "queued"
    attempts: int = 0
    turn_id: str | None = None
    """That took it last."""
    call_id: str | None = None
    reason: str | None = None
    """Why it is dead."""
    ended_ms: int | None = None
    is_cut: bool = False

    def brief(self) -> "AgentMessage":
        body = fit(self.body, FIELD_BYTES, text)
        return replace(self, body=body, is_cut=body != self.body)

    def for_agent(self) -> Json:
        """What the agent reads that it is for."""
        shown: Json = {"id": self.id, "from": self.from_agent, "kind": self.kind, "sent_at": rfc3339(self.created_ms)}
        reply = {"in_reply_to": self.in_reply_to} if self.in_reply_to else {}
        return {**shown, **reply, "message": self.body}

    def as_json(self) -> Json:
        return {
            "id": self.id,
            "object": "agent_message",
            "to": self.to_agent,
            "from": self.from_agent,
            "from_session_id": self.from_session,
            "from_turn_id": self.from_turn_id,
            "kind": self.kind,
            "message": self.body,
            "ref": self.ref,
            "in_reply_to": self.in_reply_to,
            "status": self.status,
            "reason": self.reason,
            "attempts": self.attempts,
            "turn_id": self.turn_id,
            "user": self.user,
            "created_at": rfc3339(self.created_ms),
            "expires_at": rfc3339(self.expires_ms),
            "ended_at": rfc3339(self.ended_ms),
            **cut_mark(self.is_cut, f"/v1/agent-messages/{self.id}"),
        }
