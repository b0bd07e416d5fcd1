"""The whole of Loom as a user starts it: `loom up` on a home of its own, spoken to over HTTP.

    with System(tmp_path / "home", ANTHROPIC_BASE_URL=server.url) as loom:
        turn = loom.ended(loom.submit("s1", "hello"))
        loom.kill("worker-1")

Leaving the ``with`` stops it and asserts that none of its processes is left.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import redis
import urllib3

from loom_worker.core.settings import embedded_socket, embedded_url
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.lanes import keys
from tests.support import store_postgres
from tests.support.shipped_patterns import share_index
from tests.support.until import until
from tests.support.webhook_receiver import unused_port

Json = dict[str, Any]

START_S = 150.0
"""From `loom up` to ready, on a machine that is busy with other things."""
STOP_S = 120.0
TURN_S = 60.0
"""For a turn that nothing disturbs."""
WORKERS = 3
"""Worker processes of `loom up`."""

PLAIN = """
apiVersion: loom/v1
kind: Agent
metadata: {{name: {name}}}
spec:
  system_prompt: Answer.
  config: {{patterns: {{enabled: false}}}}
"""


@dataclass(frozen=True)
class Answer:
    """What the HTTP API said."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass(frozen=True)
class Told:
    """An event as a reader gets it."""

    id: int
    type: str
    data: Json


