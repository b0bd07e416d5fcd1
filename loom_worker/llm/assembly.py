"""A reply as it arrives, whoever sends it: what every format's assembly has in common. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from loom_worker.core.errors import StreamBroken
from loom_worker.core.text import storable
from loom_worker.core.values.chat import Reply, StopReason, TextDelta, ThinkingDelta, ToolUse, Usage
from loom_worker.core.values.json import Json
from loom_worker.llm.response import MALFORMED
from loom_worker.llm.sanitize import checked, read_arguments, tool_name

STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "length": "max_tokens",
    "model_length": "max_tokens",
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
"""Tokens of a usage figure; a larger one is nonsense, which no sum or column could hold."""
MAX_REPLY_BYTES = 2 * 1024 * 1024
"""The default of LlmSettings.max_reply_bytes."""
MAX_BLOCKS = 1_000
"""Content blocks of one reply. Each tool call becomes a row, three events and a result that is sent back; more than a
few dozen calls are refused anyway."""
BYTES_A_TOKEN = 4
"""Bytes of English text in a token: estimates the output of a cut reply, which the provider reports only at the end."""
INCOMPLETE = "The model's reply ended before it was complete."


class ErrorEvent(Exception):
    """The stream carried an error; ``args[0]`` is what it holds. The adapter translates it."""


@contextmanager
def well_formed() -> Iterator[None]:
    """Raises StreamBroken for an object that lacks what one of its type has."""
    # An object that does not have the API's shape raises one of these, wherever it is read.
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StreamBroken(MALFORMED) from error


Delta = TextDelta | ThinkingDelta


class Assembly(ABC):
    """Feed it every event of a stream, then ask for the reply."""

    def __init__(self, model: str, *, max_bytes: int = MAX_REPLY_BYTES) -> None:
        """Args: model: that was asked, as Loom names it; max_bytes: of the whole reply, in UTF-8."""
        self.is_complete = False
        """True once the provider has said that the reply is over."""
        self.is_too_large = False
        """True once there was more than may be kept: nothing further needs to be fed."""
        self.has_usage_news = False
        """True once an event told of the usage; whoever has read that sets it back. Most events tell of none."""
        self._asked = model
        self._served = ""
        self._max_bytes = max_bytes
        self._size_bytes = 0
        self._texts: list[str] = []

    @property
    @abstractmethod
    def usage(self) -> Usage:
        """What the provider has told so far, its cost not yet known."""

    def begins_anew(self, event: Json) -> bool:
        """True if the server begins its reply again with this event, which a new assembly is to be fed."""
        return False

    @abstractmethod
    def feed(self, event: Json) -> Sequence[Delta]:
        """Take in one event; return what it adds to text and thinking, usually one piece. Unknown events add nothing.

        Raises:
            ErrorEvent: it is an error event.
            StreamBroken: it lacks what an event of its type has.
        """

    def reply(self) -> Reply:
        """The reply, its cost not yet known; if it is too large, the text so far, without any tool call.

        Raises:
            StreamBroken: the stream ended before the provider had finished, or a part lacks what it must have.
        """
        if not self.is_too_large:
            with well_formed():
                return self._whole()
        # Neither a call nor a block of thinking may go back to the provider in part.
        written = max(self.usage.output_tokens, self._size_bytes // BYTES_A_TOKEN)
        usage = replace(self.usage, output_tokens=written)
        return Reply("".join(self._texts), "reply_too_large", usage, self._asked, served=self._served)

    @abstractmethod
    def _whole(self) -> Reply:
        """The reply of a stream that has ended; raises as ``reply``."""

    def _said(self, text: str) -> Sequence[Delta]:
        """Add a piece of text."""
        piece = self._room_for(storable(text))
        self._texts.append(piece)
        return (TextDelta(piece),) if piece else ()

    def _thought(self, text: str) -> Sequence[Delta]:
        """Show a piece of thinking, whose size was counted."""
        return (ThinkingDelta(storable(text)),) if text else ()

    def _room_for(self, text: str) -> str:
        """The text, or as much of it as may be kept."""
        size_bytes = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        room = self._max_bytes - self._size_bytes
        if size_bytes > room:
            self.is_too_large = True
            text = text.encode("utf-8", "replace")[:room].decode("utf-8", "ignore")
        self._size_bytes += min(size_bytes, room)
        return text


def ended(reason: str, *, has_calls: bool) -> StopReason:
    """Why a complete reply ended, by its provider's word for it."""
    # A reason not known here still ended a complete reply; asking again would get the same, paid twice.
    known = STOP_REASONS.get(reason.lower(), "end_turn")
    if known in FINISHED:  # some servers say that the turn ended beside calls, so the calls decide
        return "tool_use" if has_calls else "end_turn"
    return known


def count_of(figure: object) -> int:
    """A figure of a usage; 0 for what is none, or nonsense. Some servers count in floats."""
    if not isinstance(figure, int | float) or figure is True or not 1 <= figure <= MOST_TOKENS:
        return 0
    return int(figure)


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
    return storable(part)
