"""The events of the Messages API's stream, assembled into a Reply. Pure.

The docstring of ``anthropic`` explains why the SDK does not do this.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from loom_worker.core.errors import StreamBroken
from loom_worker.core.values.chat import Reply, ToolUse, Usage
from loom_worker.core.values.json import Json
from loom_worker.llm.anthropic_request import POSITION_KEY, THINKING
from loom_worker.llm.assembly import (
    INCOMPLETE,
    MAX_BLOCKS,
    MAX_REPLY_BYTES,
    STOP_REASONS,
    Assembly,
    Delta,
    ErrorEvent,
    count_of,
    ended,
    read_tool_use,
    well_formed,
)
from loom_worker.llm.sanitize import json_error

COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
"""In the order of the fields of Usage."""


@dataclass(slots=True)
class _Block:
    """A content block as it grows: its opening, and the pieces of each field that streams."""

    opening: Json
    pieces: dict[str, list[str]] = field(default_factory=dict)
    is_stopped: bool = False

    def add(self, name: str, piece: str) -> None:
        pieces = self.pieces.setdefault(name, [])
        if piece:  # empty ones count no bytes, so they must not pile up
            pieces.append(piece)

    def joined(self, name: str) -> str:
        return "".join(self.pieces.get(name, ()))

    def whole(self) -> Json:
        return self.opening | {name: (self.opening.get(name) or "") + self.joined(name) for name in self.pieces}


ERROR_FIELDS = frozenset({"error", "errors", "detail", "msg"})
"""No event of a reply has one of these."""
DELTA_FIELDS = {
    "text_delta": "text",
    "input_json_delta": "partial_json",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
}
"""The field of each kind of delta that holds its piece; other kinds (citations) are left out."""


class MessageAssembly(Assembly):
    """A reply of the Messages API as it arrives."""

    def __init__(self, model: str, *, max_bytes: int = MAX_REPLY_BYTES) -> None:
        super().__init__(model, max_bytes=max_bytes)
        self._blocks: list[_Block] = []
        self._open: dict[int, _Block] = {}
        """The latest block of each index: some servers count from 0 again."""
        self._counts: dict[str, int] = {}
        self._stop_reason: str | None = None

    def begins_anew(self, event: Json) -> bool:
        return event.get("type") == "message_start" and bool(self._blocks)

    def feed(self, event: Json) -> Sequence[Delta]:
        with well_formed():
            match event.get("type"):
                case "message_start":
                    self._served = str(event["message"].get("model") or "")
                    self._add_counts(event["message"].get("usage"))
                case "content_block_start":
                    return self._start_block(event.get("index", 0), dict(event["content_block"]))
                case "content_block_delta":
                    return self._extend_block(event.get("index", 0), event["delta"])
                case "content_block_stop":
                    if (index := event.get("index", 0)) in self._open:
                        self._open[index].is_stopped = True
                case "message_delta":
                    self._stop_reason = (event.get("delta") or {}).get("stop_reason") or self._stop_reason
                    self._add_counts(event.get("usage"))
                case "message_stop":
                    self.is_complete = True
                case "message":
                    return self._take_whole(event)
                case None if "message" in event:
                    raise ErrorEvent(event)
                case kind if kind == "error" or event.get("object") == "error" or event.keys() & ERROR_FIELDS:
                    raise ErrorEvent(event)
        return ()

    def _take_whole(self, message: Json) -> Sequence[Delta]:
        """A message that came as one piece, where a stream was asked for."""
        deltas = [*self.feed({"type": "message_start", "message": message})]
        for index, block in enumerate(message["content"]):
            deltas += self.feed({"type": "content_block_start", "index": index, "content_block": block})
            self.feed({"type": "content_block_stop", "index": index})
        self._stop_reason, self.is_complete = message.get("stop_reason"), True
        return deltas

    def _whole(self) -> Reply:
        blocks = self._blocks
        if not self.is_complete or self._stop_reason is None:
            raise StreamBroken(INCOMPLETE)
        tool_uses = tuple(self._tool_use(block) for block in blocks if block.opening["type"] == "tool_use")
        reason, opaque = ended(self._stop_reason, has_calls=bool(tool_uses)), tuple(self._opaque(blocks))
        return Reply("".join(self._texts), reason, self.usage, self._asked, tool_uses, opaque, served=self._served)

    def _start_block(self, index: int, opening: Json) -> Sequence[Delta]:
        text = (opening.pop("text", None) or "") if opening["type"] == "text" else ""
        written = json.dumps(opening)
        if len(self._blocks) >= MAX_BLOCKS or len(self._room_for(written)) < len(written):
            self.is_too_large = True
            return ()
        block = self._open[index] = _Block(opening)
        self._blocks.append(block)
        if not text:
            return self._thought(opening.get("thinking") or "")
        deltas = self._said(text)
        block.add("text", "".join(delta.text for delta in deltas))
        return deltas

    def _extend_block(self, index: int, delta: Json) -> Sequence[Delta]:
        name = DELTA_FIELDS.get(delta["type"])
        if name is None:
            return ()
        if name == "text" and index not in self._open:  # its start was left out
            self._start_block(index, {"type": "text"})
        block, given = self._open[index], delta.get(name) or ""
        if name == "text":
            deltas = self._said(given)
            block.add(name, "".join(each.text for each in deltas))
            return deltas
        piece = self._room_for(given)
        block.add(name, piece)
        return self._thought(piece) if name == "thinking" else ()

    def _tool_use(self, block: _Block) -> ToolUse:
        is_full = STOP_REASONS.get((self._stop_reason or "").lower()) == "max_tokens"
        was_cut = (is_full and block is self._blocks[-1]) or not block.is_stopped
        return read_tool_use(block.opening, block.joined("partial_json"), was_cut=was_cut)

    def _opaque(self, blocks: list[_Block]) -> Iterator[Json]:
        for n, block in enumerate(blocks):
            whole = block.whole() if block.opening["type"] in THINKING else None
            # It must go back as it came: what cannot be sent is left out, for a changed one would be refused.
            if whole is not None and json_error(whole) is None:
                text_length = sum(len(each.joined("text")) for each in blocks[:n])
                calls = sum(each.opening["type"] == "tool_use" for each in blocks[:n])
                yield whole | {POSITION_KEY: {"model": self._asked, "text": text_length, "calls": calls}}

    def _add_counts(self, usage: Json | None) -> None:
        # Both ends of the stream report usage, the later one is final; what it leaves out or reports as nothing, as
        # some servers do, keeps its value.
        for name in COUNTS:
            if figure := count_of((usage or {}).get(name)):
                self._counts[name], self.has_usage_news = figure, True

    @property
    def usage(self) -> Usage:
        """What the provider has told so far, its cost not yet known."""
        sent, written, cache_read, cache_write = (self._counts.get(name, 0) for name in COUNTS)
        return Usage(sent, written, cache_read, cache_write, cost_usd=None, llm_calls=1)
