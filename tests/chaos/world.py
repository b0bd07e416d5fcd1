"""A whole Loom in processes of its own, between a broker, a model provider and a webhook receiver that are ours too."""

import base64
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from loom_worker.agents import load as agent_files
from loom_worker.core.settings import from_env
from loom_worker.core.values.memory import MemoryPolicy
from loom_worker.store.prepare import prepare
from loom_worker.supervisor import valkey
from tests.chaos import agent_plan, equipment, panels, turned_clock, workflow_files
from tests.chaos.crew import Crew
from tests.chaos.records import Injection
from tests.chaos.store_server import POOLER, SERVER, StoreServer
from tests.support import system
from tests.support.until import until, within
from tests.support.webhook_receiver import unused_port

ROOT = Path(__file__).parents[2]
READY_S = 60.0
STOP_S = 60.0
ORPHAN_S = 1.0
"""For the child processes of a killed worker to be gone."""
MOST_STARTS = 3
"""Deaths of one process before its world is given up, while nothing is done to it."""
SECRET = "whsec_" + base64.b64encode(b"a secret of the fault injection.").decode()
WINDOW_TOKENS = 7_200
"""Of the model; small, so that long sessions do not fit."""
RESERVED_TOKENS = 1_000
HOOK_ARGUMENTS = ("--skew-s", "4000")
"""A worker whose clock is an hour ahead signs with its own time."""
DISK = "size=192m"
"""Of the home's file system where it can be filled."""

KEPT = ("keeper", "broker", "proxy", "model", "receiver", "collector", SERVER, POOLER)
"""Processes that outlive Loom's."""
LATE = "turns-late"
"""Workers whose clock is turned."""

AGENT = """
apiVersion: loom/v1
kind: Agent
metadata: {name: NAME}
spec:
  system_prompt: SYSTEM
  llm: {fallbacks: FALLBACKS}
  backend: false
  tools: {builtin: [pause, die], custom: [user_tools.py]}
  config: {patterns: {enabled: false}}
  memory:
    memory_compression:
"""

SHORT_MEMORY = """
      max_l1_messages: 4
      min_l1_messages: 2
      max_l2_tokens: 240
  sessions: {memory: {compaction: {batch_size: 12}, embeddings: {enabled: true, model: scripted/hash}}}
"""
"""Small enough that a session of a few turns is compressed, and one of some more has snapshots and summaries by date;
all that is said gets vectors."""
FULL_MEMORY = """
      max_l1_messages: 100000
      min_l1_messages: 100000
"""
"""Nothing is ever compressed, so that long sessions do not fit the window."""


@dataclass(frozen=True)
class Plan:
    """What a world is made of."""

    seed: int = 1
    turn_workers: int = 2
    tool_workers: int = 1
    keeps_broker_data: bool = True
    """The broker writes an append-only file; False: it forgets all when it dies."""
    has_small_disk: bool = False
    """The home is a file system of its own that can be filled, where the system lets us mount one."""
    mutant: str = ""
    model: tuple[str, ...] = ()
    """More arguments of the model server."""
    environ: dict[str, str] = field(default_factory=dict)
    """LOOM_* variables beside the usual ones."""
    fallbacks: tuple[str, ...] = ()
    """Models that are asked where the first one cannot answer; the first of them judges, too."""
    is_on_server: bool = False
    """The store is a PostgreSQL behind a pooler; when all is over, its rows are moved to the home's loom.db."""
    memory: str = SHORT_MEMORY
    """How the agent's sessions are compressed, as its file says it."""


