"""A tool: what the model is told of it, and the function that does it."""

from collections.abc import Callable
from dataclasses import dataclass

from loom_worker.values.chat import ToolSpec
from loom_worker.values.json import Json


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf a tool runs. Tools that keep or look for something do it in this session alone."""

    lane: str
    """The session's internal key."""
    session_id: str
    workspace: str
    turn_id: str
    call_id: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool an agent may be given.

    ``run`` takes arguments that already passed the JSON Schema and returns the text for the model; it raises
    ToolFailed for what the model should hear of. Anything else it raises is recorded as a failure too.
    """

    spec: ToolSpec
    run: Callable[[Json, Caller], str]
    is_idempotent: bool = True
    """False: never run twice; when its worker dies the call is closed as "outcome unknown"."""
    is_bounded: bool = False
    """True: cannot hang and takes a few milliseconds, so a single call may run inside the turn's own task."""
    timeout_s: float = 30.0
