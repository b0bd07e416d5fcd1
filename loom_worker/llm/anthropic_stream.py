"""The events of the Messages API's stream, read into a Reply; pure.

The events are read as plain dictionaries rather than through the SDK's models: unknown events and blocks then need
no care, pings stay visible to the deadline, and a call costs half the processor time (measured: 1.5 ms for 3.5).
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from loom_worker.core.errors import StreamBroken
from loom_worker.core.values.chat import Reply, StopReason, ToolUse, Usage
from loom_worker.core.values.json import Json
from loom_worker.llm.anthropic_request import PLACE_KEY, THINKING
from loom_worker.llm.arguments import checked, flaw_of, read_arguments
from loom_worker.llm.clean import clean
from loom_worker.llm.sse import MALFORMED

STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "pause_turn": "pause_turn",
}
FINISHED: frozenset[StopReason] = frozenset({"end_turn", "tool_use"})
MOST_TOKENS = 10**12
"""Of a figure of usage; a larger one is nonsense, which no sum or column could hold."""
MAX_REPLY_BYTES = 2 * 1024 * 1024
"""See LlmSettings.max_reply_bytes."""
MAX_BLOCKS = 1_000
"""Content blocks of one reply. Each tool call becomes a row, three events and a result that is sent back; calls beyond
some tens are refused anyway."""
BYTES_A_TOKEN = 4
"""Of English text, for the output of a reply that was cut: the provider tells what it cost only at the end."""
MAX_NAME_CHARS = 200
"""Of the model's name as the provider gives it."""
COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class ErrorEvent(Exception):
    """The stream carried an error event: its type and its message. The adapter translates it, no caller sees it."""


@contextmanager
def _well_formed() -> Iterator[None]:
    # An object of another shape than the API's shows as one of these, wherever it is read.
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StreamBroken(MALFORMED) from error


@dataclass(slots=True)
class _Block:
    """A content block as it grows: how it began, and the pieces of each field that streams."""

    opening: Json
    pieces: dict[str, list[str]] = field(default_factory=dict)
    is_stopped: bool = False

    def add(self, name: str, piece: str) -> None:
        pieces = self.pieces.setdefault(name, [])
        if piece:  # empty ones take no part of the reply's bytes, so they must not pile up
            pieces.append(piece)

    def joined(self, name: str) -> str:
        return "".join(self.pieces.get(name, ()))

    def whole(self) -> Json:
        return self.opening | {name: self.opening.get(name, "") + self.joined(name) for name in self.pieces}

    @property
    def is_opaque(self) -> bool:
        return self.opening["type"] in THINKING


DELTA_FIELDS = {
    "text_delta": "text",
    "input_json_delta": "partial_json",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
}
"""The field of each kind of delta that holds its piece; other kinds (citations) are left out."""


