"""The one place that builds objects. Nothing is built, connected or imported before it is needed.

``front`` is what the web talks to; ``start`` makes this process a worker, whose tasks then find their parts in
``tasks.worker``.
"""

import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from loom_worker.agents.live import LiveAgents
from loom_worker.core import crash_points, redis_client
from loom_worker.core.errors import LoomError
from loom_worker.core.isolation import process_env
from loom_worker.core.settings import Settings
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.patterns import PatternMatch
from loom_worker.core.values.turns import Turn
from loom_worker.events.log import MAX_BLOCK_MS, EventLog
from loom_worker.events.rebuild import queued
from loom_worker.lanes import dropped, readiness
from loom_worker.lanes.lanes import Lanes
from loom_worker.lanes.lease_renewer import LeaseRenewer, alive_workers
from loom_worker.lanes.live_waits import LiveWaits
from loom_worker.memory.compress import AT_ONCE, Desk
from loom_worker.runtime.components import Components, components
from loom_worker.runtime.context_report import ContextReport, means
from loom_worker.service.outward import Outward
from loom_worker.service.pattern_catalog import PatternCatalog
from loom_worker.service.service import Front
from loom_worker.service.turn_waiter import Following
from loom_worker.service.wait_reports import Waits
from loom_worker.store import counters as store_figures
from loom_worker.store.calls import Calls
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.journal import Journal
from loom_worker.store.memory import Memories
from loom_worker.store.outbox import Outbox
from loom_worker.store.reading import Turns
from loom_worker.store.sessions import Sessions
from loom_worker.tasks import worker
from loom_worker.tasks.app import configure
from loom_worker.tasks.dispatch import Publisher, dispatcher, send
from loom_worker.tasks.sweep import Sweep, Sweeper
from loom_worker.tasks.threads import busy
from loom_worker.tasks.wakeups import WakeupQueue
from loom_worker.tasks.worker import Worker
from loom_worker.turn.model_watch import WaitTeller
from loom_worker.turn.runtime import TurnWorker
from loom_worker.turn.store_retry import Stopping
from loom_worker.webhook.body import completed
from loom_worker.webhook.deliver import Deliverer


@dataclass(frozen=True, slots=True)
class Process:
    """A worker process: its parts, and what must be ended when it ends."""

    worker: Worker
    components: Components
    database: Database
    sweeper: Sweeper

    def stop(self) -> None:
        """Flush and close what this process holds."""
        self.sweeper.stop()
        self.worker.turns.keeper.stop()
        self.components.close()
        self.database.close()


def start(settings: Settings, *, takes_turns: bool = True) -> Process:
    """Make this process a worker; nothing runs before its keeper and sweeper are started."""
    process = _build(settings, takes_turns=takes_turns)
    worker.begin(process.worker)
    return process


def alone(settings: Settings) -> TurnWorker:
    """The parts of a process that runs one turn and nothing else."""
    return _build(settings, is_isolated=True).worker.turns


def front(settings: Settings) -> Front:
    """What clients can ask."""
    crash_points.arm(settings.crash_points, settings.home / "crashes")
    app = configure(settings)
    database = Database(settings.database_url, sync=settings.sqlite_sync, readers=settings.web.threads)
    client, events = _redis(settings), _events(settings)
    lanes = Lanes(client, settings.lanes)
    publisher = Publisher()
    agents = LiveAgents(settings.agents_dir)
    stopping = Stopping(settings.lanes.drain_s)
    fitted = components(settings, agents, database, client, process=_process_name(), stopping=stopping)
    context_report = ContextReport(
        fitted.registry, fitted.knowledge, Sessions(database), Turns(database), Memories(database)
    )
    wakeups = WakeupQueue(app, client)
    waits = Waits(Turns(database), LiveWaits(client), agents)

    def announce(turn: Turn) -> None:
        publisher.put(lambda: _announce(turn, lanes, events, wakeups))

    def close() -> None:
        publisher.close()
        fitted.close()

    outward = Outward(
        announce=announce,
        wake_lane=lambda lane: publisher.put(lambda: wakeups.wake(lane)),
        alert=lambda lane: publisher.put(lambda: _alert(lane, lanes, wakeups)),
        ended=lambda turn: publisher.put(lambda: events.append(turn.id, [_final(turn)], least=1)),
        webhook_body=lambda turn: _webhook_body(turn, settings),
        deliver=lambda delivery_id: publisher.put(lambda: send(app, "loom.webhook.deliver", delivery_id)),
        problems=lambda: _problems(database, client),
        workers=lambda: len(alive_workers(client)),
        tools=fitted.registry.tools,
        prepared=fitted.registry.prepared,
        open_blob=fitted.references.open,
        context=context_report.context,
        recall=context_report.recall,
        clear_recalled=context_report.clear_recalled,
        check_kernel=context_report.check_kernel,
        check_fits=context_report.check_fits,
        patterns=_pattern_desk(client, fitted),
        metrics=lambda: context_report.metrics(_sources(database, client, fitted, waits), now_ms=now_ms()),
        close=close,
    )
    return Front(
        settings,
        database=database,
        lanes=lanes,
        following=Following(Turns(database), events, waits),
        agents=agents,
        outward=outward,
    )


