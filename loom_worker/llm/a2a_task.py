"""What an agent elsewhere says in a task of the Agent2Agent protocol, put together as it comes. Pure.

Results of both versions are read: they differ in the spelling of states, and in how a result says what it is.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import NamedTuple
from zlib import crc32

from loom_worker.core.values.json import Json

BETWEEN = "\n\n"
MEMO = "a2a"
"""The type of the block that a reply keeps of its task, for the next turn of the session."""
ENDS = frozenset({"completed", "failed", "canceled", "rejected"})
QUESTIONS = frozenset({"input_required", "auth_required"})
_MEMBERS = {"task": "task", "message": "message", "statusUpdate": "status", "artifactUpdate": "artifact"}
_KINDS = {"task": "task", "message": "message", "status-update": "status", "artifact-update": "artifact"}


class Piece(NamedTuple):
    """More of the answer."""

    text: str
    is_anew: bool = False
    """True: it takes the place of all before it."""


@dataclass(frozen=True, slots=True)
class Memo:
    """What a reply keeps of its task."""

    context_id: str | None = None
    task_id: str | None = None
    """Id of a task that asked something, which the next message answers; None: it begins a task of its own."""
    said: Mapping[str, int] | None = None
    """Characters of each artifact of that task which were given before."""
    marks: Mapping[str, int] | None = field(default=None, compare=False)
    """Their checksums: an artifact that begins otherwise by now is another text."""

    @classmethod
    def of(cls, block: Json) -> "Memo":
        """What a block of a reply holds."""
        return cls(block.get("context_id"), block.get("task_id"), block.get("said"), block.get("marks"))

    def as_json(self) -> Json:
        """The block."""
        return {"type": MEMO, **asdict(self)}


class RemoteTask:
    """One task, or a message in place of one."""

    def __init__(self, memo: Memo = Memo()) -> None:
        """Args: memo: of the reply before; what it says that was given is not given again."""
        self.id: str | None = None
        self.context_id = memo.context_id
        self.state = ""
        """In lower case, with underscores; empty before the first result."""
        self.note = ""
        """What the last status says."""
        self.usage: Json = {}
        """As the agent's metadata says it, if it is a Loom."""
        self._memo = memo
        self._artifacts: dict[str, list[str]] = {}
        """The pieces of each, in the order in which they came."""
        self._sizes: dict[str, int] = {}
        """Characters of each."""
        self._is_message = False

    def is_over(self) -> bool:
        """True once it has ended, or asks something."""
        return self._is_message or self.state in ENDS or self.state in QUESTIONS

    @property
    def text(self) -> str:
        """All it says that was not given before."""
        return BETWEEN.join(filter(None, map(self._shown, self._artifacts)))

    def memo(self) -> Memo:
        """What the reply keeps."""
        if self.state not in QUESTIONS:
            return Memo(self.context_id)
        marks = {name: crc32("".join(said).encode()) for name, said in self._artifacts.items()}
        return Memo(self.context_id, self.id, dict(self._sizes), marks)

    def closing(self) -> str:
        """What the last status adds to the answer: a question, or the answer itself where there is no artifact."""
        is_answer = self.state == "completed" and not self.text
        return self.note if self.state in QUESTIONS or is_answer else ""

    def take(self, result: Json) -> Piece:
        """Take up a result, and return what it adds to the text."""
        kind, value = _kind(result)
        if kind == "message":
            self._is_message = True
            self.context_id = _id(value.get("contextId")) or self.context_id
            return Piece(_text(value))
        self.id = _id(value.get("id") if kind == "task" else value.get("taskId")) or self.id
        self.context_id = _id(value.get("contextId")) or self.context_id
        if kind == "artifact":
            return self._artifact(value)
        before = self.text
        self._status(value)
        return self._all(value) if kind == "task" else self._since(before)

    def _status(self, value: Json) -> None:
        status, metadata = _dict(value.get("status")), _dict(value.get("metadata"))
        if status.get("state"):
            self.state = str(status["state"]).removeprefix("TASK_STATE_").lower().replace("-", "_")
        self.note = _text(_dict(status.get("message")))
        self.usage = _dict(_dict(metadata.get("loom")).get("usage")) or self.usage

    def _all(self, task: Json) -> Piece:
        """A task as a whole: its artifacts are all there are."""
        before, listed = self.text, task.get("artifacts")
        self._artifacts = {}
        for place, each in enumerate(listed if isinstance(listed, list) else ()):
            self._artifacts[_id(_dict(each).get("artifactId")) or str(place)] = [_text(_dict(each))]
        self._sizes = {name: len(said) for name, [said] in self._artifacts.items()}
        return self._since(before)

    def _artifact(self, update: Json) -> Piece:
        artifact = _dict(update.get("artifact"))
        name, piece, is_more = _id(artifact.get("artifactId")) or "0", _text(artifact), bool(update.get("append"))
        known, size = self._artifacts.get(name, []), self._sizes.get(name, 0)
        is_last = bool(known) and next(reversed(self._artifacts)) == name
        if is_more and is_last and size and not self._given(name):  # nearly always; else the whole text is compared
            known.append(piece)
            self._sizes[name] += len(piece)
            return Piece(piece)
        before = self.text
        self._artifacts[name] = [*known, piece] if is_more else [piece]
        self._sizes[name] = (size if is_more else 0) + len(piece)
        return self._since(before)

    def _since(self, before: str) -> Piece:
        after = self.text
        return Piece(after[len(before) :]) if after.startswith(before) else Piece(after, is_anew=True)

    def _shown(self, name: str) -> str:
        whole, given = "".join(self._artifacts[name]), self._given(name)
        return whole[given:].lstrip("\n") if given else whole

    def _given(self, name: str) -> int:
        if self.id is None or self.id != self._memo.task_id:
            return 0
        size, mark = (self._memo.said or {}).get(name, 0), (self._memo.marks or {}).get(name)
        whole = "".join(self._artifacts.get(name, ()))
        may_grow = len(whole) < size and not self.is_over()
        return size if mark is None or may_grow or crc32(whole[:size].encode()) == mark else 0


def _kind(result: Json) -> tuple[str, Json]:
    """What a result is, and it itself: 1.0 puts it into a member, others name its kind, a lone task says nothing."""
    for name, kind in _MEMBERS.items():
        if isinstance(result.get(name), dict):
            return kind, result[name]
    said = str(result.get("kind") or result.get("type"))
    return _KINDS.get(said, "task" if "status" in result else "message"), result


def _text(holder: Json) -> str:
    """The text of a message's or an artifact's parts; data as JSON, files left out."""
    parts, found = holder.get("parts"), []
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            found.append(part["text"])
        elif isinstance(part, dict) and "data" in part:
            found.append(json.dumps(part["data"], ensure_ascii=False))
    return "".join(found)


def _dict(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _id(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= 512 else None