class Assembly:
    """A reply as it comes in: feed it every event, then ask for the reply."""

    def __init__(self, model: str, *, max_bytes: int = MAX_REPLY_BYTES) -> None:
        """Begin a reply of the model that was asked.

        Args:
            max_bytes: of all that the reply holds, in UTF-8.
        """
        self._max_bytes = max_bytes
        self._size_bytes = 0
        self._asked = model
        self._model = model
        self._blocks: dict[int, _Block] = {}
        self._counts: Json = {}
        self._stop_reason: str | None = None
        self.is_complete = False
        """True once the provider has said that the message is over."""
        self.is_too_large = False
        """True once there was more than may be kept: nothing further needs to be fed."""

    def feed(self, event: Json) -> str:
        """Take in one event; return the text that it adds, mostly none. Unknown events add nothing.

        Raises:
            ErrorEvent: it is an error event.
            StreamBroken: it lacks what an event of its type has.
        """
        read = READERS.get(str(event.get("type")))
        with _well_formed():
            return read(self, event) if read else ""

    def reply(self) -> Reply:
        """The reply, its cost not yet known; of one that is too large, the text until then, without any tool call.

        Raises:
            StreamBroken: the stream ended before the provider had finished, or a block lacks what it must have.
        """
        if self.is_too_large:
            return self._cut()
        if not self.is_complete or self._stop_reason is None:
            raise StreamBroken("The model's reply ended before it was complete.")
        with _well_formed():
            return self._reply([self._blocks[index] for index in sorted(self._blocks)])

    def _cut(self) -> Reply:
        # Neither a call nor a block of thinking may go back to the provider in part.
        usage = self._usage()
        written = max(usage.output_tokens, self._size_bytes // BYTES_A_TOKEN)
        text = "".join(self._blocks[index].joined("text") for index in sorted(self._blocks))
        return Reply(text, "reply_too_large", replace(usage, output_tokens=written), self._model)

    def _room_for(self, text: str) -> str:
        """The part of a text that the reply may still hold."""
        size_bytes = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        room = self._max_bytes - self._size_bytes
        if size_bytes > room:
            self.is_too_large = True
            text = text.encode("utf-8", "replace")[:room].decode("utf-8", "ignore")
        self._size_bytes += min(size_bytes, room)
        return text

    def _reply(self, blocks: list[_Block]) -> Reply:
        tool_uses = tuple(self._tool_use(block) for block in blocks if block.opening["type"] == "tool_use")
        return Reply(
            text="".join(block.joined("text") for block in blocks),
            stop_reason=self._settled(bool(tool_uses)),
            usage=self._usage(),
            model=self._model,
            tool_uses=tool_uses,
            opaque=tuple(self._opaque(blocks)),
        )

    def _settled(self, has_calls: bool) -> StopReason:
        # A reason not known here still ended a message that is complete; asking again would get the same, paid twice.
        # Some servers of this API say end_turn beside calls, so for a finished message the calls themselves decide.
        reason = STOP_REASONS.get(self._stop_reason or "", "end_turn")
        if reason not in FINISHED:
            return reason
        return "tool_use" if has_calls else "end_turn"

    def _tool_use(self, block: _Block) -> ToolUse:
        was_cut = self._stop_reason in {"max_tokens", "model_context_window_exceeded"} and block is self._last_block()
        return read_tool_use(block.opening, block.joined("partial_json"), was_cut=was_cut or not block.is_stopped)

    def _last_block(self) -> _Block:
        return self._blocks[max(self._blocks)]

    def _opaque(self, blocks: list[_Block]) -> Iterator[Json]:
        for n, block in enumerate(blocks):
            whole = block.whole() if block.is_opaque else None
            # It must go back as it came: what cannot be sent is left out, for a changed one would be refused.
            if whole is not None and flaw_of(whole) is None:
                yield whole | {PLACE_KEY: self._place(blocks[:n])}

    def _place(self, before: list[_Block]) -> Json:
        text_length = sum(len(each.joined("text")) for each in before)
        calls = sum(each.opening["type"] == "tool_use" for each in before)
        return {"model": self._asked, "text": text_length, "calls": calls}

    def _usage(self) -> Usage:
        return Usage(
            input_tokens=self._count("input_tokens"),
            output_tokens=self._count("output_tokens"),
            cache_read_tokens=self._count("cache_read_input_tokens"),
            cache_write_tokens=self._count("cache_creation_input_tokens"),
            cost_usd=None,
            llm_calls=1,
        )

    def _count(self, name: str) -> int:
        count = self._counts.get(name)
        return count if isinstance(count, int) and 0 < count <= MOST_TOKENS else 0

    def _take_counts(self, usage: Json | None) -> None:
        # Both ends of the stream report usage, the later is the final one; fields it leaves out or null keep.
        told = usage or {}
        self._counts |= {name: told[name] for name in COUNTS if told.get(name) is not None}

    def _read_start(self, event: Json) -> str:
        message = event["message"]
        self._model = _text(message.get("model") or self._asked)[:MAX_NAME_CHARS]
        self._take_counts(message.get("usage"))
        return ""

    def _read_block_start(self, event: Json) -> str:
        opening = dict(event["content_block"])
        text = clean(opening.pop("text", None) or "") if opening["type"] == "text" else ""
        written = json.dumps(opening)
        if len(self._blocks) >= MAX_BLOCKS or len(self._room_for(written)) < len(written):
            self.is_too_large = True
            return ""
        block = self._blocks[event["index"]] = _Block(opening)
        if text:
            text = self._room_for(text)
            block.add("text", text)
        return text

    def _read_block_delta(self, event: Json) -> str:
        block, delta = self._blocks[event["index"]], event["delta"]
        name = DELTA_FIELDS.get(delta["type"])
        if name is None:
            return ""
        piece = self._room_for(clean(delta[name]) if name == "text" else delta[name])
        block.add(name, piece)
        return piece if name == "text" else ""

    def _read_block_stop(self, event: Json) -> str:
        self._blocks[event["index"]].is_stopped = True
        return ""

    def _read_message_delta(self, event: Json) -> str:
        self._stop_reason = event["delta"].get("stop_reason") or self._stop_reason
        self._take_counts(event.get("usage"))
        return ""

    def _read_message_stop(self, _: Json) -> str:
        self.is_complete = True
        return ""

    def _read_error(self, event: Json) -> str:
        error = event.get("error") or {}
        raise ErrorEvent(str(error.get("type")), str(error.get("message")))


READERS: dict[str, Callable[[Assembly, Json], str]] = {
    "message_start": Assembly._read_start,
    "content_block_start": Assembly._read_block_start,
    "content_block_delta": Assembly._read_block_delta,
    "content_block_stop": Assembly._read_block_stop,
    "message_delta": Assembly._read_message_delta,
    "message_stop": Assembly._read_message_stop,
    "error": Assembly._read_error,
}


def read_tool_use(opening: Json, raw: str, *, was_cut: bool) -> ToolUse:
    """Read a call's arguments from the JSON that streamed; what cannot be read becomes its flaw, never ``{}``.

    Args:
        opening: the block as it began; some servers put the whole input there and stream nothing.
        raw: the pieces joined; an empty text is how a tool without arguments streams.
        was_cut: the reply ended inside this block.
    """
    arguments, flaw = read_arguments(raw) if raw.strip() else checked(opening.get("input") or {})
    if was_cut and (flaw or not raw.strip()):
        flaw = "the reply was cut off before the arguments were complete"
    return ToolUse(id=_text(opening["id"]), name=_text(opening["name"]), arguments={} if flaw else arguments, flaw=flaw)


def _text(part: object) -> str:
    if not isinstance(part, str):
        raise TypeError(f"{type(part).__name__} where a text belongs")
    return clean(part)