class World:
    """For ``with``; workers are started by ``start_workers``, everything else at once."""

    def __init__(self, plan: Plan, folder: Path | None = None) -> None:
        """Args: folder: of all files; a temporary one, left where it is by ``keep``, unless given."""
        self.plan = plan
        self.folder = folder or Path(tempfile.mkdtemp(prefix="loom-chaos-"))
        self.home, self.logs = self.folder / "home", self.folder / "logs"
        self.effects = self.folder / "effects.jsonl"
        self.model_log, self.hook_log = self.folder / "model.jsonl", self.folder / "hooks.jsonl"
        self.injections: list[Injection] = []
        self.left_out: list[str] = []
        self.port, self.model_port, self.hook_port, self.trace_port = (unused_port() for _ in range(4))
        self.trace_log = self.folder / "traces.jsonl"
        self.most_trace_messages = 0
        self.has_own_disk = False
        self.server = StoreServer() if plan.is_on_server else None
        self.crew = Crew(self.logs, self._environ())

    @property
    def url(self) -> str:
        """Of the HTTP API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def hook_url(self) -> str:
        """Of the receiver."""
        return f"http://127.0.0.1:{self.hook_port}"

    @property
    def budget_tokens(self) -> int:
        """Input tokens a request may have."""
        return WINDOW_TOKENS - RESERVED_TOKENS

    @property
    def memory(self) -> MemoryPolicy:
        """The rules by which sessions are remembered."""
        return agent_files.load(self.folder / "agents").agents["default"].memory

    @property
    def agent_budgets(self) -> Mapping[str, dict[str, Any]]:
        """Budgets of its agents."""
        agents = agent_files.load(self.folder / "agents").agents
        return {name: agent.budget for name, agent in agents.items() if agent.budget}

    @property
    def turn_workers(self) -> tuple[str, ...]:
        """Names of those that run turns."""
        return tuple(name for name in self.crew.names if name.startswith("turns-"))

    @property
    def workers(self) -> tuple[str, ...]:
        """Names of all workers."""
        return (*self.turn_workers, *(name for name in self.crew.names if name.startswith("tools-")))

    @property
    def loom_names(self) -> tuple[str, ...]:
        """All processes that are Loom's own."""
        return (*self.workers, *(name for name in self.crew.names if name in ("web", "beat")))

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start_workers(self, **environ: str) -> None:
        """Have them run, and wait until each one's heart beats."""
        for n in range(self.plan.turn_workers):
            self.start_worker(f"turns-{n + 1}", "turn,judge,workflow", **environ)
        for n in range(self.plan.tool_workers):
            self.start_worker(f"tools-{n + 1}", "tool,webhook,summary,trace", **environ)
        until(lambda: self.all_beat() or self._cannot_start(), READY_S, "all workers are alive")

    def start_worker(self, name: str, queues: str, **environ: str) -> None:
        """One worker more."""
        self._start_loom(name, "worker", "--queues", queues, "--name", name, **environ)

    def _cannot_start(self) -> bool:
        """Raise if a process dies over and over before anything was done to it."""
        names = [ended.name for ended in self.crew.ended]
        for name in {name for name in names if names.count(name) >= MOST_STARTS}:
            tail = (self.logs / f"{name}.log").read_text()[-2000:]
            raise RuntimeError(f"{name} cannot start, see {self.logs}:\n{tail}")
        return False

    def start_late_worker(self, name: str, faketime: Path) -> None:
        """One whose clock is an hour ahead; it cannot be forked, for a library must be loaded before it.

        Args:
            faketime: path of that library.
        """
        arguments = ("worker", "--queues", "turn,judge,workflow,tool,webhook,summary,trace", "--name", name)
        command = (sys.executable, "-m", "tests.chaos.process", *arguments)
        self.crew.start(name, command, is_loom=False, environ=turned_clock.environ(faketime, ROOT))

    def all_beat(self) -> bool:
        """True once the heart of every worker that runs has beaten."""
        with self.redis() as client:
            pids = {self.crew.pid(name) for name in self.workers}
            return 0 not in pids and pids <= system.beating(client)

    def redis(self) -> "redis.Redis":
        """A client of the broker itself, past the proxy."""
        return redis.Redis(unix_socket_path=str(self.folder / "broker"), decode_responses=True, socket_timeout=5)

    def rows(self, query: str, *values: str) -> list[tuple[object, ...]]:
        """Rows of Loom's database."""
        if self.server is not None:
            return self.server.rows(query, *values)
        return system.rows(self.home / "loom.db", query, *values)

    def hold_of(self, name: str) -> list[tuple[object, ...]]:
        """(turn id, fence) of the unfinished turns that a process holds, as the database knows it."""
        query = "SELECT id, fence FROM turns WHERE held_by LIKE ?"
        return self.rows(query, f"%-{self.crew.pid(name)}-%")

    def set_receiver(self, mode: str) -> None:
        """How the webhook receiver answers all from now on; empty: as each webhook's path says."""
        _set_mode(self.hook_port, mode)

    def set_collector(self, mode: str) -> None:
        """How the collector of traces answers from now on; empty: it takes what comes."""
        _set_mode(self.trace_port, mode)

    def stop(self) -> tuple[str, ...]:
        """End Loom by SIGTERM; what did not end, and what is left of it."""
        late = self.crew.finish(self.loom_names, STOP_S)
        kept = {self.crew.pid(name) for name in KEPT}

        def left() -> dict[int, str]:
            return {pid: line for pid, line in system.leftovers(self.home).items() if pid not in kept}

        within(lambda: not left(), ORPHAN_S)  # a child whose worker was killed just now is on its way out
        if self.server is not None:
            until(self.server.answers, READY_S, "the database answers")
            self.server.move_to(self.home / "loom.db", self._environ())
        return (
            *(f"{name} did not end within {STOP_S:g} s of SIGTERM" for name in late),
            *(f"process {pid} is left: {line}" for pid, line in left().items()),
        )

    def close(self) -> None:
        """End everything."""
        self.crew.close()
        if self.server is not None:
            self.server.close()
        if self.has_own_disk:
            shutil.copytree(self.home, self.folder / "home-kept", ignore=_sockets, dirs_exist_ok=True)
            subprocess.run(["umount", "--lazy", str(self.home)], check=False)
            shutil.rmtree(self.home, ignore_errors=True)
            (self.folder / "home-kept").rename(self.home)
            self.has_own_disk = False

    def _start(self) -> None:
        self.logs.mkdir(parents=True)
        self.home.mkdir(mode=0o700)
        self.effects.touch()  # tools cannot make it: it lies beside the home
        self.has_own_disk = self.plan.has_small_disk and _mount(self.home)
        (self.folder / "agents").mkdir()
        shutil.copy(Path(__file__).with_name("user_tools.py"), self.folder / "agents")
        for name, more in (("default", ""), (panels.JUDGED, panels.AGENT)):
            self._write_agent(name, "Answer what you are asked.", self.plan.memory + more)
        for name in workflow_files.AGENTS:
            self._write_agent(name, f'"You are @{name}."', FULL_MEMORY)
        for name, more in agent_plan.agent_files().items():
            self._write_agent(name, f'"You are @{name}."', FULL_MEMORY + more)
        workflow_files.write(self.folder / "workflows")
        self.crew.open()
        self._start_servers()
        prepare(from_env(self._environ()))
        self._start_loom("web", "web")
        self._start_loom("beat", "beat")
        until(lambda: self._web_answers() or self._cannot_start(), READY_S, "the web answers")

    def _write_agent(self, name: str, system: str, more: str) -> None:
        text = AGENT.replace("NAME", name).replace("SYSTEM", system) + more
        text = text.replace("FALLBACKS", json.dumps(self.plan.fallbacks))
        text = text.replace("JUDGE", next(iter(self.plan.fallbacks), "claude-haiku-4-5"))
        (self.folder / "agents" / f"{name}.yaml").write_text(text)

    def _start_servers(self) -> None:
        data = self.home / "valkey"
        valkey.make_room(self.folder / "broker", data)
        command = list(valkey.argv(valkey.find_binary(), socket_path=self.folder / "broker", data_dir=data))
        if not self.plan.keeps_broker_data:
            command[command.index("--appendonly") + 1] = "no"
        self._start_server("broker", *command)
        for name, argv in self.server.commands if self.server else ():
            self._start_server(name, *argv)
        self._start_module("proxy", str(self.folder / "proxy"), str(self.folder / "broker"))
        common = ("--seed", str(self.plan.seed))
        model = ("--port", str(self.model_port), "--log", str(self.model_log), *common, *self.plan.model)
        hooks = (
            "--port",
            str(self.hook_port),
            "--log",
            str(self.hook_log),
            "--secret",
            SECRET,
            *common,
            *HOOK_ARGUMENTS,
        )
        self._start_module("model_server", *model, name="model")
        self._start_module("receiver", *hooks)
        self._start_module("collector", "--port", str(self.trace_port), "--log", str(self.trace_log))
        until(self._broker_answers, READY_S, "the broker answers")
        if self.server is not None:
            until(self.server.answers, READY_S, "the database answers")

    def _start_module(self, module: str, *arguments: str, name: str = "") -> None:
        self._start_server(name or module, sys.executable, "-m", f"tests.chaos.{module}", *arguments)

    def _start_server(self, name: str, *argv: str) -> None:
        self.crew.start(name, argv, is_loom=False)

    def _start_loom(self, name: str, *arguments: str, **environ: str) -> None:
        mutant = ("--mutant", self.plan.mutant) if self.plan.mutant else ()
        self.crew.start(name, (*mutant, *arguments), is_loom=True, environ=environ)

    def _broker_answers(self) -> bool:
        try:
            with self.redis() as client:
                return bool(client.ping()) and (self.folder / "proxy").exists()
        except redis.RedisError:
            return False

    def _web_answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _environ(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "LOOM_HOME": str(self.home),
            "LOOM_PORT": str(self.port),
            "LOOM_REDIS_URL": f"unix://{self.folder / 'proxy'}",
            "LOOM_AGENTS_DIR": str(self.folder / "agents"),
            "LOOM_WORKFLOWS_DIR": str(self.folder / "workflows"),
            # Promised for the death of any process; power is not cut here, and fsync would only slow the run down.
            "LOOM_SQLITE_SYNC": "normal",
            "LOOM_MAX_CONTEXT_TOKENS": str(WINDOW_TOKENS),
            "LOOM_RESERVED_OUTPUT_TOKENS": str(RESERVED_TOKENS),
            "LOOM_LLM_TIMEOUT_S": "6",
            "LOOM_WORKER_CONCURRENCY": "8",
            "LOOM_WEBHOOK_SECRET": SECRET,
            "LOOM_AGENT_REFERENCE_BYTES": str(agent_plan.REFERENCE_BYTES),
            "LOOM_ALLOW_PRIVATE_WEBHOOKS": "1",
            "LOOM_WEBHOOK_TIMEOUT_S": "2",
            "LOOM_TRACE_ENDPOINT": f"http://127.0.0.1:{self.trace_port}",
            "LOOM_LOG_FORMAT": "json",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self.model_port}",
            "ANTHROPIC_API_KEY": "none",
            "OPENAI_BASE_URL": f"http://127.0.0.1:{self.model_port}/v1",
            "OPENAI_API_KEY": "none",
            equipment.EFFECTS: str(self.effects),
            "LOOM_TOOL_ENV": equipment.EFFECTS,
            **(self.server.environ if self.server else {}),
            **self.plan.environ,
        }


def _set_mode(port: int, mode: str) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        connection.request("POST", f"/mode/{mode}", b"")
        connection.getresponse().read()


def _mount(folder: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"{DISK},mode=700", "tmpfs", str(folder)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _sockets(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if Path(folder, name).is_socket()}
