"""What a worker and its children exchange: JSON behind its length over pipes, one call and its answer."""

import json
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property

from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Caller, Outcome, Tool
from loom_worker.tools.child import Child, Dead

_LENGTH = struct.Struct(">I")
HEAD_BYTES = _LENGTH.size
MOST_BYTES = 2**32 - 1
"""Of a message."""


def packed(message: Json) -> bytes:
    """The message as it goes through the pipe; lone surrogates survive."""
    body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return _LENGTH.pack(len(body)) + body


def unpacked(read: Callable[[int], bytes], *, most_bytes: int = MOST_BYTES) -> Json | None:
    """The next message; None at the end of the pipe, also in the middle of a message.

    Args:
        read: gives exactly so many bytes, fewer only at the end.

    Raises:
        ValueError: it is longer than most_bytes, or no JSON object.
    """
    head = read(HEAD_BYTES)
    if len(head) < HEAD_BYTES:
        return None
    size_bytes: int = _LENGTH.unpack(head)[0]
    if size_bytes > most_bytes:
        raise ValueError(f"a message of {size_bytes:,} bytes, at most {most_bytes:,} are read")
    body = read(size_bytes)
    if len(body) < size_bytes:
        return None
    message = json.loads(body.decode("utf-8", "surrogatepass"))
    if not isinstance(message, dict):
        raise ValueError("a message must be a JSON object")
    return message


BUILD_S = 30.0
"""For a child to start and to load the code of a tool that it does not know yet, on top of the tool's own time."""
_OVERHEAD_BYTES = 1 << 20


@dataclass(frozen=True)
class Order:
    """A call of a tool that has an origin."""

    tool: Tool
    arguments: Json
    caller: Caller
    timeout_s: float
    max_bytes: int

    @cached_property
    def key(self) -> str:
        """The tool's origin, to be compared; a file's version stands in it for its text."""
        return json.dumps(self._origin(is_known=True), sort_keys=True)

    @property
    def is_of_backend(self) -> bool:
        """True for a tool of ours that works on data; False for one whose code a user wrote."""
        return (self.tool.origin or {}).get("kind") != "python"

    def done_by(self, child: Child) -> Outcome:
        """Have it done.

        Raises:
            Late: it took longer than timeout_s, or its code longer than BUILD_S to load.
            Dead: the child ended in the midst of it.
        """
        is_known = self.key in child.knows
        child.ask(self._request(tells_start=not is_known), BUILD_S)
        message = self._answer(child, self.timeout_s if is_known else BUILD_S)
        if "status" not in message:
            child.knows.add(self.key)
            message = self._answer(child, self.timeout_s)
        return _outcome(message)

    def _request(self, *, tells_start: bool) -> Json:
        return {
            "origin": self._origin(is_known=not tells_start),
            "tool": self.tool.spec.name,
            "arguments": self.arguments,
            "caller": asdict(self.caller),
            "max_bytes": self.max_bytes,
            "tells_start": tells_start,
        }

    def _origin(self, *, is_known: bool) -> Json:
        """How the child builds the tool; one that has built it needs no text of its file again."""
        origin = self.tool.origin or {}
        return {name: value for name, value in origin.items() if not (is_known and name == "source")}

    def _answer(self, child: Child, timeout_s: float) -> Json:
        # Content and detail, each twice as long where every character of theirs is escaped.
        return child.answer(timeout_s, most_bytes=4 * self.max_bytes + _OVERHEAD_BYTES)


def _outcome(message: Json) -> Outcome:
    try:
        return Outcome(**message)
    except TypeError as error:
        raise Dead(f"no outcome: {error}") from error
