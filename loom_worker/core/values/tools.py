"""Tools, their callers and outcomes; references to large results; errors of tools as they are stored."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from loom_worker.core.values.calls import Awaited
from loom_worker.core.values.chat import ToolSpec
from loom_worker.core.values.cutting import FIELD_BYTES, cut_mark, entries, fit
from loom_worker.core.values.json import Json, rfc3339
from loom_worker.core.values.media import Media
from loom_worker.core.values.spans import traceparent_of

Occasion = Literal["always", "reference", "error", "earlier", "seldom", "many"]
"""When a tool can be of use: once there is a reference to a large result, or a stored error, or something that has left
the context; or so seldom that it is to be asked for. many: it is to be asked for if there are over ``MAX_SHOWN``."""
MAX_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf a tool runs. Tools that keep or look for something do it in this session alone."""

    lane: str
    """The session's internal key."""
    session_id: str
    workspace: str
    turn_id: str
    call_id: str
    agent: str = "default"
    """The agent's name; what agents keep for themselves is kept under it."""
    trace_id: str | None = None
    """Id of the turn's trace."""
    run_id: str = ""
    """Id of the workflow's run that the turn is a stage of, or empty."""

    @property
    def source(self) -> str:
        """What its failures count once for: a workflow's run, or the session."""
        return self.run_id or self.lane

    @property
    def traceparent(self) -> str | None:
        """W3C Trace Context of the call, for what the tool asks of other services; None: the turn has no trace."""
        return traceparent_of(self.trace_id, self.turn_id, "tool", self.call_id)


@dataclass(frozen=True, slots=True)
class Rate:
    """At most ``calls`` in any ``per_s`` seconds."""

    calls: int
    per_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended, whole: nothing of it is shortened yet."""

    status: Literal["completed", "failed", "timeout"]
    content: str
    """What the tool gave, or the whole text of its failure."""
    content_type: str = "text/plain"
    """``application/json`` where the tool gave a JSON value."""
    code: str | None = None
    """Code of a failure: INVALID_INPUT, ERROR_NOT_FOUND, DATABASE_ERROR, UNAVAILABLE, one of the tool's own, or
    None."""
    detail: str = ""
    """Detail of a failure: what stands only in the error store, such as a traceback."""
    is_fault: bool = False
    """True where the tool itself failed, and not what it was asked: it counts for the circuit breaker."""
    guard: tuple[Json, ...] = ()
    """What guardrails decided on it, as the audit keeps it."""
    media: tuple[Media, ...] = ()
    """Images that were taken out of the content, where their stubs stand now."""
    process: Json | None = field(default=None, compare=False)
    """Where a call ran in a child process: its ``pid``, and ``at``, from when to when in us since 1970."""
    error_read: Json | None = field(default=None, compare=False)
    """Where a call read the error store: the ``error_id`` it asked for, and ``at``."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool an agent may be given.

    ``run`` takes arguments that already passed the JSON Schema and returns the result for the model: text, or a
    JSON value, of any size. It raises ToolFailed for what the model should hear of; anything else it raises is
    recorded as a failure too.
    """

    spec: ToolSpec
    run: Callable[[Json, Caller], object]
    is_idempotent: bool = True
    """False: never run twice; when its worker dies the call is closed as "outcome unknown"."""
    is_bounded: bool = False
    """True: cannot hang and takes a few milliseconds, so a single call may run inside the turn's own task."""
    is_read_only: bool = True
    """False: it changes something outside of Loom, so agents that only read may not have it."""
    is_repeatable: bool = True
    """True: the same call again in the same turn may be answered with the first one's result."""
    needs_approval: bool = False
    """True: a person must approve each call."""
    timeout_s: float = 30.0
    rate: Rate | None = None
    """How often it may be called, over all workers; None: as often as one likes."""
    group: str = ""
    """The circuit breaker that watches it: what fails together has one name; empty: none, it is Loom's own."""
    occasion: Occasion = "always"
    """From when on it is shown to a model with a small window."""
    awaits: Awaited | None = None
    """What gives its result where ``run`` is never called: another agent's turn, or messages of other agents."""
    origin: Json | None = None
    """How a child process builds this tool, see ``loom_worker.tools.child_main``; None: it runs in the worker itself.

    What runs in the worker must end by itself: threads cannot be killed.
    """


@dataclass(frozen=True, slots=True)
class StoredError:
    """One failed call, or why a turn failed; secrets are already taken out."""

    id: str
    """``err_YYYYMMDD_HHMMSS_xxxxxx`` (UTC, six hexadecimal digits by chance): 26 characters."""
    workspace: str
    session_id: str
    turn_id: str
    tool_name: str
    """Empty: not a call, but the turn itself failed."""
    at_ms: int
    short_summary: str
    """At most 100 characters."""
    raw_error: Json
    """``message``, and ``code`` and ``detail`` where there are some."""
    span_id: str | None = None
    """The span (``values/spans.py``) in which it occurred; None for errors of older versions."""
    is_cut: bool = False
    """True for an error in a list whose texts are longer than shown."""

    def brief(self) -> "StoredError":
        raw_error = fit(self.raw_error, FIELD_BYTES, entries)
        return self if raw_error is self.raw_error else replace(self, raw_error=raw_error, is_cut=True)

    def as_json(self) -> Json:
        return {
            "id": self.id,
            "object": "error",
            "session_id": self.session_id,
            "turn_id": self.turn_id,
            "span_id": self.span_id,
            "tool_name": self.tool_name or None,
            "timestamp": rfc3339(self.at_ms),
            "short_summary": self.short_summary,
            "raw_error": self.raw_error,
            **cut_mark(self.is_cut, f"/v1/errors/{self.id}"),
        }


@dataclass(frozen=True, slots=True)
class ErrorFilter:
    """Which errors are wanted; None: whichever."""

    session_id: str | None = None
    tool: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DataReference:
    """What is known of a large result; its bytes are elsewhere."""

    id: str
    """``ref_`` and 32 hexadecimal digits, by chance: nobody can guess one."""
    workspace: str
    session_id: str
    turn_id: str
    tool: str
    size_bytes: int
    """Bytes of the original."""
    stored_bytes: int
    """Bytes of what is kept, compressed or not."""
    checksum: str
    """SHA-256 of the original bytes, in hexadecimal."""
    compressed: bool
    content_type: str
    stored_at_ms: int
    location: Literal["memory", "disk"] = "disk"
    """Where it was found last; what is in memory is on disk, too."""
    metadata: Json = field(default_factory=dict)
    """What the preview says, as values: shape, columns, rows."""

    def as_json(self) -> Json:
        """The reference for programs."""
        return {
            "id": self.id,
            "object": "data_reference",
            "session_id": self.session_id,
            "turn_id": self.turn_id,
            "tool": self.tool,
            "size_bytes": self.size_bytes,
            "stored_bytes": self.stored_bytes,
            "location": self.location,
            "checksum": self.checksum,
            "compressed": self.compressed,
            "content_type": self.content_type,
            "metadata": self.metadata,
            "stored_at": rfc3339(self.stored_at_ms),
        }
