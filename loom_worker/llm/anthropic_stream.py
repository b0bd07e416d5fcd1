"""The events of the Messages API's stream, assembled into a Reply. Pure.

The docstring of ``anthropic`` explains why the SDK does not do this.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from loom_worker.core.errors import StreamBroken
from loom_worker.core.values.chat import Reply, StopReason, ToolUse, Usage
from loom_worker.core.values.json import Json
from loom_worker.llm.anthropic_request import POSITION_KEY, THINKING
from loom_worker.llm.response import MALFORMED
from loom_worker.llm.sanitize import checked, clean, json_error, read_arguments, tool_name

STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "length": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "content_filter": "refusal",
    "safety": "refusal",
    "pause_turn": "pause_turn",
}
"""In lower case; those of other makers' formats, which gateways pass on, among them."""
FINISHED: frozenset[StopReason] = frozenset({"end_turn", "tool_use"})
MOST_TOKENS = 10**12
"""Of a usage figure; a larger one is nonsense, which no sum or column could hold."""
MAX_REPLY_BYTES = 2 * 1024 * 1024
"""The default of LlmSettings.max_reply_bytes."""
MAX_BLOCKS = 1_000
"""Content blocks of one reply. Each tool call becomes a row, three events and a result that is sent back; more than a
few dozen calls are refused anyway."""
BYTES_A_TOKEN = 4
"""Of English text, to estimate the output of a reply that was cut: the provider reports it only at the end."""
COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
"""In the order of the fields of Usage."""


class ErrorEvent(Exception):
    """The stream carried an error; ``args[0]`` is what it holds. The adapter translates it."""


@contextmanager
def _well_formed() -> Iterator[None]:
    # An object that does not have the API's shape raises one of these, wherever it is read.
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StreamBroken(MALFORMED) from error


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


class Assembly:
    """A reply as it arrives: feed it every event, then ask for the reply."""

    def __init__(self, model: str, *, max_bytes: int = MAX_REPLY_BYTES) -> None:
        """Args: max_bytes: of the whole reply, in UTF-8."""
        self._max_bytes = max_bytes
        self._size_bytes = 0
        self._asked = model
        self._served = ""
        self._blocks: list[_Block] = []
        self._open: dict[int, _Block] = {}
        """The latest block of each index: some servers count from 0 again."""
        self._counts: dict[str, int] = {}
        self._stop_reason: str | None = None
        self.is_complete = False
        """True once the provider has said that the message is over."""
        self.is_too_large = False
        """True once there was more than may be kept: nothing further needs to be fed."""

    @property
    def has_begun(self) -> bool:
        """True once a block of the reply has come."""
        return bool(self._blocks)

    def feed(self, event: Json) -> str:
        """Take in one event; return the text that it adds, usually none. Unknown events add nothing.

        Raises:
            ErrorEvent: it is an error event.
            StreamBroken: it lacks what an event of its type has.
        """
        with _well_formed():
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
        return ""

    def _take_whole(self, message: Json) -> str:
        """A message that came as one piece, where a stream was asked for."""
        parts = [self.feed({"type": "message_start", "message": message})]
        for index, block in enumerate(message["content"]):
            parts.append(self.feed({"type": "content_block_start", "index": index, "content_block": block}))
            self.feed({"type": "content_block_stop", "index": index})
        self._stop_reason, self.is_complete = message.get("stop_reason"), True
        return "".join(parts)

    def reply(self) -> Reply:
        """The reply, its cost not yet known; of one that is too large, the text so far, without any tool call.

        Raises:
            StreamBroken: the stream ended before the provider had finished, or a block lacks what it must have.
        """
        blocks = self._blocks
        text = "".join(block.joined("text") for block in blocks)
        if self.is_too_large:
            # Neither a call nor a block of thinking may go back to the provider in part.
            written = max(self.usage.output_tokens, self._size_bytes // BYTES_A_TOKEN)
            return Reply(
                text, "reply_too_large", replace(self.usage, output_tokens=written), self._asked, served=self._served
            )
        if not self.is_complete or self._stop_reason is None:
            raise StreamBroken("The model's reply ended before it was complete.")
        with _well_formed():
            tool_uses = tuple(self._tool_use(block) for block in blocks if block.opening["type"] == "tool_use")
            # A reason not known here still ended a complete message; asking again would get the same, paid twice.
            reason = STOP_REASONS.get(self._stop_reason.lower(), "end_turn")
            if reason in FINISHED:  # some servers of this API say end_turn with calls, so the calls decide
                reason = "tool_use" if tool_uses else "end_turn"
            opaque = tuple(self._opaque(blocks))
            return Reply(text, reason, self.usage, self._asked, tool_uses, opaque, served=self._served)

    def _start_block(self, index: int, opening: Json) -> str:
        text = clean(opening.pop("text", None) or "") if opening["type"] == "text" else ""
        written = json.dumps(opening)
        if len(self._blocks) >= MAX_BLOCKS or len(self._room_for(written)) < len(written):
            self.is_too_large = True
            return ""
        block = self._open[index] = _Block(opening)
        self._blocks.append(block)
        if text:
            text = self._room_for(text)
            block.add("text", text)
        return text

    def _extend_block(self, index: int, delta: Json) -> str:
        name = DELTA_FIELDS.get(delta["type"])
        if name is None:
            return ""
        if name == "text" and index not in self._open:  # its start was left out
            self._start_block(index, {"type": "text"})
        block = self._open[index]
        given = delta.get(name) or ""
        piece = self._room_for(clean(given) if name == "text" else given)
        block.add(name, piece)
        return piece if name == "text" else ""

    def _room_for(self, text: str) -> str:
        size_bytes = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        room = self._max_bytes - self._size_bytes
        if size_bytes > room:
            self.is_too_large = True
            text = text.encode("utf-8", "replace")[:room].decode("utf-8", "ignore")
        self._size_bytes += min(size_bytes, room)
        return text

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
        # some servers do, keeps its value. Others count in floats.
        for name in COUNTS:
            figure = (usage or {}).get(name)
            if isinstance(figure, int | float) and figure is not True and 1 <= figure <= MOST_TOKENS:
                self._counts[name] = int(figure)

    @property
    def usage(self) -> Usage:
        """What the provider has told so far, its cost not yet known."""
        sent, written, cache_read, cache_write = (self._counts.get(name, 0) for name in COUNTS)
        return Usage(sent, written, cache_read, cache_write, cost_usd=None, llm_calls=1)


def read_tool_use(opening: Json, raw: str, *, was_cut: bool) -> ToolUse:
    """Read a call's arguments from the JSON that streamed; if they cannot be read, the call says why.

    Args:
        opening: the block as it began; some servers put the whole input there and stream nothing.
        raw: the pieces joined; a tool without arguments streams an empty text.
        was_cut: the reply ended inside this block.
    """
    arguments, error = read_arguments(raw) if raw.strip() else checked(opening.get("input") or {})
    if was_cut and (error or not raw.strip()):
        error = "the reply was cut off before the arguments were complete"
    arguments = {} if error else arguments
    return ToolUse(id=_named(opening, "id"), name=tool_name(_named(opening, "name")), arguments=arguments, flaw=error)


def _named(opening: Json, field: str) -> str:
    """Empty where a server gives none: the call then gets one."""
    return "" if opening.get(field) is None else _text(opening[field])


def _text(part: object) -> str:
    if not isinstance(part, str):
        raise TypeError(f"{type(part).__name__} where a text belongs")
    return clean(part)
