"""The real service on a real database and a real Valkey; only workers, models and Celery are played."""

import http.client
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import redis
from flask import Flask
from sqlalchemy import Connection, func, insert, select
from werkzeug.routing import Rule

from loom_worker.agents.load import Agents
from loom_worker.core.errors import Unavailable
from loom_worker.core.settings_tree import LaneSettings, Settings, WebSettings
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.values.agents import Agent, Backend
from loom_worker.core.values.chat import Frame, ToolUse
from loom_worker.core.values.ids import new_id
from loom_worker.core.values.json import Json
from loom_worker.core.values.sessions import Choice
from loom_worker.core.values.tools import Tool
from loom_worker.core.values.turns import Claim
from loom_worker.core.values.workflows import Workflow
from loom_worker.events.log import EventLog
from loom_worker.events.turn_signals import RunNews, TurnSignals
from loom_worker.guard.limits import Breakers, RateLimiter
from loom_worker.lanes.lanes import Lanes
from loom_worker.lanes.lease_renewer import LeaseRenewer, LiveWorkers
from loom_worker.lanes.live_waits import LiveWaits
from loom_worker.lanes.readiness import Threads
from loom_worker.memory.pressure import l1_room
from loom_worker.memory.results import Sizes
from loom_worker.patterns.events import LibraryEvents
from loom_worker.patterns.live import LiveLibrary
from loom_worker.service.allowances import Terms
from loom_worker.service.announcer import Announcer
from loom_worker.service.context_report import ContextReport
from loom_worker.service.metrics import Figures, Health
from loom_worker.service.pattern_catalog import PatternCatalog
from loom_worker.service.schedules import Schedules, Starter
from loom_worker.service.service import Service, ServiceParts
from loom_worker.service.waiting.reports import WaitReports
from loom_worker.service.waiting.waiter import TurnWaiter
from loom_worker.service.workflow_runs import WorkflowRuns
from loom_worker.store.blobs import BlobRows
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE, Lock
from loom_worker.store.patterns import PatternUses
from loom_worker.store.schema import sessions, turns
from loom_worker.store.tables import memory_snapshots
from loom_worker.store.turns import Turns, TurnStatuses
from loom_worker.tools.files import Files
from loom_worker.tools.references import References, stores
from loom_worker.tools.registry import Registry
from loom_worker.trace.turn_spans import TurnTraces
from loom_worker.turn.agent_runtime import AgentRuntime
from loom_worker.webhook.body import WebhookBodies
from loom_worker.workflows.advance import StepTeller
from loom_worker.workflows.load import Workflows, load
from tests.support.callers import a_tool
from tests.support.models import Plays
from tests.support.played_worker import PlayedWorker
from tests.support.runs import run_journal
from tests.support.stage import Book, ByWords, StageKnowledge
from tests.support.until import until
from web.serve import HttpServer

Submit = Callable[..., dict[str, Any]]

NOTHING: Json = {"type": "object", "properties": {}}
AMOUNT: Json = {
    "type": "object",
    "properties": {"amount": {"type": "number"}},
    "required": ["amount"],
    "additionalProperties": False,
}
TOOLS = (a_tool("clock", "Tells the time", NOTHING), a_tool("dice", "Rolls", NOTHING), a_tool("pay", "Pays", AMOUNT))
AGENT = Agent(
    "default",
    description="Answers",
    raw={"secret": "raw"},
    backend=Backend(url="db://user:pass@host", databases=("north", "south")),
)
BUDGET_TOKENS = 10_000
"""Of the agent's window."""


class KnownRule(Rule):
    """Has what was compiled for the same path of an earlier application.

    Compiling it anew takes most of the time in which an application is made.
    """

    _compiled: ClassVar[dict[str, Any]] = {}

    def compile(self) -> None:
        known = self._compiled.get(self.rule)
        if known is None:
            before = dict(vars(self))
            super().compile()
            known = {name: value for name, value in vars(self).items() if before.get(name, self) is not value}
            self._compiled[self.rule] = {**known, "arguments": self.arguments}
        vars(self).update(self._compiled[self.rule])


Flask.url_rule_class = KnownRule


class BreakableDatabase(Database):
    """The real one; while ``is_down``, nothing can be read or written."""

    is_down = False

    def begin_again(self, template: Path) -> None:
        """Hold what the template holds; compiling the statements anew for every test would cost 50 ms."""
        self.is_down = False
        with closing(sqlite3.connect(template)) as source, closing(sqlite3.connect(self.engine.files[0])) as target:
            target.execute("PRAGMA synchronous=OFF")  # nobody needs it after a power cut
            source.backup(target)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        self._require_up()
        with super().read() as tx:
            yield tx

    @contextmanager
    def write(self, *, lock: Lock, durable: bool = False, is_timed: bool = True) -> Iterator[Connection]:
        self._require_up()
        with super().write(lock=lock, durable=durable, is_timed=is_timed) as tx:
            yield tx

    def probe(self) -> None:
        self._require_up()
        super().probe()

    def _require_up(self) -> None:
        if self.is_down:
            raise Unavailable("the database does not answer")


