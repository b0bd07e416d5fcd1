"""What is remembered of a session: the rules by which it is kept, and what is kept."""

from dataclasses import dataclass, field
from typing import Literal

from loom_worker.core.values.chat import Usage
from loom_worker.core.values.json import Json, rfc3339
from loom_worker.core.values.sessions import Message

Level = Literal["normal", "warning", "critical"]
"""How full L1 is; each level compresses more messages at a time."""
Spend = Literal["thrifty", "normal", "full"]
"""What of a large window a conversation may fill, and so what each of its turns costs."""


@dataclass(frozen=True, slots=True)
class Shares:
    """What each layer may take of the input budget, 0-1; what others leave unused goes to L1."""

    rom: float = 0.30
    kernel: float = 0.10
    l1: float = 0.50
    l2: float = 0.10


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """An agent's rules of memory (API: agent YAML, ``memory``)."""

    max_l1_messages: int | None = None
    """More than these in L1 count as pressure, however short they are; None: the tokens of L1 decide alone."""
    min_l1_messages: int = 4
    """These, the newest, are never compressed."""
    normal_at: float | None = 0.85
    """Share of L1's own allowance (0-1) from which the oldest messages are compressed; None: by their number alone."""
    warning_at: float = 0.90
    critical_at: float = 0.95
    batches: tuple[int, int, int] | None = None
    """Messages that are compressed at a time, by level, from L1's own share; None: L1 has all that the other layers
    leave, and as many go as it takes to bring it down to a part of its first mark."""
    max_l2_tokens: int = 5_000
    """L2 above this goes to swap as a snapshot, and begins anew from a digest of it."""
    shares: Shares = field(default_factory=Shares)
    has_swap: bool = True
    """False: the agent gets no tools to look for what has left its context."""
    spend: Spend = "normal"
    """How much L1 may take at most: a quarter of LOOM_L1_TOKENS, all of that, or whatever the window has."""


ChangeKind = Literal["compressed", "snapshot", "summarized"]


@dataclass(frozen=True, slots=True)
class Change:
    """One step of memory: messages became a summary, L2 a snapshot, or what left L1 a summary by date and facts."""

    version: int
    kind: ChangeKind
    level: Level | None
    messages: int
    """How many left L1, or are summarized by date."""
    from_tokens: int
    to_tokens: int
    by: str
    """The model that wrote the summary, or ``heuristic``."""
    snapshot_id: str | None = None

    def as_json(self) -> Json:
        """The data of the events ``memory.compressed``, ``memory.snapshot`` and ``memory.summarized``."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "kind"}


@dataclass(frozen=True, slots=True)
class MemoryState:
    """A session's row of ``memory``; a session that has none is as this is without arguments."""

    version: int = 0
    """Raised by every compression and snapshot; a change that was made from another version is not applied."""
    first_n: int = 0
    """L1 begins with the first message whose number is this or higher."""
    l2_text: str = ""
    """Summaries of what left L1 since the last snapshot, after a digest of that; the oldest first."""
    l2_from_n: int = 0
    """Number of the first message that these summaries, not the digest, speak of."""
    dated_n: int = 0
    """Number of the last message that was taken into the tiers: into a summary by date, and into facts."""
    schemas: tuple[Json, ...] = ()
    """Tables whose schema left L1, the latest used last, at most SCHEMAS: ``{"name": …, "text": …}``."""
    refs: tuple[str, ...] = ()
    """References of large results that left L1, the latest last."""
    promoted: tuple[str, ...] = ()
    """Ids of messages that were recalled, in the order of the conversation."""
    changes: tuple[Change, ...] = ()
    """The latest ones, the oldest first."""


SCHEMAS = 10
"""Tables in the kernel's schema cache; the least recently used leaves."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a turn begins with."""

    state: MemoryState = field(default_factory=MemoryState)
    history: tuple[Message, ...] = ()
    """L1, oldest first; where it has grown too long to be read, its newest messages."""
    recalled: tuple[Message, ...] = ()
    """The promoted messages, in the order of the conversation."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary that was written, and what it cost."""

    text: str
    by: str
    """The model that wrote it, or ``heuristic``."""
    usage: Usage = field(default_factory=Usage)
    asked: str = ""
    """The model that was paid, also if what it said could not be used."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A former L2, in swap."""

    id: str
    session_id: str
    content: str
    token_count: int
    from_message_id: str | None
    to_message_id: str | None
    """The first and the last message it speaks of; null where they are not there any more."""
    created_ms: int
    snapshot_type: str = "l2_summary"

    def brief(self) -> "Snapshot":
        return self

    def as_json(self) -> Json:
        return {
            "id": self.id,
            "object": "snapshot",
            "session_id": self.session_id,
            "snapshot_type": self.snapshot_type,
            "content": self.content,
            "token_count": self.token_count,
            "from_message_id": self.from_message_id,
            "to_message_id": self.to_message_id,
            "created_at": rfc3339(self.created_ms),
        }


@dataclass(frozen=True, slots=True)
class DatedSummary:
    """A part of a conversation in a few sentences, with the time that it is about."""

    id: str
    """``sum_…``; sorts by the time it was written."""
    session_id: str
    content: str
    by_model: str
    """The model that wrote it, or ``heuristic``."""
    token_count: int
    messages: int
    """How many it is about."""
    from_n: int
    to_n: int
    """Numbers of the first and the last of them."""
    from_ms: int
    to_ms: int
    """When the first and the last of them were said."""
    created_ms: int

    def as_json(self) -> Json:
        """As the tool ``memory_summary`` shows it."""
        return {
            "session": self.session_id,
            "from": (rfc3339(self.from_ms) or "")[:10],
            "to": (rfc3339(self.to_ms) or "")[:10],
            "messages": self.messages,
            "summary": self.content,
        }
