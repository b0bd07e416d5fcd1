"""`loom up` on a home of its own, to be measured."""

import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Protocol

from bench.client import Client
from bench.processes import processes, pss_mib
from tests.support import system

SCRIPTED = {"LOOM_PROVIDER": "scripted"}
OVER_HTTP = {"LOOM_PROVIDER": "anthropic", "ANTHROPIC_API_KEY": "none"}
"""With ANTHROPIC_BASE_URL."""


class Running(Protocol):
    """A Loom that can be asked and looked into."""

    home: Path

    def client(self) -> Client:
        """A connection of its own."""

    def rows(self, query: str, *values: str) -> list[tuple[object, ...]]:
        """Rows of Loom's database, read past the API."""


class System(system.System):
    """For ``with``; when it is entered all its workers are alive. Durable commits, unless told otherwise."""

    def __init__(self, **environ: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="loom-bench-")
        self._began_s = self.ready_s = 0.0
        home = Path(self._folder.name) / "home"
        super().__init__(home, **{"LOOM_SQLITE_SYNC": "full", "LOOM_LOG_LEVEL": "WARNING", **environ})

    def start(self) -> None:
        """Start; ``ready_s`` then says how many seconds it took until /readyz said so."""
        self._began_s = time.monotonic()
        super().start()

    def settle(self) -> None:
        """Wait for all workers: /readyz is content with one."""
        self.ready_s = self.ready_s or time.monotonic() - self._began_s
        super().settle()

    def client(self) -> Client:
        """A connection of its own."""
        return Client(int(self.url.rpartition(":")[2]))

    def memory_mib(self) -> float:
        """Of all processes (PSS)."""
        return pss_mib(processes(self.home))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._folder.cleanup()
