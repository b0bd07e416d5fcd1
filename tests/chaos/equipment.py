"""Tools that are built into the processes of a run, and what all tools did: a line each, outside Loom's home."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.chat import ToolSpec
from loom_worker.core.values.tools import Caller, Tool
from tests.chaos.records import Effect

EFFECTS = "LOOM_CHAOS_EFFECTS"
"""Environment variable: the file of effects."""

_SCHEMA = {
    "type": "object",
    "properties": {"nonce": {"type": "string"}, "seconds": {"type": "number", "minimum": 0, "maximum": 60}},
    "required": ["nonce"],
}


def tools(effects: Path) -> tuple[Tool, ...]:
    """``pause`` takes its time in the worker itself, ``die`` kills the process it runs in.

    The others are a user's own: user_tools.py.
    """

    def pause(arguments: dict[str, Any], _caller: Caller) -> str:
        time.sleep(float(arguments.get("seconds", 1.0)))
        line = {"tool": "pause", "nonce": arguments["nonce"], "at_s": time.time()}
        _append(effects, json.dumps(line) + "\n")
        return f"done: {arguments['nonce']}"

    def die(_arguments: dict[str, Any], _caller: Caller) -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        raise ToolFailed("still alive")

    return (
        Tool(_spec("pause"), pause),
        Tool(_spec("die"), die, is_bounded=True),  # bounded: it runs in the turn's own task, and takes that along
    )


def read(effects: Path) -> tuple[Effect, ...]:
    """All effects so far."""
    lines = effects.read_text().splitlines() if effects.exists() else []
    return tuple(Effect(**json.loads(line)) for line in lines)


def _spec(name: str) -> ToolSpec:
    return ToolSpec(name=name, description=f"Harness tool {name}.", input_schema=_SCHEMA)


def _append(path: Path, line: str) -> None:
    """One write to a file opened for appending: lines of several processes never mix."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)
