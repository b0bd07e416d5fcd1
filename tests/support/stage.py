"""Turns on real parts: a SQLite file, a real Valkey, real lanes and logs; only the model is played."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import fakeredis
import pytest
import redis

from loom_worker.core.errors import ToolFailed
from loom_worker.core.settings import Settings
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.calls import Call
from loom_worker.core.values.chat import ChatMessage, Frame, ToolSpec
from loom_worker.core.values.guardrails import Stage as GuardStage
from loom_worker.core.values.json import Json
from loom_worker.core.values.judges import Verdict
from loom_worker.core.values.learned import NONE, LearnedLayer
from loom_worker.core.values.notifications import Delivery, Event
from loom_worker.core.values.sessions import Choice, NewSession, Session
from loom_worker.core.values.tools import Caller, Outcome, Tool
from loom_worker.core.values.turns import CancelAction, Claim, NewTurn, Step, Turn
from loom_worker.events.log import EventLog
from loom_worker.events.rebuild import queued, rebuild
from loom_worker.events.turn_signals import RunNews, TurnSignals
from loom_worker.judge.evaluate import JudgeModel
from loom_worker.judge.injection import InjectionCheck
from loom_worker.judge.python_judges import PythonJudges
from loom_worker.lanes import keys
from loom_worker.lanes.lanes import Lanes
from loom_worker.lanes.lease_renewer import LeaseRenewer
from loom_worker.lanes.live_waits import LiveWaits
from loom_worker.lanes.slots import FreeSlots
from loom_worker.llm.model import Metered
from loom_worker.memory.pressure import l1_room
from loom_worker.memory.results import Sizes
from loom_worker.store.agent_errors import AgentErrors
from loom_worker.store.agent_messages import AgentMessages
from loom_worker.store.blobs import BlobRows
from loom_worker.store.budgets import Budgets
from loom_worker.store.calls import Calls
from loom_worker.store.cancel import Cancelled, cancel
from loom_worker.store.children import Children
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.journal import Journal
from loom_worker.store.memory import Memories
from loom_worker.store.messages import Messages
from loom_worker.store.outbox import Outbox
from loom_worker.store.sessions import Sessions
from loom_worker.store.submit import submit
from loom_worker.store.turns import Turns
from loom_worker.store.verdicts import Verdicts
from loom_worker.tools.custom import ToolFiles
from loom_worker.tools.error_channel import Failures
from loom_worker.tools.execution import call_tool
from loom_worker.tools.files import Files
from loom_worker.tools.references import References, stores
from loom_worker.tools.registry import Registry
from loom_worker.turn.agent_runtime import AgentRuntime, PromptContext
from loom_worker.turn.entrypoints import serve_call, serve_lane, serve_verdict
from loom_worker.turn.waits import WaitTeller
from loom_worker.turn.worker import TurnWorker
from loom_worker.webhook.body import WebhookBodies
from loom_worker.workflows.advance import RunAdvancer, StepTeller
from tests.support.models import Killed, Plays
from tests.support.runs import run_journal

WORKSPACE = "default"
START_MS = 1_800_000_000_000


@dataclass
class Book:
    """A dispatcher that writes down what it is asked to send, in order."""

    woken: list[str] = field(default_factory=list)
    called: list[tuple[str, Call]] = field(default_factory=list)
    fanned: list[tuple[str, str, tuple[Call, ...], str]] = field(default_factory=list)
    judged: list[tuple[str, Verdict]] = field(default_factory=list)
    delivered: list[str] = field(default_factory=list)
    summarized: list[str] = field(default_factory=list)
    advanced: list[str] = field(default_factory=list)
    alone: list[tuple[str, str, str, int]] = field(default_factory=list)
    alone_status: int = 0
    on_deliver: Callable[[], object] = lambda: None

    def wake(self, lane: str) -> None:
        self.woken.append(lane)

    def call(self, turn_id: str, sent: Call) -> None:
        self.called.append((turn_id, sent))

    def judge(self, turn_id: str, verdict: Verdict) -> None:
        self.judged.append((turn_id, verdict))

    def fan_out(self, lane: str, turn_id: str, calls: Sequence[Call], ticket: str) -> None:
        self.fanned.append((lane, turn_id, tuple(calls), ticket))

    def deliver(self, delivery_id: str) -> None:
        self.delivered.append(delivery_id)
        self.on_deliver()

    def summarize(self, lane: str) -> None:
        self.summarized.append(lane)

    def advance(self, run_id: str) -> None:
        self.advanced.append(run_id)

    def run_isolated(self, lane: str, token: str, turn_id: str, fence: int) -> int:
        self.alone.append((lane, token, turn_id, fence))
        return self.alone_status


class StageTools:
    """Runs tools in this process, and keeps their results inline."""

    def __init__(self, timeout_s: float, broken: dict[str, float], failures: Failures, files: Files) -> None:
        self.failures, self.files, references = failures, files, files.references
        self.references = references
        self._timeout_s = timeout_s
        self._broken = broken

    def run(self, tool: Tool, arguments: Json, caller: Caller) -> Outcome:
        return call_tool(tool, arguments, caller, timeout_s=self._timeout_s, pool=None, max_bytes=1_000_000)

    def with_outcome(self, call: Call, outcome: Outcome, _caller: Caller) -> Call:
        """The call with its outcome as it is, a failure in 100 characters."""
        code = f" [{outcome.code}]" if outcome.code else ""
        content = outcome.content if outcome.status == "completed" else f"{outcome.content[:100]}{code}"
        return replace(call, status=outcome.status, content=content, guard=list(outcome.guard) or None)

    def open_breakers(self, names: Sequence[str]) -> dict[str, float]:
        return {name: self._broken[name] for name in names if name in self._broken}


class StageKnowledge:
    """What stands beside a question on a stage, and the versions of its patterns."""

    def __init__(self, beside: PromptContext | None = None, standing: str = "") -> None:
        pattern = {"id": "sql/top_n", "score": 0.5, "version": "v1"}
        self.prompt = beside or PromptContext("Today is Saturday.", (pattern,))
        self.standing_text = standing
        self.layers: dict[int, LearnedLayer] = {}

    def prompt_context(self, _turn: Turn, _runtime: AgentRuntime) -> PromptContext:
        return self.prompt

    def standing(self, _runtime: AgentRuntime) -> str:
        return self.standing_text

    def learned(
        self, _workspace: str, _lane: str, _agent: Agent, version: int | None
    ) -> tuple[int, LearnedLayer | None]:
        layer = self.layers.get(version or NONE)
        return (version or NONE, layer) if layer else (NONE, None)

    def version_of(self, pattern_id: str) -> str | None:
        return {"sql/trend": "v2"}.get(pattern_id)


class StageAgents:
    """The one agent of a stage, whatever is asked for."""

    def __init__(self, stage: "Stage") -> None:
        self._stage = stage

    def runtime(self, _name: str, _choice: Choice | None = None, _workspace: str | None = None) -> AgentRuntime:
        return self._stage.runtime()

    def keeping(self, claim: Claim) -> Claim:
        return claim


class ByWords:
    """No session's agent has embeddings."""

    def of_session(self, session: Session) -> tuple[None, Caller]:
        return None, Caller(session.lane, session.id, session.workspace, "", "", session.agent)


