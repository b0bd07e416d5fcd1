"""What the trace of a turn is made of, as the journal keeps it: from when to when each of its parts went on."""

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from loom_worker.core.values.json import Json

RUNS = 50
"""Runs of one turn: of more, such as of a turn that waited for days for its provider, the first and the last are
kept."""
FIRST_RUNS = 10

RunEnd = Literal["parked", "released", "died", "ended"]


@dataclass(frozen=True, slots=True)
class Interval:
    """From when to when something went on, in microseconds since 1970."""

    began_us: int
    ended_us: int

    @classmethod
    def of(cls, stored: Any) -> "Interval | None":
        """Read what ``as_json`` wrote; None for anything else."""
        match stored:
            case [int(began_us), int(ended_us)]:
                return cls(began_us, max(began_us, ended_us))
            case _:
                return None

    def as_json(self) -> list[int]:
        """As the journal keeps it."""
        return [self.began_us, self.ended_us]


@dataclass(frozen=True, slots=True)
class WorkerRun:
    """One worker's time with a turn, from its claim until it parked, released or ended it, or was found dead."""

    fence: int
    """Fence of the claim; no two runs of a turn have the same."""
    worker: str
    began_us: int
    ended_us: int
    """When it ended; for one that died, when the next owner came."""
    end: RunEnd


@dataclass(frozen=True, slots=True)
class TurnTrace:
    """What the trace of a turn needs to know and no other column tells; its fields are in the turn's row."""

    received_us: int | None = None
    """When its HTTP request came; None: it did not come by HTTP."""
    accepted_us: int | None = None
    has_client_span: bool = False
    """True: the parent in its ``traceparent`` is a span of the client; False: it is that of the HTTP request itself."""
    is_unsampled: bool = False
    """True: the client records no trace of this request, so it is not exported either."""
    runs: tuple[WorkerRun, ...] = ()
    """Those that are over, in order."""
    failed_call: Json | None = None
    """The times of a model call that failed and so led to no step (``CallTimes.as_json``)."""
    session: Json | None = None
    """At its end: ``turns``, ``tokens`` and ``cost_usd`` of the whole conversation."""
    stored: Interval | None = None
    """Storing its end: from the wait for the database to all rows written, the commit itself not included."""
    error_stored: Interval | None = None
    """Storing why it failed."""

    @classmethod
    def of(cls, row: Json | None) -> Self:
        """Read the column; all unknown where there is none, as of turns of earlier versions."""
        known = row or {}
        runs = tuple(WorkerRun(*run) for run in known.get("runs", ()))
        stored, error_stored = Interval.of(known.get("stored")), Interval.of(known.get("error_stored"))
        own = {name: value for name, value in known.items() if name in cls.__slots__}  # a newer Loom may keep more
        return cls(**own | {"runs": runs, "stored": stored, "error_stored": error_stored})

    def as_json(self) -> Json:
        known = {
            "received_us": self.received_us,
            "accepted_us": self.accepted_us,
            "has_client_span": self.has_client_span or None,
            "is_unsampled": self.is_unsampled or None,
            "runs": [[run.fence, run.worker, run.began_us, run.ended_us, run.end] for run in self.runs] or None,
            "failed_call": self.failed_call,
            "session": self.session,
            "stored": self.stored and self.stored.as_json(),
            "error_stored": self.error_stored and self.error_stored.as_json(),
        }
        return {name: value for name, value in known.items() if value is not None}

    def with_run(self, run: WorkerRun) -> Self:
        """With one more that is over."""
        runs = (*self.runs, run)
        if len(runs) > RUNS:
            runs = (*runs[:FIRST_RUNS], *runs[FIRST_RUNS + 1 :])
        return replace(self, runs=runs)


NO_TRACE = TurnTrace()


@dataclass(frozen=True, slots=True)
class Try:
    """One request to a model."""

    at: Interval
    error_type: str | None = None
    """The kind of error with which it failed; None: it was answered, or given up."""
    error: str = ""
    model: str = ""
    """That was asked; empty: the one that the turn began with."""

    def details(self) -> tuple[str | None, ...]:
        """What is known beyond its times, as the fields follow each other."""
        if self.model:
            return self.error_type, self.error, self.model
        return (self.error_type, self.error) if self.error_type else ()


@dataclass(frozen=True, slots=True)
class CallTimes:
    """Asking a model for one reply: the context was built, then it was tried once or several times."""

    fence: int
    """Fence of the run that did it."""
    provider: str
    """As LOOM_PROVIDER names it."""
    model: str
    built: Interval | None = None
    """The context, the last time it was built for this reply."""
    tokens: int = 0
    """Tokens of the context, as counted."""
    tries: tuple[Try, ...] = ()
    first_text_us: int | None = None

    @classmethod
    def of(cls, stored: Json | None) -> "CallTimes | None":
        if not stored:
            return None
        tries = (Try(Interval(one[0], one[1]), *one[2:]) for one in stored["tries"])
        return cls(
            fence=stored["run"],
            provider=stored["provider"],
            model=stored["model"],
            built=Interval.of(stored.get("built")),
            tokens=stored.get("tokens", 0),
            tries=tuple(tries),
            first_text_us=stored.get("first_text_us"),
        )

    def as_json(self) -> Json:
        """As a step keeps it."""
        tries = [[*one.at.as_json(), *one.details()] for one in self.tries]
        return {
            "run": self.fence,
            "provider": self.provider,
            "model": self.model,
            "tokens": self.tokens,
            "tries": tries,
            **({"built": self.built.as_json()} if self.built else {}),
            **({"first_text_us": self.first_text_us} if self.first_text_us else {}),
        }


@dataclass(frozen=True, slots=True)
class TracedTurn:
    """A turn, for what is done because of it after its end."""

    turn_id: str
    trace_id: str
