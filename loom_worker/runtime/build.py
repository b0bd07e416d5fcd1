"""The one place that builds objects. Nothing is built, connected or imported before it is needed.

``service`` is what the web calls; ``start`` makes this process a worker, whose tasks then find their parts in
``tasks.worker``.
"""

import threading
from dataclasses import dataclass
from typing import Any

from celery import Celery

from loom_worker.agents.known import KnownAgents
from loom_worker.agents.load import LiveAgents
from loom_worker.agents.versions import RecordedAgents
from loom_worker.core import crash_points, redis_client
from loom_worker.core.monitor import Monitor
from loom_worker.core.settings import Settings
from loom_worker.core.stopping import Stopping
from loom_worker.demo.workflows import shipped_workflows
from loom_worker.events.log import EventLog
from loom_worker.events.turn_signals import RunNews, TurnSignals
from loom_worker.fronts.a2a.push import PUSH_BODIES
from loom_worker.lanes.lanes import Lanes
from loom_worker.lanes.lease_renewer import LeaseRenewer, LiveWorkers
from loom_worker.lanes.live_waits import LiveWaits
from loom_worker.lanes.slots import FreeSlots
from loom_worker.memory.compress import THREADS_PER_SESSION, Compressor
from loom_worker.memory.embed import MessageEmbedding
from loom_worker.runtime.components import Components, components
from loom_worker.runtime.sweeping import Links, process_name, redis_of, sweeper
from loom_worker.service.allowances import Terms
from loom_worker.service.announcer import Announcer
from loom_worker.service.context_report import ContextReport
from loom_worker.service.metrics import Figures, Health
from loom_worker.service.pattern_catalog import PatternCatalog
from loom_worker.service.schedules import Schedules, Starter
from loom_worker.service.service import Service, ServiceParts
from loom_worker.service.waiting.reports import WaitReports
from loom_worker.service.waiting.waiter import POOL_THREADS, TurnWaiter
from loom_worker.service.workflow_runs import WorkflowRuns
from loom_worker.store.agent_messages import AgentMessages
from loom_worker.store.agent_versions import AgentVersions
from loom_worker.store.budgets import Budgets
from loom_worker.store.calls import Calls
from loom_worker.store.children import Children
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.facts import Facts
from loom_worker.store.journal import Journal
from loom_worker.store.patterns import PatternUses
from loom_worker.store.run_journal import RunJournal
from loom_worker.store.turns import Turns, TurnStatuses
from loom_worker.store.vectors import MessageVectors
from loom_worker.store.verdicts import Verdicts
from loom_worker.tasks import worker
from loom_worker.tasks.app import app, configure
from loom_worker.tasks.dispatch import CeleryDispatcher, DirectPublisher, Publisher, WakeupQueue
from loom_worker.tasks.sweep import Sweeper
from loom_worker.tasks.task_events import TaskEvents
from loom_worker.tasks.worker import CeleryThreads, Worker
from loom_worker.trace.flush import Flusher, NoTraces
from loom_worker.trace.turn_spans import TurnTraces
from loom_worker.turn.waits import WaitTeller
from loom_worker.turn.worker import TurnWorker
from loom_worker.webhook.body import WebhookBodies
from loom_worker.webhook.deliver import Deliverer
from loom_worker.workflows.advance import RunAdvancer, StepTeller
from loom_worker.workflows.load import LiveWorkflows
from loom_worker.workflows.plan import Planner


@dataclass(frozen=True, slots=True)
class Process:
    """A worker process: its parts, and what must be ended when it ends."""

    worker: Worker
    components: Components
    database: Database
    sweeper: Sweeper
    flusher: Flusher | NoTraces

    def stop(self) -> None:
        """Flush and close what this process holds."""
        self.sweeper.stop()
        self.flusher.stop()
        self.worker.turns.renewer.stop()
        self.components.close()
        self.database.close()


def start(settings: Settings, *, takes_turns: bool = True, node: str = "") -> Process:
    """Make this process a worker; nothing runs before its keeper and sweeper are started."""
    process = _build(settings, takes_turns=takes_turns, node=node)
    worker.begin(process.worker)
    return process


def alone(settings: Settings, *, node: str = "") -> Process:
    """A process that runs one turn and nothing else; no thread of it is started."""
    return _build(settings, is_isolated=True, node=node)