class System:
    """`loom up`, for ``with``; started again on the same home by ``start`` after ``stop`` or ``kill_supervisor``."""

    server: ClassVar[str | None] = None
    """The PostgreSQL on which each system has a database of its own; None: the file in its home."""

    def __init__(self, home: Path, **environ: str) -> None:
        """Args: environ: LOOM_* and ANTHROPIC_* variables; none of this process' own are handed on.

        With LOOM_KEY requests show that key, as commands do.
        """
        self.home = home
        self.url = ""
        self.run_by: tuple[str, ...] = ()
        """A command that becomes `loom up`, such as as_user.py."""
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "LOOM_SQLITE_SYNC": "normal",
            # Only root may look into processes that hide, as ``leftovers`` does.
            **({} if os.geteuid() == 0 else {"LOOM_DEBUGGABLE": "1"}),
            **({"LOOM_DATABASE_URL": store_postgres.another(self.server)} if self.server else {}),
            **environ,
            "LOOM_HOME": str(home),
        }
        self._log = home.with_suffix(".out")
        self._process: subprocess.Popen[bytes] | None = None
        self._pool = urllib3.PoolManager(retries=False, maxsize=8)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._kill_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
            left = leftovers(self.home)
        finally:
            self._pool.clear()
            self._kill_all()
        assert left == {}, f"still running: {left}"

    def start(self, port: int | None = None) -> None:
        """Run `loom up` and wait until it is ready with all its workers; without a port on an unused one."""
        if not self.home.exists() and not self.run_by:  # another user could not read the index
            self.home.mkdir(mode=0o700, parents=True)
            share_index(self.home)
        port = port or unused_port()
        self.url = f"http://127.0.0.1:{port}"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self.run_by, *loom("up", "--port", str(port))],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(lambda: self.is_ready() or self._has_ended(), START_S, "Loom is ready")
        assert self._process.poll() is None, self.output
        self.settle()

    def stop(self) -> None:
        """SIGTERM, then wait for the end; the exit status must be 0."""
        if self._process is None or self._process.poll() is not None:
            return
        self._pool.clear()  # a connection kept open would be waited for
        self._process.terminate()
        assert self._process.wait(timeout=STOP_S) == 0, self.output

    def stopped(self) -> None:
        """Wait for the end that somebody else asked for, as `loom stop` does; the exit status must be 0."""
        assert self._process is not None
        assert self._process.wait(timeout=STOP_S) == 0, self.output

    def kill_supervisor(self) -> None:
        """SIGKILL to `loom up` itself."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def kill(self, name: str) -> int:
        """SIGKILL to one of its processes; returns the pid it had."""
        pid = self.children[name]
        os.kill(pid, signal.SIGKILL)
        return pid

    def settle(self) -> None:
        """Wait until the heartbeat of every worker that `loom up` runs now has beaten."""

        def pids() -> set[int]:
            return {pid for name, pid in self.children.items() if name.startswith("worker-")}

        with self.redis() as client:
            until(lambda: len(pids()) == WORKERS and pids() <= beating(client), START_S, "all workers are alive")

    def redis(self) -> redis.Redis:
        """A client of the embedded server."""
        return redis.Redis.from_url(embedded_url(self.home), decode_responses=True, socket_timeout=TURN_S)

    def is_ready(self) -> bool:
        try:
            return self.get("/readyz").status == 200
        except urllib3.exceptions.HTTPError:
            return False

    @property
    def state(self) -> Json:
        """What `loom up` writes into up.json."""
        state: Json = json.loads((self.home / "up.json").read_text())
        return state

    @property
    def children(self) -> dict[str, int]:
        """Name to pid."""
        children: dict[str, int] = self.state["children"]
        return children

    @property
    def output(self) -> str:
        """What `loom up` has printed so far, over all its starts."""
        return self._log.read_text() if self._log.exists() else ""

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A `loom` command beside the running system."""
        return subprocess.run(
            loom(*arguments), env=self.environ, capture_output=True, text=True, timeout=TURN_S, check=False
        )

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """A `loom` command that is not waited for; its output is kept."""
        return subprocess.Popen(
            loom(*arguments), env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self._ask("GET", path, None, headers)

    def post(self, path: str, body: Json | None = None, headers: Mapping[str, str] | None = None) -> Answer:
        return self._ask("POST", path, {} if body is None else body, headers)

    def patch(self, path: str, body: Json) -> Answer:
        return self._ask("PATCH", path, body, None)

    def delete(self, path: str) -> Answer:
        return self._ask("DELETE", path, None, None)

    def submit(self, session: str, text: str | list[Json], **fields: Any) -> str:
        """Post a turn; its id."""
        answer = self.post(f"/v1/sessions/{session}/turns", {"input": text, **fields})
        assert answer.status == 202, answer.text
        turn_id: str = answer.json["id"]
        return turn_id

    def turn(self, turn_id: str) -> Json:
        """The turn as it is now."""
        turn: Json = self.get(f"/v1/turns/{turn_id}").json
        return turn

    def ended(self, turn_id: str, timeout_s: float = TURN_S) -> Json:
        """The turn once it has a final status, by long polls."""

        def look() -> Json | None:
            turn: Json = self.get(f"/v1/turns/{turn_id}?wait=1").json
            return turn if turn["status"] in {"completed", "failed", "cancelled", "incomplete"} else None

        found = until(look, timeout_s, f"{turn_id} has ended")
        assert found is not None
        return found

    def messages(self, session: str) -> list[Json]:
        """All messages of a session, oldest first."""
        page = self.get(f"/v1/sessions/{session}/messages?limit=500").json
        assert not page["has_more"]
        messages: list[Json] = page["data"]
        return messages

    def events(self, turn_id: str, after: int = 0) -> Iterator[Told]:
        """The turn's events as they come, until the stream ends."""
        path = f"/v1/turns/{turn_id}/events"
        headers = {"Last-Event-ID": str(after)} if after else {}
        answer = self._pool.request("GET", self.url + path, headers=headers, timeout=TURN_S, preload_content=False)
        assert answer.status == 200
        try:
            yield from told(line.decode().rstrip("\n") for line in answer)
        finally:
            answer.close()

    def rows(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        """Rows of Loom's database, read past the API."""
        if (url := self.environ.get("LOOM_DATABASE_URL", "")).startswith("postgresql:"):
            return store_postgres.rows(url, query, *values)
        return rows(self.home / "loom.db", query, *values)

    def holder(self, turn_id: str) -> str | None:
        """The name of the process that runs a turn now, None if none does."""
        found = self.rows("SELECT held_by FROM turns WHERE id = ?", turn_id)
        return self._child_of(found[0][0] if found else None)

    def tool_worker(self, turn_id: str) -> str | None:
        """The name of the process that runs a tool call of this turn now, None if none does."""
        query = "SELECT worker FROM calls WHERE turn_id = ? AND status = 'running'"
        found = self.rows(query, turn_id)
        return self._child_of(found[0][0] if found else None)

    def _child_of(self, worker: str | None) -> str | None:
        """The child that has this worker's pid."""
        if worker is None:
            return None
        pid = pid_of(worker)
        return next((name for name, child in self.children.items() if child == pid), None)

    def _ask(self, method: str, path: str, body: Json | None, headers: Mapping[str, str] | None) -> Answer:
        key = {"Authorization": f"Bearer {self.environ['LOOM_KEY']}"} if "LOOM_KEY" in self.environ else {}
        shown = {**key, **(headers or {})}
        answer = self._pool.request(method, self.url + path, json=body, headers=shown, timeout=TURN_S)
        return Answer(answer.status, answer.headers, answer.data)

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _kill_all(self) -> None:
        """Whatever the test found out, nothing of ours stays."""
        if self._process is not None and self._process.poll() is None:
            self.kill_supervisor()
        for pid in leftovers(self.home):
            kill(pid)


def plain_agent(folder: Path, name: str = "default") -> str:
    """A folder with an agent that has no patterns."""
    folder.mkdir()
    (folder / "agent.yaml").write_text(PLAIN.format(name=name))
    return str(folder)


def loom(*arguments: str) -> list[str]:
    """The command line of a `loom` command of this installation."""
    return [sys.executable, str(Path(sys.executable).with_name("loom")), *arguments]


def told(lines: Iterator[str]) -> Iterator[Told]:
    """Events out of the lines of a server-sent stream."""
    fields: dict[str, str] = {}
    for line in lines:
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
        elif not line and "event" in fields:
            yield Told(int(fields["id"]), fields["event"], json.loads(fields["data"]))
            fields = {}


def spoken(events: list[Told]) -> str:
    """The answer as a reader has it at the end, who drops what came before a retry, and commentary."""
    text = ""
    for event in events:
        if event.type in ("turn.retrying", "output_text.commentary"):
            text = ""
        elif event.type == "output_text.delta":
            text += event.data["text"]
    return text


def pid_of(worker: str) -> int:
    """The pid in a worker's name, <host>-<pid>-<chance>."""
    return int(worker.rsplit("-", 2)[1])


def beating(client: redis.Redis) -> set[int]:
    """The pids of all workers that were alive within the last day."""
    names: Any = client.zrange(keys.WORKERS, 0, -1)
    return {pid_of(name) for name in names}


def rows(path: Path, query: str, *values: str) -> list[tuple[Any, ...]]:
    """Rows of a SQLite file that another process writes."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as connection:
        return connection.execute(query, values).fetchall()


def leftovers(home: Path) -> dict[int, str]:
    """Pid to command line of every process with this LOOM_HOME in its environment, and of its Valkey.

    Valkey writes its title over its environment; the title names the socket.
    """
    mark, title = f"LOOM_HOME={home}".encode(), f"unixsocket:{embedded_socket(home)}"
    return {pid: line for pid, line in _processes() if title in line or mark in _read(pid, "environ").split(b"\0")}


def alone(home: Path, turn_id: str) -> list[int]:
    """The processes that run this turn and nothing else, for its last attempt."""
    return [pid for pid, line in leftovers(home).items() if "runtime.isolated" in line and turn_id in line]


def kill(pid: int) -> None:
    """SIGKILL, to a process that may be gone."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _processes() -> Iterator[tuple[int, str]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            line = _read(int(folder.name), "cmdline").replace(b"\0", b" ").decode(errors="replace")
            yield int(folder.name), line


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
