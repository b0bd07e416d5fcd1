from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from loom_worker.core.stopping import Stopping
from loom_worker.core.values.tools import Caller, Tool
from loom_worker.store.database import Database
from loom_worker.store.shared_memory import MEMBERS, SharedMemory
from loom_worker.tools.shared_memory import SharedParts, shared_tools

NOW_MS = 1_795_253_400_000


class Placed(SharedMemory):
    """The real one; turns are those of sessions with this metadata."""

    def __init__(self, database: Database, scopes: dict[str, dict[str, object]]) -> None:
        super().__init__(database)
        self._scopes = scopes

    def owners(self, turn_id: str) -> dict[str, tuple[str, object]]:
        metadata = self._scopes.get(turn_id.removeprefix("turn_"), {})
        return {name: (name, metadata.get(member)) for name, member in MEMBERS.items()}


@dataclass
class Time(Stopping):
    """Passes only when somebody waits; then, too, the others do what they do."""

    now_s: float = 0.0
    pauses: list[float] = field(default_factory=list)
    meanwhile: Callable[[int], None] = lambda _: None
    stops_after: int | None = None

    def pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.now_s += seconds
        self.meanwhile(len(self.pauses))
        return self.stops_after is not None and len(self.pauses) >= self.stops_after


@dataclass
class Agents:
    """Calls the tools for agents of any session."""

    tools: dict[str, Tool]
    time: Time

    def call(self, who: Caller, name: str, /, **arguments: Any) -> Any:
        return self.tools[f"shared_memory_{name}"].run(arguments, who)


def agent(name: str = "player1", session: str = "s1", workspace: str = "acme") -> Caller:
    return Caller("lane", session, workspace, f"turn_{session}", "call_1", name)


@pytest.fixture
def scopes() -> dict[str, dict[str, object]]:
    """Metadata by session."""
    return {}


@pytest.fixture
def agents(database: Database, scopes: dict[str, dict[str, object]]) -> Agents:
    time = Time()
    parts = SharedParts(Placed(database, scopes), time, clock_ms=lambda: NOW_MS, clock_s=lambda: time.now_s)
    return Agents({tool.spec.name: tool for tool in shared_tools(parts)}, time)
