"""What goes to a model and what comes back, in no provider's own format."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal

from loom_worker.core.errors import LoomError
from loom_worker.core.values.budgets import FREE, Amount, nano, usd
from loom_worker.core.values.json import Json
from loom_worker.core.values.media import Media

Role = Literal["user", "assistant", "tool"]
StopReason = Literal[
    "end_turn",
    "tool_use",
    "max_tokens",
    "stop_sequence",
    "refusal",
    "pause_turn",
    "cancelled",
    "reply_too_large",
    "guardrail",
    "tool_call_as_text",
    "unasked_calls",
]
"""Why a reply ended; cancelled: by the client; what was said until then stays. reply_too_large: Loom read
no further; the text until then stands, its tool calls do not. guardrail: it held what may not be said, likewise.
tool_call_as_text: its text holds a call that is not run. unasked_calls: its calls are not run, for none was allowed."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it."""

    name: str
    description: str
    input_schema: Mapping[str, object]
    """JSON Schema of the arguments (an object)."""

    def brief(self) -> "ToolSpec":
        """The same tool, its descriptions cut to their first sentences."""
        return replace(self, description=_first_sentence(self.description), input_schema=_briefly(self.input_schema))


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.;:])\s", text.strip(), maxsplit=1)[0]


def _briefly(schema: Any) -> Any:
    """A schema with short descriptions."""
    if isinstance(schema, list):
        return [_briefly(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: _first_sentence(each) if key == "description" and isinstance(each, str) else _briefly(each)
        for key, each in schema.items()
    }


def object_schema(*required: str, **properties: Json) -> Json:
    """The schema of an object with these properties and no others."""
    needed = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, **needed, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The model's request to call a tool."""

    id: str
    """The provider's id of the call (``toolu_…``); unique within a turn."""
    name: str
    arguments: Json
    flaw: str | None = None
    """Why the arguments could not be read (cut or broken JSON), else None."""


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a call gave, as the model will read it."""

    tool_use_id: str
    name: str
    content: str
    is_error: bool = False
    duration_ms: int = 0
    ref: str | None = None
    """Reference to the whole result, where ``content`` is but a preview of it."""
    error_id: str | None = None
    """Id of the whole error, where ``content`` is but a line of it."""
    note: str = ""
    """Loom's own note to the model after this result."""
    media: tuple[Media, ...] = ()
    """Images in it, each standing in ``content`` as its stub."""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of the conversation.

    A ``user`` message has text and perhaps context, an ``assistant`` message text, tool_uses and opaque blocks,
    a ``tool`` message the outcomes of all calls of the assistant message before it, in call order.
    """

    role: Role
    text: str = ""
    context: str = ""
    """Stands before a user's text in the same message: patterns, today's date. Sent again exactly as first sent."""
    tool_uses: tuple[ToolUse, ...] = ()
    outcomes: tuple[ToolOutcome, ...] = ()
    opaque: tuple[Json, ...] = ()
    """A provider's own blocks (thinking) that must go back unchanged, before text and tool uses."""
    media: tuple[Media, ...] = ()
    """Images and PDFs in a user's message, each standing in ``text`` as its stub."""

    @property
    def all_media(self) -> tuple[Media, ...]:
        """Its own, and those of its outcomes."""
        return (*self.media, *(each for outcome in self.outcomes for each in outcome.media))


Effort = Literal["low", "medium", "high"]
EFFORT_TOKENS: dict[Effort, int] = {"low": 2_048, "medium": 8_192, "high": 16_384}
"""Tokens of thinking at an effort, where one stands for the other; the shares that OpenRouter converts with."""


@dataclass(frozen=True, slots=True)
class Thinking:
    """How much the model is to think before it answers: one of the two."""

    effort: Effort | None = None
    budget_tokens: int | None = None

    @property
    def tokens(self) -> int:
        """The budget, or that of the effort."""
        return self.budget_tokens or EFFORT_TOKENS[self.effort or "medium"]

    @property
    def nearest_effort(self) -> Effort:
        """The effort, or the least one that has the budget's tokens."""
        enough = (each for each, tokens in EFFORT_TOKENS.items() if self.tokens <= tokens)
        return next(enough, "high") if self.effort is None else self.effort


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the model chooses its words; None: as the provider does."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    extra: Json = field(default_factory=dict)
    """Further members of the request's body, passed on as they are."""


AS_USUAL = Sampling()


@dataclass(frozen=True, slots=True)
class Shape:
    """The form that an answer must have."""

    name: str
    """Letters, digits, ``_`` and ``-``, at most 64."""
    schema: Json
    """JSON Schema of an object."""


def _never() -> bool:
    return False


def _always() -> bool:
    return True


def _no_bytes(_file_id: str) -> bytes:
    return b""


class Watch:
    """Looks on while a model is called, and does nothing: ``turn/waits.py`` has the one that does.

    The methods are called in the thread that waits, and return soon.
    """

    def asked(self, model: str) -> None:
        """A request goes out to this model."""

    def received(self) -> None:
        """Something came in."""

    def silent(self) -> None:
        """Still nothing came; called several times a second."""

    def told(self, usage: "Usage") -> None:
        """The provider told what the try under way has used by now, its cost not yet known."""

    def failed(self, error: LoomError, wait_s: float) -> None:
        """A try failed; the next one begins in so many seconds."""


UNWATCHED = Watch()


class Meter:
    """Sets money aside before a model is called, if a budget limits that: ``llm/model.py`` has the one that does."""

    def reserve(self, model: str, max_tokens: int) -> int:
        """Set aside the most that one try of this request can cost.

        Returns:
            The most tokens that its reply may have: ``max_tokens``, or fewer where a budget leaves no more.

        Raises:
            BudgetSpent: a budget has too little left; the call must not be made.
        """
        return max_tokens

    def said(self, text: str) -> None:
        """A piece of the reply came; BudgetSpent: more of it must not."""

    def refund(self) -> None:
        """The last try cost nothing: the provider refused it."""

    def lose(self) -> None:
        """The last try broke off."""


UNMETERED = Meter()


@dataclass(frozen=True, slots=True)
class Request:
    """One call of a model."""

    system: str
    """ROM: the same bytes for the life of a session."""
    messages: tuple[ChatMessage, ...]
    memory: str = ""
    """Kernel and L2: a block of its own at the head of the first user message. Made of what users and tools said, it
    has no place in the system text, and its changes leave the cache of that alone."""
    tools: tuple[ToolSpec, ...] = ()
    may_call_tools: bool = True
    """False: the tools stay listed (the provider's prompt cache holds), but the answer must be text."""
    must_call: str = ""
    """The tool that the reply must call, where the provider can demand that; ``*``: any of them; empty: none."""
    shape: Shape | None = None
    """The answer is to be JSON of this form, after any calls of tools: the adapter demands it by the provider's own
    mode, else by a forced tool, and in both cases the reply's text is that JSON. The caller checks it."""
    max_tokens: int = 4096
    stop_sequences: tuple[str, ...] = ()
    thinking: Thinking | None = None
    """None: as the model does by itself."""
    sampling: Sampling = AS_USUAL
    cache_marks: bool = True
    """Mark the ends of system text, memory, the former call's messages and the last message for the prompt cache."""
    is_given_up: Callable[[], bool] = field(default=_never, compare=False)
    """Asked several times a second during the call; True ends it with Interrupted."""
    may_be_sent: Callable[[], bool] = field(default=_always, compare=False)
    """Asked with each try, on an open connection and before its first byte; False ends the call with Interrupted."""
    watch: Watch = field(default=UNWATCHED, compare=False)
    meter: Meter = field(default=UNMETERED, compare=False)
    """Asked before each try."""
    key: str = ""
    """The same for the same call of a turn, also when another worker makes it again after a crash; empty: none."""
    source: str = ""
    """The session for which it is made: its failures count once for a circuit breaker; empty: none."""
    read_file: Callable[[str], bytes] = field(default=_no_bytes, compare=False)
    """The bytes of a message's media by their file's id; none if they are gone: then the stub is sent."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one reply, or the sum over several; cost_usd is None where a price is not known."""

    input_tokens: int = 0
    """Not served from nor written to the provider's cache."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: Decimal | None = FREE
    llm_calls: int = 0

    @property
    def sent_tokens(self) -> int:
        """All tokens that went in, cached or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def tokens(self) -> int:
        """All tokens, in and out, cached or not."""
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens

    def __add__(self, other: "Usage") -> "Usage":
        """Sum two usages; an unknown cost makes the sum unknown."""
        known = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            cost_usd=(self.cost_usd or FREE) + (other.cost_usd or FREE) if known else None,
            llm_calls=self.llm_calls + other.llm_calls,
        )

    def amount(self, *, tool_calls: int = 0) -> Amount:
        """What it takes off budgets; a price that is not known takes no money."""
        return Amount(nano(self.cost_usd or FREE), self.tokens, tool_calls)

    def as_json(self) -> Json:
        """The ``usage`` object of a Turn."""
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_read_tokens": self.cache_read_tokens,
            "cache_write_tokens": self.cache_write_tokens,
            "cost_usd": None if self.cost_usd is None else float(self.cost_usd),
            "llm_calls": self.llm_calls,
        }

    @classmethod
    def from_json(cls, data: Json) -> "Usage":
        """Read what as_json wrote; missing fields are 0."""
        cost = data.get("cost_usd", FREE)
        known = {name: data[name] for name in cls.__slots__ if name in data}
        return cls(**{**known, "cost_usd": None if cost is None else usd(cost)})


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the reply's text, as it streams in."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of what the model thinks before it answers; no part of the reply's text."""

    text: str


@dataclass(frozen=True, slots=True)
class Restarted:
    """The call is tried again from its beginning: drop the deltas of this reply."""

    why: str


@dataclass(frozen=True, slots=True)
class FellBack:
    """Another model is asked from here on, since the one before it cannot answer."""

    model: str
    instead_of: str
    why: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete reply; the last event of every call of a model."""

    text: str
    stop_reason: StopReason
    usage: Usage
    model: str
    """The model that was asked, by the name that it was asked by."""
    tool_uses: tuple[ToolUse, ...] = ()
    opaque: tuple[Json, ...] = field(default=())
    guard: tuple[Json, ...] = ()
    """What guardrails decided on it, as the audit keeps it."""
    served: str = ""
    """The model as the server names it: an alias, the path of a file; nothing but the price of a profile needs it."""


ReplyEvent = TextDelta | ThinkingDelta | Restarted | FellBack | Reply


@dataclass(frozen=True, slots=True)
class Frame:
    """The provider's own tokens, as is usual, by what they come with; measured on recordings (``bench.tokens``)."""

    tools: int
    """Its text about tools, once where there are any."""
    tool: int = 12
    """Around each tool."""
    request: int = 3
    message: int = 3
    call: int = 42
    """A tool call with its result, not counting their texts and their two messages."""
    keeps_thinking: bool = True
    """False: it does not read, nor count, the thinking of turns that have ended."""
