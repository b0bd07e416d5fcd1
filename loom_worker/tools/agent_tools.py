"""The tools by which agents talk: ``ask_agent``, ``delegate``, ``send_agent`` and ``receive_messages``.

No tool runs for asking, delegating and receiving: the turn itself waits for the other agent, without a worker.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from loom_worker.core.errors import QueueFull, ToolFailed, Unavailable
from loom_worker.core.text import clean, one_line
from loom_worker.core.values.agent_messages import KINDS, TTL_MS, VALUE_BYTES, AgentMessage, is_by_reference, refs_in
from loom_worker.core.values.chat import ToolSpec, object_schema
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Tool
from loom_worker.llm.tokens import cl100k_tokens
from loom_worker.store.agent_messages import AgentMessages
from loom_worker.tools.references import References

MOST_CHARS = 1_000_000
"""Characters of what one agent tells another at a time."""
MOST_WAIT_S = 600
DESCRIPTION_CHARS = 120
"""Characters of each agent's description in the tool that asks it."""


class LaneWaker:
    """Tells workers that a lane's turn has what it waits for (``Links`` in ``runtime/sweeping.py``); here nobody."""

    def wake_waiting(self, lane: str) -> None:
        """Tell them now; what is lost the sweep finds."""


NO_WORKERS = LaneWaker()


@dataclass(frozen=True, slots=True)
class MessageParts:
    """What sending works with."""

    messages: AgentMessages
    references: References
    waker: LaneWaker
    reference_bytes: int
    """A message of this size or more is passed on as a reference."""


@dataclass(frozen=True, slots=True)
class Peers:
    """Whom an agent talks with."""

    called: Mapping[str, str]
    """The agents that it may call, by name, with their descriptions."""
    is_called: bool
    """True: others may call it."""


def agent_tools(peers: Peers, parts: MessageParts) -> tuple[Tool, ...]:
    """The tools of an agent that may call others, or be called; none of one that talks with nobody."""
    return (*(_calling_tools(peers.called, parts) if peers.called else ()), *_receiver(peers))


def _calling_tools(called: Mapping[str, str], parts: MessageParts) -> tuple[Tool, ...]:
    listed = "; ".join(
        f"{name}: {one_line(text, DESCRIPTION_CHARS)}" if text else name for name, text in called.items()
    )
    agent = {"enum": list(called), "description": listed}
    return (
        Tool(_ask(agent), _never, is_idempotent=False, is_repeatable=False, awaits="turn"),
        Tool(_delegate(agent), _never, is_idempotent=False, is_repeatable=False, awaits="turn"),
        _sender(agent, parts),
    )


def _receiver(peers: Peers) -> tuple[Tool, ...]:
    receives = peers.called or peers.is_called
    return (Tool(_RECEIVE, _never, is_idempotent=False, is_repeatable=False, awaits="messages"),) if receives else ()


def _sender(agent: Json, parts: MessageParts) -> Tool:
    def send(arguments: Json, caller: Caller) -> Json:
        try:
            message = _message(arguments, caller, parts)
            lanes = parts.messages.send(message, refs_in(message.body), lane=caller.lane)
        except QueueFull as error:
            raise ToolFailed(str(error), "UNAVAILABLE") from error
        except Unavailable as error:
            raise ToolFailed(str(error), "DATABASE_ERROR") from error
        for lane in lanes:
            parts.waker.wake_waiting(lane)
        return {"sent": message.id, "to": message.to_agent}

    # Its id follows from the call: should the call run again, the message is there already.
    return Tool(_send(agent), send, is_bounded=True, is_repeatable=False)


def _message(arguments: Json, caller: Caller, parts: MessageParts) -> AgentMessage:
    moment_ms, kind, body, ref = now_ms(), arguments.get("kind", "message"), clean(arguments["message"]), None
    size_bytes = len(body.encode())
    if is_by_reference(kind, size_bytes, most_bytes=parts.reference_bytes):
        kept = parts.references.keep(body, "text/plain", caller, tool="send_agent", count=cl100k_tokens)
        if kept is None:
            raise ToolFailed("the store of large results is full; send less", "UNAVAILABLE")
        body, ref = clean(kept.preview), kept.reference.id
    elif size_bytes > VALUE_BYTES:
        raise ToolFailed(f"a message of kind {kind} has at most {VALUE_BYTES:,} bytes", "INVALID_INPUT")
    return AgentMessage(
        id=f"amsg_{blake2b(f'{caller.turn_id} {caller.call_id}'.encode(), digest_size=12).hexdigest()}",
        workspace=caller.workspace,
        to_agent=arguments["agent"],
        from_agent=caller.agent,
        from_session=caller.session_id,
        from_turn_id=caller.turn_id,
        kind=kind,
        body=body,
        ref=ref,
        in_reply_to=arguments.get("in_reply_to"),
        created_ms=moment_ms,
        expires_ms=moment_ms + TTL_MS,
    )


def _never(_arguments: Json, _caller: Caller) -> Any:
    raise ToolFailed("this tool is answered by other agents, and cannot be run by itself", "UNAVAILABLE")


def _text(description: str) -> Json:
    return {"type": "string", "minLength": 1, "maxLength": MOST_CHARS, "description": description}


def _ask(agent: Json) -> ToolSpec:
    wait = {"type": "number", "minimum": 1, "maximum": MOST_WAIT_S, "description": "30 unless given"}
    return ToolSpec(
        "ask_agent",
        "Ask another agent a question and wait for its answer. It remembers what you asked it before. "
        "It sees nothing of this conversation: say all it needs. A reference (ref_...) in the text is passed on.",
        object_schema("agent", "message", agent=agent, message=_text("the question"), reply_timeout_s=wait),
    )


def _delegate(agent: Json) -> ToolSpec:
    return ToolSpec(
        "delegate",
        "Give another agent a task of its own and wait until it is done, however long that takes. Several in one reply "
        "work side by side. It sees nothing of this conversation. A reference (ref_...) in the text is passed on.",
        object_schema("agent", "task", agent=agent, task=_text("what is to be done, with all that is needed for it")),
    )


def _send(agent: Json) -> ToolSpec:
    kind = {"enum": list(KINDS), "description": "message unless given; state and context go by reference"}
    return ToolSpec(
        "send_agent",
        "Send another agent a message without waiting. It reads it with receive_messages, within 24 hours.",
        object_schema(
            "agent",
            "message",
            agent=agent,
            message=_text("the text"),
            kind=kind,
            in_reply_to={"type": "string", "maxLength": 40, "description": "the id of the message this answers"},
        ),
    )


_RECEIVE = ToolSpec(
    "receive_messages",
    "Read messages that other agents sent you, the oldest first. They count as dealt with once you have answered.",
    object_schema(
        wait_s={
            "type": "number",
            "minimum": 0,
            "maximum": MOST_WAIT_S,
            "description": "wait so long for one; 0 if left out",
        },
        limit={"type": "integer", "minimum": 1, "maximum": 20},
    ),
)