class CountedWaiter(TurnWaiter):
    """The real one; tests wait until so many wait on it."""

    def await_waiters(self, count: int, *, within_s: float = 60.0) -> bool:
        """Block until so many waits and streams are open; fails if that does not come about."""
        until(lambda: self.count == count, within_s, f"{count} wait")
        return True


@dataclass(frozen=True)
class StageAgents:
    """Agent runtimes that differ in nothing but their agent; four characters are a token."""

    agents: Mapping[str, Agent]
    known_tools: Sequence[Tool] = TOOLS

    def runtime(self, name: str, choice: Choice | None = None, workspace: str | None = None) -> AgentRuntime:
        registry, agent = Registry(self.known_tools), self.agents[name]
        return AgentRuntime(
            agent=agent,
            model=Plays(),
            sizes=Sizes(lambda text: (len(text) + 3) // 4),
            registry=registry,
            specs=registry.specs(agent.tools),
            allowed=agent.tools,
            typical=1.0,
            frame=Frame(tools=0),
            schema="",
            input_budget_tokens=BUDGET_TOKENS,
            l1=l1_room(BUDGET_TOKENS, policy=agent.memory, most_tokens=BUDGET_TOKENS),
            max_tokens=1000,
        )

    def window(self, _name: str) -> tuple[int, int]:
        return BUDGET_TOKENS + 1000, 1000

    def tools(self, _name: str, _version: str | None = None, workspace: str | None = None) -> tuple[Tool, ...]:
        return tuple(self.known_tools)

    def kinds(self, _name: str) -> frozenset[str]:
        return frozenset({"sql"})

    def keeping(self, claim: Claim) -> Claim:
        return claim

    def prepared(self, name: str, use: ToolUse, _version: str | None = None) -> tuple[Json, str | None]:
        found = self.runtime(name).prepared(use)
        return found.arguments, found.error


class AtOnce:
    """A publisher that sends before it returns."""

    def put(self, action: Callable[[], object]) -> None:
        action()

    def close(self) -> None:
        pass


@dataclass
class Closed:
    """What is closed with the service."""

    count: int = 0

    def close(self) -> None:
        self.count += 1


@dataclass
class StageWorkflows:
    """Workflows that a test has made, and those in the files of a folder, which are read anew each time."""

    made: Mapping[str, Workflow]
    folder: Path

    def current(self, _wanted: str | None = None) -> Workflows:
        found = load(self.folder)
        return replace(found, workflows={**found.workflows, **self.made})


class WebStage:
    """A service, and what makes its turns go on."""

    def __init__(
        self,
        settings: Settings,
        database: BreakableDatabase,
        client: redis.Redis,
        agents: Sequence[Agent] = (AGENT,),
        tools: Sequence[Tool] = TOOLS,
    ) -> None:
        self.database, self.redis = database, client
        self.events = EventLog(client)
        self.book = Book()
        self.patterns: Path = settings.home / "patterns"
        """The folder of the library; empty unless a test writes files there before it is first read."""
        self.patterns.mkdir(exist_ok=True)
        known = Agents({agent.name: agent for agent in agents}, ())
        waits = WaitReports(Turns(database), LiveWaits(client), known)
        self.waiter = CountedWaiter(Turns(database), self.events, waits, TurnStatuses(database))
        self.components = Closed()
        self.worker = PlayedWorker(database, self.events)
        self.lanes = Lanes(client, settings.lanes)
        sent: Any = self.book
        at_once: Any = AtOnce()
        runtimes = StageAgents(known.agents, tools)
        library_events = LibraryEvents(client, process="web")
        library = LiveLibrary(self.patterns)
        uses = PatternUses(database)
        blobs = replace(settings.blobs, folder=settings.home / "blobs")
        raw = redis.Redis(unix_socket_path=client.connection_pool.connection_kwargs["path"])
        references = References(stores(blobs, BlobRows(database), raw), blobs)
        files = Files.of(settings, database, references)
        signals = TurnSignals(client, self.lanes, self.events)
        announcer = Announcer(
            signals,
            self.lanes,
            self.events,
            wakeups=sent,
            dispatcher=sent,
            publisher=at_once,
            steps=StepTeller(signals, RunNews(client), sent),
        )
        self.workflows: dict[str, Workflow] = {}
        """By name; what tests put here is there at once."""
        self.workflow_files: Path = settings.home / "workflows"
        """The folder of their files."""
        self.workflow_files.mkdir(exist_ok=True)
        self.run_journal = run_journal(database, settings.limits, known.agents)
        live: Any = StageWorkflows(self.workflows, self.workflow_files)
        contexts = ContextReport.at(runtimes, StageKnowledge(), database)
        runs = WorkflowRuns(
            database,
            journal=self.run_journal,
            workflows=live,
            agents=known,
            announcer=announcer,
            terms=Terms(settings, known, contexts),
            events=self.events,
            lanes=self.lanes,
            traces=TurnTraces(database, settings.trace.shows_content),
            waits=waits,
        )
        parts = ServiceParts(
            announcer=announcer,
            runs=runs,
            schedules=Schedules(database, settings.schedules, Starter(settings, database, runs, known, announcer)),
            runtimes=runtimes,
            contexts=contexts,
            semantics=ByWords(),
            patterns=PatternCatalog(
                library=library,
                uses=uses,
                agents=runtimes,
                library_events=library_events,
                workers=LiveWorkers(client),
            ),
            references=references,
            files=files,
            bodies=WebhookBodies("http://loom"),
            health=Health(database, client),
            figures=Figures(Health(database, client), Breakers(client), waits, references, library),
            components=self.components,
            rates=RateLimiter(client),
        )
        self.service = Service(
            settings, database=database, lanes=self.lanes, waiter=self.waiter, agents=known, parts=parts
        )

    def bring_worker(self) -> None:
        """Let a worker that takes turns be alive."""
        LeaseRenewer(self.redis, self.lanes, "w1", LaneSettings(), threads=Threads(1)).renew()

    def keep_snapshots(self, session_id: str, *contents: str) -> list[str]:
        """Store former summaries of a session, the oldest first; their ids."""
        lane = self.service.sessions.get("default", session_id).lane
        ids = sorted(new_id("snap_") for _ in contents)
        rows = [
            {"id": snapshot_id, "lane": lane, "session_id": session_id, "snapshot_type": "l2", "content": content}
            | {"token_count": 90, "from_n": 0, "to_n": 0, "created_ms": 0}
            for snapshot_id, content in zip(ids, contents, strict=True)
        ]
        with self.database.write(lock=WHOLE) as tx:
            tx.execute(insert(memory_snapshots), rows)
        return ids

    def count(self) -> int:
        """How many sessions and turns are stored."""
        with self.database.read() as tx:
            return sum(tx.execute(select(func.count()).select_from(table)).scalar_one() for table in (sessions, turns))


MakeStage = Callable[..., WebStage]
"""Makes a stage with these settings of the web; ``agents`` and ``tools`` in place of the usual ones."""


@contextmanager
def stages(settings: Settings, client: redis.Redis, database: BreakableDatabase | None = None) -> Iterator[MakeStage]:
    """Makes stages over one database, and closes it in the end unless it was given."""
    used = database or BreakableDatabase.of(settings)

    def make(agents: Sequence[Agent] = (AGENT,), tools: Sequence[Tool] = TOOLS, **web: Any) -> WebStage:
        served = replace(settings, web=WebSettings(**{"port": 0, "threads": 8, "max_waiting": 6, **web}))
        made = WebStage(served, used, client, agents, tools)
        closed.enter_context(closing(made.waiter))
        closed.enter_context(closing(made.service.runs.waiter))
        return made

    with ExitStack() as closed:
        yield make
    if database is None:
        used.close()


def set_lane_depth(service: Service, most: int) -> None:
    """Let a session's lane hold so many turns."""
    service.settings = replace(service.settings, limits=replace(service.settings.limits, lane_depth=most))


@dataclass
class Live:
    """A real server on loopback and what keeps it."""

    server: HttpServer

    @property
    def port(self) -> int:
        return self.server.port

    def asked(self, method: str, path: str, body: Json | None = None, **headers: str) -> http.client.HTTPConnection:
        """A connection on which this was asked; whether it is answered yet or not."""
        made = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            given["Content-Type"] = "application/json"
        made.request(method, path, None if body is None else json.dumps(body), given)
        return made


def answered(asked: http.client.HTTPConnection) -> tuple[int, Any, http.client.HTTPMessage]:
    """The answer to what was asked: its status, its JSON and its headers."""
    with closing(asked):
        answer = asked.getresponse()
        return answer.status, json.loads(answer.read()), answer.headers
