"""A real Valkey for tests: one process a test run, on a Unix socket in a temporary folder, without persistence."""

import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

import redis

from loom_worker.supervisor.valkey import find_binary
from tests.support.until import until


class Valkey:
    """A server that is started and killed at will; its data folder stays until the context ends."""

    def __init__(self, *, append_only: bool = False) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="loom-valkey-")
        self._append_only = append_only
        self.socket = Path(self._folder.name) / "s"
        self.url = f"unix://{self.socket}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = ["--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "700", "--save", ""]
        options += ["--dir", self._folder.name, "--appendonly", "yes" if self._append_only else "no"]
        options += ["--maxmemory-policy", "noeviction"]
        self.process = subprocess.Popen([str(find_binary()), *options], stdout=subprocess.DEVNULL)
        until(self._answers, 15, "Valkey answers")

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def client(self) -> redis.Redis:
        """A client that decodes responses."""
        return redis.Redis.from_url(self.url, decode_responses=True, socket_timeout=20)

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def __enter__(self) -> "Valkey":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._folder.cleanup()
