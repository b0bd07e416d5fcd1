"""The processes of a world as this process sees them: who runs with which pid, who died and how."""

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.chaos import keeper
from tests.support.until import until, within

START_S = 60.0


@dataclass(frozen=True)
class Ended:
    """A process that is gone."""

    name: str
    pid: int
    status: int
    """Exit status, negative for a signal."""
    at_s: float


class Crew:
    """Tells the keeper what shall run; use ``open`` from the main thread: everything dies with the thread that did."""

    def __init__(self, logs: Path, environ: Mapping[str, str]) -> None:
        self._logs = logs
        self._environ = dict(environ)
        self._pids: dict[str, int] = {}
        self.ended: list[Ended] = []
        self._keeper: subprocess.Popen[bytes] | None = None

    def open(self, *, loads_loom: bool = True) -> None:
        """Start the keeper; seconds, if it loads all of Loom."""
        self._keeper = keeper.start(self._environ, self._logs / "keeper.log", loads_loom=loads_loom)
        threading.Thread(target=self._listen, args=(self._keeper,), daemon=True).start()
        until(lambda: self.pid("keeper"), START_S, "the keeper is ready")

    def start(self, name: str, argv: Sequence[str], *, is_loom: bool, environ: Mapping[str, str] | None = None) -> None:
        """Have a process run from now on, also after its death.

        Args:
            environ: in addition to the crew's, or in its place.
        """
        whole = {**self._environ, **(environ or {})}
        log = str(self._logs / f"{name}.log")
        self._say("start", name=name, argv=list(argv), environ=whole, log=log, is_loom=is_loom)
        until(lambda: self.pid(name), START_S, f"{name} is started")

    def forget(self, *names: str) -> None:
        """Let these stay dead."""
        self._say("forget", names=list(names))

    def pid(self, name: str) -> int:
        """Its pid, 0 while it is dead."""
        return self._pids.get(name, 0)

    @property
    def names(self) -> tuple[str, ...]:
        """All that run now, but for the keeper."""
        return tuple(name for name, pid in list(self._pids.items()) if pid and name != "keeper")

    def signal(self, name: str, number: signal.Signals, *, is_tree: bool = False) -> int:
        """Send a signal to a process or all of its group; its pid, 0 if it is dead."""
        pid = self.pid(name)
        with contextlib.suppress(ProcessLookupError):
            if pid:
                (os.killpg if is_tree else os.kill)(pid, number)
        return pid

    def finish(self, names: Sequence[str], timeout_s: float) -> tuple[str, ...]:
        """SIGTERM and no restart; the names of those that had not ended by then, and were killed."""
        self.forget(*names)
        for name in names:
            self.signal(name, signal.SIGTERM)
        within(lambda: not any(map(self.pid, names)), timeout_s)
        late = tuple(name for name in names if self.pid(name))
        for name in late:
            self.signal(name, signal.SIGKILL, is_tree=True)
        return late

    def close(self) -> None:
        """Kill what is left, the keeper included."""
        if self._keeper is not None and self._keeper.stdin is not None:
            self._keeper.stdin.close()
            try:
                self._keeper.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self._keeper.kill()
                self._keeper.wait()

    def _say(self, do: str, **fields: object) -> None:
        assert self._keeper is not None
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
        self._keeper.stdin.flush()

    def _listen(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                news = json.loads(line)
                if news["event"] == "ended":
                    self.ended.append(Ended(news["name"], news["pid"], news["status"], news["at_s"]))
                    self._pids[news["name"]] = 0
                else:
                    self._pids[news["name"]] = news["pid"]