def service(settings: Settings) -> Service:
    """What clients can ask."""
    crash_points.arm(settings.crash_points, settings.home / "crashes")
    celery = configure(settings)
    database = Database.of(settings, readers=settings.web.threads + POOL_THREADS)
    client = redis_of(settings)
    events = EventLog(redis_of(settings), settings.events)
    looks = redis_client.client(settings.redis_url, connections=2 * settings.web.threads, timeout_s=redis_client.LOOK_S)
    lanes = Lanes(client, settings.lanes)
    workflows = workflows_of(settings)
    agents = agents_of(settings, database, workflows)
    stopping = Stopping(settings.lanes.drain_s)
    fitted = components(settings, agents, database, client, process=process_name(), stopping=stopping)
    fitted.metrics.start()
    waits = WaitReports(Turns(database), LiveWaits(looks), agents)
    health = Health(database, looks, (settings.home, *(file.parent for file in database.engine.files)))
    announcer = _announcer(celery, client, lanes, events, Publisher())
    contexts = ContextReport.at(fitted.registry, fitted.knowledge, database)
    terms = Terms(settings, agents, contexts)
    runs = _workflow_runs(settings, database, (terms, agents, workflows), announcer, (events, lanes, waits))
    parts = ServiceParts(
        announcer=announcer,
        runs=runs,
        schedules=Schedules(database, settings.schedules, Starter(settings, database, runs, agents, announcer)),
        runtimes=fitted.registry,
        contexts=contexts,
        semantics=fitted.registry.embedders,
        patterns=_pattern_catalog(fitted, database, client),
        references=fitted.expiring.references,
        files=fitted.expiring.files,
        bodies=_bodies(settings),
        health=health,
        figures=Figures(health, fitted.breakers, waits, fitted.expiring.references, fitted.knowledge.library),
        components=fitted,
        rates=fitted.executor.rates,
    )
    return Service(
        settings,
        database=database,
        lanes=lanes,
        waiter=TurnWaiter(Turns(database), events, waits, TurnStatuses(database)),
        agents=agents,
        parts=parts,
    )


def _workflow_runs(
    settings: Settings,
    database: Database,
    defined: tuple[Terms, KnownAgents, LiveWorkflows],
    announcer: Announcer,
    signals: tuple[EventLog, Lanes, WaitReports],
) -> WorkflowRuns:
    terms, agents, workflows = defined
    events, lanes, waits = signals
    return WorkflowRuns(
        database,
        journal=_run_journal(settings, database, agents),
        workflows=workflows,
        agents=agents,
        announcer=announcer,
        terms=terms,
        events=events,
        lanes=lanes,
        traces=TurnTraces(database, settings.trace.shows_content),
        waits=waits,
    )


def _pattern_catalog(fitted: Components, database: Database, client: Any) -> PatternCatalog:
    return PatternCatalog(
        library=fitted.knowledge.library,
        uses=PatternUses(database),
        agents=fitted.registry,
        library_events=fitted.library_events,
        workers=LiveWorkers(client),
    )


def _announcer(
    celery: Celery, client: Any, lanes: Lanes, events: EventLog, publisher: Publisher | DirectPublisher
) -> Announcer:
    signals, wakeups = TurnSignals(client, lanes, events), WakeupQueue(celery, client)
    dispatcher = CeleryDispatcher(celery, wakeups)
    return Announcer(
        signals,
        lanes,
        events,
        wakeups=wakeups,
        dispatcher=dispatcher,
        publisher=publisher,
        steps=StepTeller(signals, RunNews(client), dispatcher),
    )


def _run_journal(settings: Settings, database: Database, agents: KnownAgents) -> RunJournal:
    is_exported = settings.trace.endpoint is not None
    planner = Planner(agents, _bodies(settings), is_exported)
    return RunJournal(database, settings.limits, planner, is_exported=is_exported)


def _run_advancer(
    settings: Settings, links: Links, agents: KnownAgents, signals: TurnSignals, monitor: Monitor
) -> RunAdvancer:
    teller = StepTeller(signals, RunNews(links.client), links.dispatcher)
    return RunAdvancer(_run_journal(settings, links.database, agents), teller, monitor=monitor)