class StageWorkers:
    """The workers that a stage says are alive."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def alive(self) -> frozenset[str]:
        return frozenset(self._names)


def spec(name: str, **properties: Json) -> ToolSpec:
    """A tool whose arguments are all required."""
    schema = {"type": "object", "properties": properties, "required": sorted(properties), "additionalProperties": False}
    return ToolSpec(name, f"Does {name}.", schema)


class Stage:
    """One database and one Valkey, on which any number of workers play."""

    def __init__(self, settings: Settings, database: Database, client: redis.Redis) -> None:
        self.settings, self.database, self.redis = settings, database, client
        self.model = Plays()
        self.book = Book()
        self.judge = Plays(name="judge")
        """What LLM judges ask."""
        self.now_ms = START_MS
        self.alive: set[str] = set()
        self.agent = Agent("default", system_prompt="You help.")
        self.checks: dict[GuardStage, InjectionCheck] = {}
        """Models that look for injection."""
        self.budget_tokens = 100_000
        self.broken: dict[str, float] = {}
        """Circuit breakers that are open, with the seconds until they let a call try."""
        self.failures = Failures(AgentErrors(database))
        memory = fakeredis.FakeRedis()  # the bytes of large results alone; all else is a real server's
        blobs = replace(settings.blobs, folder=settings.home / "blobs")
        self.references = References(stores(blobs, BlobRows(database), memory), blobs)
        self.files = Files.of(settings, database, self.references)
        self.ran: list[str] = []
        """Tools that ran, in order."""
        self.claims, self.calls = Claims(database), Calls(database)
        self.turns, self.sessions, self.outbox = Turns(database), Sessions(database), Outbox(database)
        self.messages = Messages(database)
        self.memories = Memories(database)
        self.lanes = Lanes(client, settings.lanes)
        self.events = EventLog(client)
        self.registry = Registry(self.tools())
        self.runs = run_journal(database, settings.limits)
        client.rpush(keys.WAKEUPS, "of another lane")  # so a wake-up is good for one turn

    def tools(self) -> tuple[Tool, ...]:
        """add: an ordinary tool; note: bounded; pay: must not run twice; fail: always fails."""
        number = {"type": "number"}

        def ran(name: str, answer: Callable[[Json], str]) -> Callable[[Json, Caller], str]:
            def run(arguments: Json, _caller: Caller) -> str:
                self.ran.append(name)
                return answer(arguments)

            return run

        def fail(_: Json) -> str:
            raise ToolFailed("The table is locked.", "DATABASE_ERROR")

        return (
            Tool(spec("add", a=number, b=number), ran("add", lambda given: str(given["a"] + given["b"])), group="add"),
            Tool(spec("note"), ran("note", lambda _: "noted"), is_bounded=True),
            Tool(spec("pay"), ran("pay", lambda _: "paid"), is_idempotent=False),
            Tool(spec("fail"), ran("fail", fail)),
        )

    def teller(self) -> StepTeller:
        """Tells of what runs do."""
        return StepTeller(TurnSignals(self.redis, self.lanes, self.events), RunNews(self.redis), self.book)

    def worker(self, name: str, **parts: Any) -> TurnWorker:
        """A worker that is alive.

        Args:
            parts: of the worker, in place of the usual ones.
        """
        self.alive.add(name)
        tools: Any = StageTools(self.settings.limits.tool_timeout_s, self.broken, self.failures, self.files)
        lanes = parts.get("lanes", self.lanes)
        stopping = parts.get("stopping") or Stopping(self.settings.lanes.drain_s)
        usual = TurnWorker(
            settings=self.settings,
            name=name,
            claims=self.claims,
            journal=Journal(self.database),
            calls=self.calls,
            verdicts=Verdicts(self.database),
            memories=self.memories,
            budgets=Budgets(self.database),
            lanes=lanes,
            # No thread waits for a lane: a test plays one worker after the other.
            slots=FreeSlots(lanes, stopping, process=name, most_waiting=0),
            signals=TurnSignals(self.redis, lanes, parts.get("events", self.events)),
            renewer=LeaseRenewer(self.redis, self.lanes, name, self.settings.lanes),
            events=self.events,
            dispatcher=self.book,
            children=Children(self.database, self.settings.limits),
            messages=AgentMessages(self.database),
            runs=RunAdvancer(self.runs, self.teller(), clock_ms=lambda: self.now_ms),
            agents=StageAgents(self),
            knowledge=StageKnowledge(),
            tools=tools,
            judges=PythonJudges(ToolFiles(), tools),
            workers=StageWorkers(self.alive),
            waits=WaitTeller(LiveWaits(self.redis)),
            bodies=WebhookBodies("http://loom", clock_ms=lambda: self.now_ms),
            stopping=stopping,
            clock_ms=lambda: self.now_ms,
        )
        return replace(usual, **parts)

    def runtime(self) -> AgentRuntime:
        """The runtime of the one agent; four characters are a token."""
        return AgentRuntime(
            agent=self.agent,
            model=Metered(self.model),
            sizes=Sizes(lambda text: len(text) // 4 + 1),
            registry=self.registry,
            specs=self.registry.specs(self.agent.tools),
            allowed=self.agent.tools,
            typical=1.0,
            frame=Frame(tools=0),
            schema="orders(id, total)",
            input_budget_tokens=self.budget_tokens,
            l1=l1_room(self.budget_tokens, policy=self.agent.memory, most_tokens=self.settings.llm.l1_tokens),
            max_tokens=1000,
            checks=self.checks,
            judge=JudgeModel(Metered(self.judge), lambda text: len(text) // 4 + 1, self.budget_tokens),
        )

    def submit(self, text: str = "How many?", *, session: str = "s1", **new: Any) -> Turn:
        """Accept a turn and put it on its lane."""
        owner = (WORKSPACE, NewSession(id=session))
        turn, _ = submit(self.database, self.settings.limits, owner, NewTurn(text, **new), now_ms=self.now_ms)
        self.events.append(turn.id, [("turn.queued", queued(turn))], least=-1)
        self.lanes.submit(turn.lane, [(turn.seq, turn.id)])
        return turn

    def cancel(self, turn: Turn, action: CancelAction, hears: TurnWorker | None = None) -> Cancelled:
        """Wish a turn to end, as a client does; the lane is alerted.

        Args:
            hears: a worker whose lease renewer runs at once.
        """
        done = cancel(
            self.database,
            (WORKSPACE, turn.id),
            action,
            now_ms=self.now_ms,
            deliver=lambda ended: Delivery.of(ended, "{}", now_ms=self.now_ms),
        )
        if not done.turn.is_finished and self.lanes.alert(turn.lane):
            self.book.woken.append(turn.lane)
        if hears is not None:
            hears.renewer.renew()
        return done

    def serve(self, turn: Turn, by: TurnWorker) -> Turn:
        """Answer a wake-up of the turn's lane; the turn as it is then."""
        serve_lane(turn.lane, by)
        return self.turn(turn)

    def answered(self, *scenes: Any, text: str = "How many?", by: TurnWorker | None = None, **new: Any) -> Turn:
        """Submit a turn and answer its wake-up while the model plays these scenes."""
        self.model.scenes = list(scenes)
        return self.serve(self.submit(text, **new), by or self.worker("w1"))

    def served(self, *scenes: Any, **new: Any) -> tuple[Turn, TurnWorker]:
        """A turn as `answered` leaves it, and its worker."""
        worker = self.worker("w1")
        return self.answered(*scenes, by=worker, **new), worker

    def die(self, turn: Turn) -> None:
        """Kill a worker while it serves the turn, and let its lease run out."""
        with pytest.raises(Killed):
            self.serve(turn, self.worker("w1"))
        self.lapse(turn)

    def answer_calls(self, turn: Turn, by: TurnWorker, order: Sequence[int] | None = None) -> Turn:
        """Run all calls of the last fan-out, by default in call order."""
        sent = self.book.fanned[-1][2]
        for place in order if order is not None else range(len(sent)):
            serve_call(turn.id, sent[place].position, sent[place].sends, by)
        return self.turn(turn)

    def give_verdicts(self, turn: Turn, by: TurnWorker) -> Turn:
        """Have all judges that were asked look at the answer, in the order of the panel."""
        asked, self.book.judged = self.book.judged, []
        for turn_id, verdict in asked:
            serve_verdict(turn_id, verdict.reply_n, verdict.position, verdict.sends, by)
        return self.turn(turn)

    def turn(self, turn: Turn) -> Turn:
        """The turn as a client reads it now."""
        return self.turns.get(WORKSPACE, turn.id)

    def journal(self, turn: Turn) -> tuple[Step, ...]:
        """What is journaled of a turn."""
        return self.turns.with_journal(WORKSPACE, turn.id)[1]

    def held_by(self, turn: Turn) -> str | None:
        """The worker that owns the lane's first turn, by the database."""
        return self.claims.open_lane(turn.lane).held_by

    def said(self, session: str = "s1") -> list[ChatMessage]:
        """The messages of a session."""
        return [m.chat for m in self.messages.page(WORKSPACE, session, limit=500, after=None).items]

    def live(self, turn: Turn) -> tuple[Event, ...]:
        """The live log."""
        return self.events.read(turn.id, after=0)

    def rebuilt(self, turn: Turn) -> tuple[Event, ...]:
        """The log as made from the database."""
        return rebuild(self.turn(turn), self.journal(turn))

    def told(self, turn: Turn) -> list[str]:
        """The types of the live events."""
        return [event.type for event in self.live(turn)]

    def lapse(self, turn: Turn) -> None:
        """Let the lane's lease run out, as if its owner had slept past it."""
        self.redis.zadd(keys.LEASES, {turn.lane: 1})

    def lane_state(self, turn: Turn) -> str | None:
        """kicked, running, parked, or None for an idle lane."""
        state = self.redis.hget(keys.lease(turn.lane), "state")
        return None if state is None else str(state)
