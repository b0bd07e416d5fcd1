"""A Model that plays given replies and errors, one after the other, and keeps what it was asked."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from loom_worker.core.values.budgets import Reservation, usd
from loom_worker.core.values.chat import Reply, ReplyEvent, Request, StopReason, TextDelta, ToolUse, Usage
from loom_worker.core.values.json import Json
from loom_worker.llm.model import Model

Beat = ReplyEvent | BaseException | Callable[[], object]
"""What happens next in a call: an event is yielded, an error raised, a function called."""

ONE_CALL = Usage(input_tokens=10, output_tokens=5, cost_usd=usd(0.001), llm_calls=1)


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours may catch it."""


@dataclass
class Plays:
    """Each call of the model plays the next scene; a call too many is a bug of the caller."""

    scenes: list[Sequence[Beat]] = field(default_factory=list)
    name: str = "played"
    asked: list[Request] = field(default_factory=list)
    closed: int = 0
    """How many of its streams were closed or read to the end."""

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """Play the next scene."""
        self.asked.append(request)
        if not self.scenes:
            raise AssertionError("the model was asked more often than there are scenes")
        scene = self.scenes.pop(0)
        try:
            for beat in scene:
                if isinstance(beat, BaseException):
                    raise beat
                if not callable(beat):
                    yield beat
                else:
                    beat()
        finally:
            self.closed += 1


@dataclass(frozen=True, slots=True)
class Unpaid:
    """A Model for which no budget sets anything aside."""

    model: Model
    held: tuple[Reservation, ...] = ()

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self.model.name

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """See Model.reply."""
        yield from self.model.reply(request)


def says(text: str, *, stop: StopReason = "end_turn", pieces: int = 2) -> list[Beat]:
    """A reply in text alone, streamed in pieces."""
    return [*streamed(text, pieces), Reply(text, stop, ONE_CALL, "played")]


def wants(*calls: tuple[str, Json], text: str = "", first_id: int = 1) -> list[Beat]:
    """A reply that asks for tools; the calls get the ids toolu_<first_id>, toolu_<first_id + 1>…"""
    uses = tuple(ToolUse(f"toolu_{first_id + n}", name, arguments) for n, (name, arguments) in enumerate(calls))
    return [*streamed(text, 1), Reply(text, "tool_use", ONE_CALL, "played", tool_uses=uses)]


def streamed(text: str, pieces: int) -> list[Beat]:
    """The deltas of a text."""
    size = max(1, -(-len(text) // pieces))
    return [TextDelta(text[start : start + size]) for start in range(0, len(text), size)]