def _build(settings: Settings, *, is_isolated: bool = False, takes_turns: bool = True) -> Process:
    crash_points.arm(settings.crash_points, settings.home / "crashes")
    name = _process_name()
    client = _redis(settings)
    database = Database(settings.database_url, sync=settings.sqlite_sync, readers=settings.worker_concurrency)
    lanes = Lanes(client, settings.lanes)
    claims, outbox = Claims(database), Outbox(database)
    app = configure(settings)
    ways = dispatcher(app, WakeupQueue(app, client), process_env.handed_on(settings))
    stopping = Stopping(settings.lanes.drain_s)
    memories = Memories(database)
    fitted = components(settings, LiveAgents(settings.agents_dir), database, client, process=name, stopping=stopping)
    threads = readiness.Threads(settings.worker_concurrency, busy) if takes_turns else None
    parts = TurnWorker(
        settings=settings,
        worker=name,
        claims=claims,
        journal=Journal(database),
        calls=Calls(database),
        memories=memories,
        lanes=lanes,
        keeper=LeaseRenewer(client, lanes, name, settings.lanes, threads=threads),
        events=_events(settings),
        dispatcher=ways,
        runtime=fitted.registry.runtime,
        beside=fitted.knowledge.beside,
        standing=fitted.knowledge.standing,
        version_of=fitted.knowledge.version_of,
        run_tool=fitted.executor.run,
        concluded=fitted.executor.concluded,
        open_breakers=fitted.executor.open_breakers,
        alive_workers=lambda: alive_workers(client),
        waits=WaitTeller(LiveWaits(client)),
        webhook_body=lambda turn: _webhook_body(turn, settings),
        stopping=stopping,
        content=fitted.content,
        is_isolated=is_isolated,
    )
    desk = Desk(
        worker=name,
        memories=memories,
        means=lambda session: means(fitted.registry, session),
        alive_workers=parts.alive_workers,
        is_stopping=lambda: stopping.is_asked,
        places=threading.Semaphore(max(1, settings.worker_concurrency // AT_ONCE)),
    )
    sweep = Sweep(
        client, lanes, parts.events, claims, outbox, memories, Sessions(database), ways, fitted.tidy, settings.lanes
    )
    own = Worker(parts, Deliverer(outbox, settings.webhook), desk)
    return Process(own, fitted, database, Sweeper(sweep, name))


def _process_name() -> str:
    """Never used before."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def _announce(turn: Turn, lanes: Lanes, events: EventLog, wakeups: WakeupQueue) -> None:
    if lanes.submit(turn.lane, [(turn.seq, turn.id)]):
        wakeups.wake(turn.lane)
    # A worker that is faster finds the log empty and opens it itself; this then changes nothing.
    events.append(turn.id, [("turn.queued", queued(turn))], least=-1)


def _alert(lane: str, lanes: Lanes, wakeups: WakeupQueue) -> None:
    if lanes.alert(lane):
        wakeups.wake(lane)


def _final(turn: Turn) -> tuple[str, Json]:
    return f"turn.{turn.status}", turn.as_json()


def _webhook_body(turn: Turn, settings: Settings) -> str:
    return completed(turn, now_ms=now_ms(), url=f"{_base_url(settings)}/v1/turns/{turn.id}")


def _pattern_desk(client: Any, fitted: Components) -> PatternCatalog:
    knowledge = fitted.knowledge

    def match(workspace: str, question: str, k: int, agent: str | None) -> Sequence[PatternMatch]:
        kinds = None if agent is None else fitted.registry.kinds(agent)
        return knowledge.match(workspace, question, k=k, kinds=kinds)

    return PatternCatalog(
        library=knowledge.library,
        uses=knowledge.uses,
        match=match,
        learns=knowledge.learns,
        processes=lambda: fitted.news.processes(alive_workers(client)),
    )


def _sources(database: Database, client: Any, fitted: Components, waits: Waits) -> dict[str, Callable[[], Json]]:
    """What figures are told of beside the queue, each by itself: one that fails takes no other with it."""
    return {
        # Asked alone, breakers would be told as closed while Redis is away.
        "workers": lambda: {"workers": len(alive_workers(client)), "breakers": fitted.breakers.states()},
        "waits": lambda: waits.figures(None),
        "tools": lambda: store_figures.figures(database, now_ms=now_ms()),
        "results": fitted.references.figures,
        "messages": lambda: {"dropped_messages": dropped.counts(client)},
        "patterns": lambda: {**fitted.knowledge.figures(), "pattern_reloads": fitted.news.counts()},
    }


def _redis(settings: Settings) -> Any:
    """A client for questions that are answered at once."""
    return redis_client.client(settings.redis_url, connections=settings.web.threads + settings.worker_concurrency)


def _events(settings: Settings) -> EventLog:
    waiting = redis_client.client(settings.redis_url, connections=settings.web.threads, wait_s=MAX_BLOCK_MS / 1000)
    return EventLog(_redis(settings), waiting, settings.events)


def _problems(database: Database, client: Any) -> tuple[str, ...]:
    found = []
    try:
        database.probe()
    except LoomError as error:
        found.append(f"database: {error}")
    try:
        redis_client.probe(client)
        found.extend(readiness.problems(readiness.look(client)))
    except LoomError as error:
        found.append(f"redis: {error}")
    return tuple(found)


def _base_url(settings: Settings) -> str:
    return f"http://{settings.web.host}:{settings.web.port}"
