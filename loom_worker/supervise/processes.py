"""Starting, signalling and reaping the processes: all the system calls of the supervisor."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from loom_worker import process_env
from loom_worker.supervise import child, logs
from loom_worker.supervise.decide import Spec


def shimmed(argv: tuple[str, ...]) -> list[str]:
    """The command line that runs ``argv`` so that it dies with this process.

    -I and -S: the shim needs no site-packages, and so costs about 15 ms instead of 60.
    """
    return [sys.executable, "-I", "-S", child.__file__, str(os.getpid()), *argv]


class Processes:
    """The children of this process, by name. Use it from the main thread only: children die with their thread."""

    def __init__(self, log_dir: Path, environ: Mapping[str, str]) -> None:
        """Args: environ: of them all; each is given what it needs of it."""
        self._log_dir = log_dir
        self._environ = dict(environ)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._seen: set[str] = set()

    def log(self, name: str) -> Path:
        """Where the output of this process goes."""
        return self._log_dir / f"{name}.log"

    def start(self, spec: Spec) -> int:
        """Run it in a session of its own, so that the terminal's Ctrl-C reaches the supervisor alone; its pid."""
        is_first = spec.name not in self._seen
        self._seen.add(spec.name)
        output = (logs.open_log if is_first else logs.reopen_log)(self.log(spec.name))
        try:
            running = subprocess.Popen(
                shimmed(spec.argv),
                env=process_env.of_process(self._environ, spec.needs),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        finally:
            os.close(output)
        self._running[spec.name] = running
        return running.pid

    def ended(self) -> dict[str, int]:
        """Those that ended since the last call: name to exit status, negative for a signal."""
        gone = {name: status for name, it in self._running.items() if (status := it.poll()) is not None}
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
        """Put aside what has grown too large."""
        for name in self._seen:
            logs.rotate_if_large(self.log(name))

    @staticmethod
    def _signal_group(pid: int, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)
