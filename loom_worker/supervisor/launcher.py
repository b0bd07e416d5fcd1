"""How the supervisor starts what it runs: forked from the fork server while there is one, else as a new program."""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from loom_worker.core.child_process import shimmed
from loom_worker.core.settings import Settings
from loom_worker.supervisor.fork_server import IS_SUPPORTED, Forked, ForkFailed, ForkServer
from loom_worker.supervisor.specs import loom_command

StartedProcess = subprocess.Popen[bytes] | Forked
"""Its pid is also that of its group and its session."""


class Launcher:
    """Starts children of this process. For the main thread: children die with the thread that started them."""

    def __init__(self, server: ForkServer | None = None) -> None:
        self._server = server
        self._adopts = server is not None
        self._own = {server.pid} if server is not None else set[int]()

    def start(self, argv: Sequence[str], environ: Mapping[str, str], *, outputs: tuple[int, int]) -> StartedProcess:
        """Start a process in a session of its own, with an empty input.

        Args:
            outputs: descriptors of its standard output and error.

        Raises:
            OSError: the system has no room for a further process.
        """
        child = self._started(argv, environ, outputs)
        self._own.add(child.pid)
        return child

    def _started(self, argv: Sequence[str], environ: Mapping[str, str], outputs: tuple[int, int]) -> StartedProcess:
        loom = loom_command()
        if self._server is not None and tuple(argv[: len(loom)]) == loom:
            try:
                return self._server.fork(argv, argv[len(loom) :], environ, outputs=outputs)
            except ForkFailed:
                self.settle()
        return subprocess.Popen(
            shimmed(tuple(argv)),
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=outputs[0],
            stderr=outputs[1],
            start_new_session=True,
        )

    def settle(self) -> None:
        """End the fork server: whatever starts later is a new program. Later calls do nothing."""
        if self._server is not None:
            self._server.end()
            self._server = None

    def reap_strays(self) -> None:
        """Let go of what ended and was never started here: orphans that came to this process as the forks did.

        One of its own that has ended must be polled before: the system names the same ended child until it is reaped.
        """
        while self._adopts and (ended := _ended_child()) is not None and ended not in self._own:
            os.waitpid(ended, 0)


def _ended_child() -> int | None:
    """The pid of a child that has ended and was not reaped yet; it stays to be reaped."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # there is no child at all
        return None
    return None if ended is None else ended.si_pid


@contextmanager
def forking(environ: Mapping[str, str], settings: Settings) -> Iterator[Launcher]:
    """A launcher with a fork server, where there can be one, that ends with the ``with`` at the latest."""
    launcher = Launcher(_server(environ, settings))
    try:
        yield launcher
    finally:
        launcher.settle()


def _server(environ: Mapping[str, str], settings: Settings) -> ForkServer | None:
    if not IS_SUPPORTED:
        return None
    # The demo model needs no library; that of the provider takes a second and 50 MB.
    modules = () if settings.llm.provider == "scripted" else ("anthropic",)
    try:
        return ForkServer(environ, modules=modules, is_debuggable=settings.is_debuggable)
    except OSError:  # no room for a further process now; there may be some later
        return None
