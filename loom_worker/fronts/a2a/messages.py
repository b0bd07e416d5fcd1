"""What clients send with a message, checked: its text, the task and context it belongs to, and what is asked of us."""

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any, cast

from loom_worker.core.values.decisions import ApprovalVerdict, Decision
from loom_worker.core.values.json import Json
from loom_worker.core.values.turns import is_blank
from loom_worker.core.values.webhooks import Webhook
from loom_worker.fronts.a2a.push import webhook_of
from loom_worker.fronts.a2a.rpc import CONTENT_TYPE_NOT_SUPPORTED, INVALID_PARAMS, RpcError, Version
from loom_worker.fronts.a2a.tasks import MESSAGE_MEMBER

BETWEEN_PARTS = "\n\n"
METADATA_BYTES = 16 * 1024
"""Bytes of JSON, as of any turn."""
MOST_HISTORY = 10_000
_CONTEXT = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,128}")
"""The id of a session."""
_MOST_ID_CHARS = 256
_MOST_REFERENCES = 100
_OUTPUT = frozenset({"text/plain", "text/markdown", "text/*", "*/*", "text"})
_WORDS: dict[str, ApprovalVerdict] = {"approve": "approve", "deny": "reject", "reject": "reject"}
_VERDICTS: dict[str, ApprovalVerdict] = {**_WORDS, "edit": "edit"}
_CONTENT = ("text", "data", "raw", "url")
_HOW_TO_DECIDE = (
    "the task waits for a decision: answer with the text approve or deny, or with a data part "
    '{"decision": "approve", "deny" or "edit", "tool_call_id", "arguments"?, "reason"?}'
)


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message, and how it is to be answered."""

    id: str
    """Given by the client; the same message again is no second one."""
    text: str
    """The parts, each text as it is and each data as JSON, an empty line between them."""
    data: tuple[Json, ...]
    """The data parts that are objects."""
    context_id: str | None
    task_id: str | None
    metadata: Json
    """Metadata of the message and of the request, with what else the message says of itself."""
    webhook: Webhook | None = field(repr=False)
    waits: bool
    """False: the client does not wait for the end."""
    history_length: int | None

    @classmethod
    def of(cls, params: Json, version: Version) -> "SentMessage":
        """What the parameters of ``SendMessage`` ask, in the form of 1.0.

        Raises:
            RpcError: INVALID_PARAMS, or CONTENT_TYPE_NOT_SUPPORTED for files and for answers other than text.
        """
        message = _object(params, "message", is_needed=True)
        asked = _object(params, "configuration")
        modes = asked.get("acceptedOutputModes") or []
        if not isinstance(modes, list) or (modes and not _OUTPUT & {str(mode).lower() for mode in modes}):
            raise RpcError("answers are text (text/plain or text/markdown)", CONTENT_TYPE_NOT_SUPPORTED)
        if message.get("role", "ROLE_USER") != "ROLE_USER":
            raise _invalid("message.role", "that of the user")
        text, data = _content(message)
        push = _object(asked, "taskPushNotificationConfig")
        return cls(
            id=_text(message, "messageId", _MOST_ID_CHARS) or _needed("message.messageId"),
            text=text,
            data=data,
            context_id=_context(message),
            task_id=_text(message, "taskId", 128),
            metadata=_metadata(params, message),
            webhook=webhook_of(push, version) if push else None,
            waits=not asked.get("returnImmediately", False),
            history_length=history_length(asked),
        )

    def key(self, agent: str) -> str:
        """The idempotency key of the turn that the message begins: one for each agent and message id."""
        return f"a2a-{hashlib.sha256(json.dumps([agent, self.id]).encode()).hexdigest()}"

    def new_context(self, agent: str) -> str:
        """The context of a message that names none: the same each time that it is sent."""
        return f"ctx-{hashlib.sha256(self.key(agent).encode()).hexdigest()[:32]}"

    def decision(self) -> tuple[Decision, str | None]:
        """The message as the answer to the question whether a tool may run, and the call's id if it names one.

        Raises:
            RpcError: INVALID_PARAMS, it is none.
        """
        given = next((part for part in self.data if "decision" in part), None)
        if given is None:
            word = _WORDS.get(self.text.strip().rstrip(".!").lower())
            if word is None:
                raise RpcError(_HOW_TO_DECIDE, INVALID_PARAMS)
            return Decision(word), None
        verdict = _VERDICTS.get(str(given["decision"]).lower())
        arguments, reason, call_id = given.get("arguments"), given.get("reason"), given.get("tool_call_id")
        is_sound = (arguments is not None) == (verdict == "edit") and isinstance(arguments, dict | None)
        if verdict is None or not is_sound or not all(isinstance(each, str | None) for each in (reason, call_id)):
            raise RpcError(_HOW_TO_DECIDE, INVALID_PARAMS)
        return Decision(verdict, arguments=arguments, reason=reason), call_id


def history_length(params: Json) -> int | None:
    """How many messages of the history the client wants at the most; None: all.

    Raises:
        RpcError: INVALID_PARAMS, it is no whole number from 0 on.
    """
    given = params.get("historyLength")
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise _invalid("historyLength", "a whole number, 0 or more")
    return min(given, MOST_HISTORY)


def task_id(params: Json, member: str = "id") -> str:
    """The id of the task that parameters name.

    Raises:
        RpcError: INVALID_PARAMS, there is none.
    """
    return _text(params, member, 128) or _needed(member)


def _content(message: Json) -> tuple[str, tuple[Json, ...]]:
    parts = message.get("parts")
    if not isinstance(parts, list) or not parts:
        raise _invalid("message.parts", "a list with one part or more")
    texts, data = [], []
    for place, part in enumerate(parts):
        named = [name for name in _CONTENT if isinstance(part, dict) and name in part]
        if len(named) != 1:
            raise _invalid(f"message.parts[{place}]", "an object with one of text and data")
        given: Any = part[named[0]]
        if named[0] in ("raw", "url"):
            raise RpcError(
                f"message.parts[{place}]: files are not taken, only text and data", CONTENT_TYPE_NOT_SUPPORTED
            )
        if named[0] == "text":
            if not isinstance(given, str):
                raise _invalid(f"message.parts[{place}].text", "a string")
            texts.append(given)
        else:
            texts.append(json.dumps(given, ensure_ascii=False))
            data += [given] if isinstance(given, dict) else []
    text = BETWEEN_PARTS.join(texts)
    if is_blank(text):
        raise _invalid("message.parts", "more than blanks")
    return text, tuple(data)


def _context(message: Json) -> str | None:
    given = _text(message, "contextId", 128)
    if given is not None and not _CONTEXT.fullmatch(given):
        raise _invalid("message.contextId", "1 to 128 of A-Z a-z 0-9 . _ -, but neither . nor ..")
    return given


def _metadata(params: Json, message: Json) -> Json:
    references = message.get("referenceTaskIds") or []
    if not isinstance(references, list) or not all(isinstance(each, str) for each in references[:_MOST_REFERENCES]):
        raise _invalid("message.referenceTaskIds", "a list of ids")
    described: Json = {"message_id": message.get("messageId")}
    if references:
        described["reference_task_ids"] = references[:_MOST_REFERENCES]
    metadata = {**_object(params, "metadata"), **_object(message, "metadata"), MESSAGE_MEMBER: described}
    if len(json.dumps(metadata, ensure_ascii=False).encode()) > METADATA_BYTES:
        raise _invalid("metadata", f"at most {METADATA_BYTES} bytes of JSON")
    return metadata


def _object(params: Json, name: str, *, is_needed: bool = False) -> Json:
    given = params.get(name)
    if given is None and not is_needed:
        return {}
    if not isinstance(given, dict):
        raise _invalid(name, "an object")
    return cast(Json, given)


def _text(params: Json, name: str, longest: int) -> str | None:
    """A member that is a string; None if it is absent or empty, which is the same in Protocol Buffers."""
    given = params.get(name)
    if given in (None, ""):
        return None
    if not isinstance(given, str) or len(given) > longest or not given.isprintable():
        raise _invalid(name, f"at most {longest} printable characters")
    return given


def _needed(name: str) -> str:
    raise _invalid(name, "given")


def _invalid(name: str, needed: str) -> RpcError:
    return RpcError(f"{name} must be {needed}", INVALID_PARAMS)
