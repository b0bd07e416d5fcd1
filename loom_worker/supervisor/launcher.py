"""How the supervisor starts what it runs: forked from the fork server while there is one, else as a new program.

The fork server has imported Loom once; the others are forked from it while `loom up` starts. It holds no secret, no
connection and no thread, so that what is forked from it begins as cleanly as a new interpreter. Each fork becomes a
child of the supervisor, which watches and ends it like any other. Its other end is ``cli/fork_server.py``.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from loom_worker.core.child_process import adopt_orphans, module_command, shimmed
from loom_worker.core.env import is_secret
from loom_worker.core.isolation import process_env
from loom_worker.core.settings import Settings
from loom_worker.core.values.agents import sdk
from loom_worker.supervisor.specs import loom_command

IS_SUPPORTED = sys.platform == "linux"
"""Elsewhere nobody adopts a fork's child, and libraries of macOS do not survive a fork."""
PATIENCE_S = 30.0
"""An answer that takes longer will not come: to the first request it takes a second, while Loom is imported."""
TITLE_ROOM = " " * 1000
"""Its last argument: a fork writes its own command line over it, for `ps`."""
C_LIBRARY = ("MALLOC_", "GLIBC_")
"""Prefixes of what a fork is too late to be told."""
PID_BYTES = 4
"""Bytes of the pid with which a fork answers."""


class ForkFailed(Exception):
    """Nothing was forked: the server is gone, or the system has no room for a further process."""


class Forked:
    """A child of this process that it did not start itself; used like ``subprocess.Popen``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self._reaped(os.WNOHANG)

    def wait(self) -> int:
        """Its exit status, once it has ended."""
        status = None
        while status is None:
            status = self._reaped(0)
        return status

    def terminate(self) -> None:
        """SIGTERM, unless it is known to have ended: its pid may be another's by then."""
        if self._status is None:
            os.kill(self.pid, signal.SIGTERM)

    def _reaped(self, options: int) -> int | None:
        if self._status is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # SIGCHLD was ignored by whoever started us, so nobody knows; as Popen has it
                pid, status = self.pid, 0
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status


class ForkServer:
    """The process, from its start to its end. For the main thread: children die with the thread that has them."""

    def __init__(self, environ: Mapping[str, str], *, modules: Sequence[str] = (), is_debuggable: bool = False) -> None:
        """Start it; it imports Loom meanwhile.

        Args:
            environ: of the processes of Loom; it is given none of the secrets in it.
            modules: what it imports besides Loom.
            is_debuggable: other processes of this user may look into it, and into what is forked from it.

        Raises:
            OSError: the system has no room for a further process.
        """
        self._socket, theirs = socket.socketpair()
        with theirs:
            ends = (str(theirs.fileno()), str(os.getpid()))
            openness = "open" if is_debuggable else "hidden"
            command = module_command("loom_worker.cli.fork_server", "-P")
            self._process = subprocess.Popen(
                shimmed((*command, *ends, openness, ",".join(modules), TITLE_ROOM)),
                env=_environ(environ),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        adopt_orphans(is_on=True)

    @property
    def pid(self) -> int:
        """Also of its group and its session."""
        return self._process.pid

    def fork(
        self, argv: Sequence[str], arguments: Sequence[str], environ: Mapping[str, str], *, outputs: tuple[int, int]
    ) -> Forked:
        """Fork a process that runs a command of Loom, in a session of its own.

        Args:
            argv: what `ps` shows of it.
            arguments: of ``loom``.
            environ: all that its environment shall hold.
            outputs: descriptors of its standard output and error.

        Raises:
            ForkFailed: see there; the server is of no more use.
        """
        ours, theirs = socket.socketpair()
        with ours:
            ours.settimeout(PATIENCE_S)
            try:
                with theirs:
                    socket.send_fds(self._socket, [b"f"], [theirs.fileno(), *outputs])
                answer = ours.recv(PID_BYTES)
            except OSError as error:
                raise ForkFailed(str(error)) from error
            if len(answer) < PID_BYTES:
                raise ForkFailed("the fork server has ended, or there is no room for a further process")
            # To the fork alone: what the server knew, all later forks would.
            with contextlib.suppress(OSError):  # it has ended already, and is seen to
                ours.sendall(json.dumps([argv, arguments, dict(environ)]).encode())
        return Forked(int.from_bytes(answer, "big"))

    def end(self) -> None:
        """End it; what was forked from it runs on."""
        self._socket.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        # From now on orphans are the system's again: who else would reap them?
        adopt_orphans(is_on=False)


def _environ(environ: Mapping[str, str]) -> dict[str, str]:
    """What every process of Loom may show in its environment, and what the C library reads once, at its start."""
    kept = process_env.of_process(environ, process_env.NOTHING)
    kept |= {name: value for name, value in environ.items() if name.startswith(C_LIBRARY)}
    return {name: value for name, value in kept.items() if not is_secret(name)}


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
    try:
        return ForkServer(environ, modules=sdk(settings.llm.provider), is_debuggable=settings.is_debuggable)
    except OSError:  # no room for a further process now; there may be some later
        return None
