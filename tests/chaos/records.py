"""What the three independent witnesses wrote down, and what was done to the system meanwhile.

All moments are seconds of the harness' machine since 1970 (``time.time``). A turn is known to every witness by its
``mark``, a word such as ``T00042`` that stands in its input and nowhere else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from loom_worker.core.values.memory import MemoryPolicy
from tests.chaos.collector import Export
from tests.chaos.panels import Look, is_judging, look_of
from tests.chaos.run_records import RunWitness
from tests.chaos.summaries import Part, is_summary, part_of

Json = dict[str, Any]


@dataclass(frozen=True)
class Submitted:
    """The client: a turn that was answered 202 (or 200)."""

    mark: str
    turn_id: str
    session: str
    at_s: float
    """When the first 202 was there."""
    order: int
    """n-th acceptance of its session as this client saw it: it submits the next one only after the 202."""
    key: str | None = None
    """Its Idempotency-Key."""
    answers: tuple[str, ...] = ()
    """Turn ids of all answers to that key, repeats included."""
    has_webhook: bool = False
    asks_person: bool = False
    """A call of it waits for a person."""
    cancel_actions: tuple[Literal["interrupt", "rollback", "finish"], ...] = ()
    """The cancels that the client asked for and was answered 202, and those of later messages that may have been in
    time to replace it: the client learns of its end only afterwards."""
    may_fail: bool = False
    """True where a fault was meant for this very turn (poison, a provider that refuses)."""


@dataclass(frozen=True)
class Polled:
    """The client: a turn with a final status, as ``GET /v1/turns/{id}`` gave it."""

    turn_id: str
    body: bytes
    at_s: float


@dataclass(frozen=True)
class Read:
    """The client: a turn's events, read to the last one."""

    turn_id: str
    text: str
    """All deltas since the last ``turn.retrying`` or ``output_text.commentary``."""
    resumed: int = 0
    """How often the stream broke."""
    flaws: tuple[str, ...] = ()
    """What was wrong with the events themselves."""


@dataclass(frozen=True)
class ModelCall:
    """The LLM server: one request."""

    number: int
    mark: str
    """Of the newest user message; of a request for a summary the key of its part, of one for a verdict its turn's."""
    body: Json
    began_s: float
    ended_s: float
    """When its last byte was written, or the connection was gone."""
    status: int
    fault: str
    """The fault it was answered with; empty: none."""
    is_complete: bool
    """True if a whole, correct reply was written."""
    complaint: str | None
    """Why the real server would refuse it (answered 400), None if it is well-formed."""
    nth: int = 0
    """This is the n-th request of its mark; the reply begins with ``<mark>.<nth>``."""
    said: str = ""
    """The text of the reply, whether it was sent whole or not."""
    tokens: int = 0
    """What the reply costs, in and out, where it is sent whole."""
    connection_gone_s: float | None = None
    """When the connection it came over ended, perhaps many requests later; None: it never did."""

    @cached_property
    def part(self) -> Part | None:
        """What a summary is asked of; None: it is another request."""
        return part_of(self.body) if is_summary(self.body) else None

    @cached_property
    def look(self) -> Look | None:
        """What a judge is asked to look at; None: it is another request."""
        return look_of(self.body) if is_judging(self.body) else None


@dataclass(frozen=True)
class Hook:
    """The receiver: one webhook request, verified or not."""

    id: str
    turn_id: str
    body: bytes
    at_s: float
    is_signed: bool
    """True if the signature is valid for the body and the secret."""
    status: int
    """What it was answered; 0: the connection was closed without an answer."""


@dataclass(frozen=True)
class Effect:
    """A tool: it did the thing that it does."""

    tool: str
    nonce: str
    """One of its arguments, unlike that of any other call the model asked for."""
    at_s: float
    worker: int = 0
    """The pid of the worker whose child process it ran in; 0: it ran in the worker itself."""
    sha256: str = ""
    """Of what it gave, in hexadecimal, if that was large."""


@dataclass(frozen=True)
class Decided:
    """The client: a person's decision on one call, with all its attempts."""

    turn_id: str
    call_id: str
    verdict: Literal["approve", "reject"]
    began_s: float
    """When it was first sent."""
    answers: tuple[int, ...]
    """HTTP statuses in order; 0: there was no answer."""
    opposed: int | None = None
    """What the opposite decision was answered, sent after this one was settled; None: it was not sent."""


@dataclass(frozen=True)
class Injection:
    """What was done to the system."""

    kind: str
    """kill, tree, broker, flush, swallow, stop, term, lock, full, clock, crash, duplicate…"""
    target: str
    """A process' name, or a crash point's."""
    at_s: float
    until_s: float
    """When it was over; ``at_s`` for what has no duration."""


@dataclass(frozen=True)
class Evidence:
    """All of it, after the system has come to rest."""

    submitted: tuple[Submitted, ...]
    polled: tuple[Polled, ...]
    model_calls: tuple[ModelCall, ...]
    hooks: tuple[Hook, ...]
    effects: tuple[Effect, ...]
    injections: tuple[Injection, ...]
    home: Path
    """The system's LOOM_HOME; ``loom.db`` in it is read."""
    leftovers: tuple[str, ...] = ()
    """What should not be there at rest: leases, unacknowledged messages, processes, files; each named."""
    budget_tokens: int = 0
    """The input budget of the agent that was used, in the provider's tokens; nothing fits the default."""
    planned_points: tuple[str, ...] = ()
    """Crash points that this run set out to hit."""
    single_effect_tools: frozenset[str] = field(default_factory=lambda: frozenset({"charge", "refund"}))
    """Tools that are marked as not idempotent."""
    decided: tuple[Decided, ...] = ()
    read: tuple[Read, ...] = ()
    asking_tools: frozenset[str] = field(default_factory=lambda: frozenset({"refund"}))
    """Tools that need a person."""
    large_tools: frozenset[str] = field(default_factory=lambda: frozenset({"report"}))
    """Tools whose results are too large for a conversation."""
    deaths: Mapping[int, float] = field(default_factory=dict)
    """When which process of Loom's ended, by pid; none whose clock was turned."""
    lease_s: float = 3.0
    """LOOM_LEASE_S of the run: for so long after a disturbance a worker may find that its turn is another's."""
    memory: MemoryPolicy = field(default_factory=MemoryPolicy)
    embeds: bool = False
    """What is said gets vectors."""
    """The rules by which the agent's sessions are remembered."""
    agent_budgets: Mapping[str, Json] = field(default_factory=dict)
    """Budgets of agents that have one, by name."""
    exports: tuple[Export, ...] | None = None
    """What the collector took; None: there was none."""
    runs: RunWitness = field(default_factory=RunWitness)
    """What clients of workflow runs saw."""
    most_trace_messages: int = 0
    """In the queue ``trace``, whenever somebody looked while the collector did not answer."""

    @cached_property
    def turn_calls(self) -> tuple[ModelCall, ...]:
        """The requests of turns, for their replies."""
        return tuple(call for call in self.model_calls if call.part is None and call.look is None)

    @cached_property
    def judge_calls(self) -> tuple[ModelCall, ...]:
        """The requests for verdicts."""
        return tuple(call for call in self.model_calls if call.look is not None)

    @cached_property
    def summary_calls(self) -> tuple[ModelCall, ...]:
        """The requests for summaries."""
        return tuple(call for call in self.model_calls if call.part is not None)