def workflows_of(settings: Settings) -> LiveWorkflows:
    """The user's workflows, or those in the package."""
    return LiveWorkflows(settings.workflows_dir, shipped=shipped_workflows())


def agents_of(settings: Settings, database: Database, workflows: LiveWorkflows) -> KnownAgents:
    """All agents: those of files, each version of which is stored, and those of workflows."""
    live, versions = LiveAgents(settings.agents_dir), AgentVersions(database)
    return KnownAgents(RecordedAgents(live, versions, pins=settings.agent_pin == "session"), workflows)


def _build(settings: Settings, *, is_isolated: bool = False, takes_turns: bool = True, node: str) -> Process:
    links, events = Links.of(settings, node=node), TaskEvents()
    stopping = Stopping(settings.lanes.drain_s)
    workflows = workflows_of(settings)
    agents = agents_of(settings, links.database, workflows)
    fitted = components(
        settings, agents, links.database, links.client, process=links.name, stopping=stopping, waker=links
    )
    slots = FreeSlots(links.lanes, stopping, process=links.name, most_waiting=settings.worker_concurrency // 2)
    threads = CeleryThreads(settings.worker_concurrency, slots) if takes_turns else None
    traces = links.traces.flusher()
    signals = TurnSignals(links.client, links.lanes, links.events)
    turns = TurnWorker(
        settings=settings,
        name=links.name,
        claims=Claims(links.database, agents),
        journal=Journal(links.database),
        calls=Calls(links.database),
        verdicts=Verdicts(links.database),
        memories=links.memories,
        budgets=Budgets(links.database),
        lanes=links.lanes,
        slots=slots,
        signals=signals,
        renewer=LeaseRenewer(links.client, links.lanes, links.name, settings.lanes, threads=threads),
        events=links.events,
        dispatcher=links.dispatcher,
        runs=_run_advancer(settings, links, agents, signals, events),
        children=Children(links.database, settings.limits, is_exported=settings.trace.endpoint is not None),
        messages=AgentMessages(links.database),
        agents=fitted.registry,
        knowledge=fitted.knowledge,
        tools=fitted.executor,
        judges=fitted.judges,
        workers=LiveWorkers(links.client),
        waits=WaitTeller(LiveWaits(links.client)),
        bodies=_bodies(settings),
        stopping=stopping,
        traces=traces,
        content=fitted.content,
        monitor=events,
        is_isolated=is_isolated,
    )
    exporter = links.traces.exporter(process=links.name, stopping=stopping)
    deliverer = Deliverer(links.outbox, settings.webhook, events, traces)
    own = Worker(turns, deliverer, _compressor(turns, links, fitted), exporter, events)
    schedules = None if is_isolated else worker_schedules(settings, links, agents, workflows)
    return Process(own, fitted, links.database, sweeper(settings, links, fitted.expiring, schedules), traces)


def worker_schedules(settings: Settings, links: Links, agents: KnownAgents, workflows: LiveWorkflows) -> Schedules:
    """What a worker begins by itself."""
    announcer = _announcer(app, links.client, links.lanes, links.events, DirectPublisher())
    defined = (Terms(settings, agents), agents, workflows)
    waits = WaitReports(Turns(links.database), LiveWaits(links.client), agents)
    runs = _workflow_runs(settings, links.database, defined, announcer, (links.events, links.lanes, waits))
    return Schedules(links.database, settings.schedules, Starter(settings, links.database, runs, agents, announcer))


def _compressor(turns: TurnWorker, links: Links, fitted: Components) -> Compressor:
    return Compressor(
        worker=turns.name,
        memories=links.memories,
        facts=Facts(links.database),
        budgets=turns.budgets,
        agents=fitted.registry,
        workers=turns.workers,
        stopping=turns.stopping,
        embedding=MessageEmbedding(
            fitted.registry.embedders, MessageVectors(links.database), turns.budgets, turns.stopping
        ),
        slots=threading.Semaphore(max(1, turns.settings.worker_concurrency // THREADS_PER_SESSION)),
        traces=turns.traces,
        monitor=turns.monitor,
    )


def _bodies(settings: Settings) -> WebhookBodies:
    base_url = f"http://{settings.web.host}:{settings.web.port}"
    return WebhookBodies(base_url, others=PUSH_BODIES)
