"""A running Loom to measure, and a client that costs as little as it can."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any


class System:
    """`loom up` on a home of its own."""

    def __init__(self, **environ: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="loom-bench-")
        self.home = Path(self._folder.name)
        self.port = free_port()
        self.ready_s = 0.0
        self._environ = {**os.environ, "LOOM_HOME": str(self.home), "LOOM_LOG_LEVEL": "WARNING", **environ}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start; returns the seconds until /readyz says so."""
        began_s = time.monotonic()
        command = [sys.executable, "-m", "loom_worker.cli.main", "up", "--port", str(self.port)]
        self._process = subprocess.Popen(command, env=self._environ, stdout=subprocess.DEVNULL)
        while time.monotonic() - began_s < 60:
            if self._is_ready():
                self.ready_s = time.monotonic() - began_s
                return self.ready_s
            time.sleep(0.05)
        raise SystemExit("Loom was not ready within a minute")

    def stop(self) -> None:
        """Stop everything."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)

    def memory_mib(self) -> dict[str, float]:
        """Proportional set size of each process, by name."""
        up = json.loads((self.home / "up.json").read_text())
        pids = {"loom up": up["pid"], **up["children"]}
        return {name: round(_pss_kib(pid) / 1024, 1) for name, pid in pids.items()}

    def client(self) -> "Client":
        """A keep-alive connection."""
        return Client(self.port)

    def _is_ready(self) -> bool:
        try:
            return self.client().get("/readyz")[0] == 200
        except OSError:
            return False

    def __enter__(self) -> "System":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._folder.cleanup()


class Client:
    """One connection, no library in between."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def get(self, path: str) -> tuple[int, Any]:
        """Status and body."""
        return self._ask("GET", path, None)

    def submit(self, session: str, text: str) -> str:
        """The id of a new turn."""
        status, turn = self._ask("POST", f"/v1/sessions/{session}/turns", json.dumps({"input": text}))
        assert status == 202, (status, turn)
        return str(turn["id"])

    def wait(self, turn_id: str) -> dict[str, Any]:
        """A turn, when it has ended."""
        while True:
            _, turn = self.get(f"/v1/turns/{turn_id}?wait=60")
            if turn["completed_at"]:
                assert turn["status"] == "completed", turn
                return dict(turn)

    def _ask(self, method: str, path: str, body: str | None) -> tuple[int, Any]:
        self._http.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = self._http.getresponse()
        return answer.status, json.loads(answer.read())


def free_port() -> int:
    """A port nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _pss_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
