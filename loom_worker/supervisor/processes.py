"""Starting, signalling and reaping the processes: all the system calls of the supervisor."""

import contextlib
import os
import signal
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from loom_worker.core.isolation import process_env
from loom_worker.supervisor import logs
from loom_worker.supervisor.decide import Spec
from loom_worker.supervisor.launcher import Launcher, StartedProcess


class Processes:
    """The children of this process, by name. Use it from the main thread only: children die with their thread."""

    def __init__(
        self,
        log_dir: Path,
        environ: Mapping[str, str],
        *,
        logs_json: bool = False,
        launcher: Launcher | None = None,
    ) -> None:
        """Make the table.

        Args:
            environ: of them all; each is given what it needs of it.
            logs_json: the processes log one JSON object a line, and so do notes about them.
            launcher: what starts them; None: each is started as a new program.
        """
        self._launcher = launcher or Launcher()
        self._log_dir = log_dir
        self._logs_json = logs_json
        self._environ = dict(environ)
        self._running: dict[str, StartedProcess] = {}
        self._seen: set[str] = set()
        self.unlogged: set[str] = set()
        """Those whose output goes nowhere, for their log could not be opened."""

    def log(self, name: str) -> Path:
        """Where the output of this process goes."""
        return self._log_dir / f"{name}.log"

    def note(self, name: str, text: str) -> None:
        """Write into the log of a process what became of it."""
        logs.note(self.log(name), f"{name} {text}", moment=datetime.now(UTC), as_json=self._logs_json)

    def start(self, spec: Spec) -> int:
        """Run it in a session of its own, so that the terminal's Ctrl-C reaches the supervisor alone; its pid."""
        if spec.name in self._seen:
            self.settle()  # it has ended before: whatever the reason, it begins from nothing this time
        self._seen.add(spec.name)
        self.note(spec.name, "starts")
        output = self._output(spec.name)
        try:
            environ = process_env.of_process(self._environ, spec.needs)
            running = self._launcher.start(spec.argv, environ, outputs=(output, output))
        finally:
            os.close(output)
        self._running[spec.name] = running
        return running.pid

    def settle(self) -> None:
        """All have started: from now on each is started as a new program."""
        self._launcher.settle()

    def _output(self, name: str) -> int:
        """A descriptor of its log; on a disk that takes no new file, one that leads nowhere."""
        self.unlogged.discard(name)
        try:
            return logs.open_log(self.log(name))
        except OSError:
            self.unlogged.add(name)
            return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)

    def ended(self) -> dict[str, int]:
        """Those that ended since the last call: name to exit status, negative for a signal."""
        gone = {name: status for name, it in self._running.items() if (status := it.poll()) is not None}
        self._launcher.reap_strays()
        for name in gone:
            # What it had started itself, such as a server's rewriting child, must not outlive it.
            self._signal_group(self._running.pop(name).pid, signal.SIGKILL)
        return gone

    def ask(self, name: str) -> None:
        """SIGTERM: finish what you do and end."""
        with contextlib.suppress(ProcessLookupError):
            self._running[name].terminate()

    def kill(self, name: str) -> None:
        """SIGKILL, to its whole group."""
        self._signal_group(self._running[name].pid, signal.SIGKILL)

    def rotate_logs(self) -> None:
        """Put aside what has grown too large; where there is no room for that, it waits."""
        for name in self._seen:
            with contextlib.suppress(OSError):
                logs.rotate_if_large(self.log(name))

    @staticmethod
    def _signal_group(pid: int, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)
