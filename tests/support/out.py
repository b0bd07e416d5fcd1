"""What a service sends and asks: kept in lists, answered with little."""

import json
from dataclasses import dataclass, field, fields, replace
from typing import Any

from loom_worker.agents.load import Agents, load
from loom_worker.core.errors import LoomError
from loom_worker.core.values.chat import ChatMessage, ToolUse
from loom_worker.core.values.json import Json
from loom_worker.core.values.sessions import Session
from loom_worker.core.values.tenants import Tenant
from loom_worker.core.values.tools import Caller, Tool
from loom_worker.core.values.turns import Turn
from loom_worker.lanes.lanes import Lanes
from loom_worker.lanes.live_waits import LiveWaits
from loom_worker.service.service import Service, ServiceParts
from loom_worker.service.waiting.reports import WaitReports
from loom_worker.service.waiting.waiter import TurnWaiter
from loom_worker.store.turns import TurnStatuses
from tests.support.callers import a_tool
from tests.support.stage import Stage


class NoRuns:
    """No run of any workflow: what is told of turns is of none."""

    def __init__(self) -> None:
        self.waiter = self

    def turn_ended(self, _run_id: str | None) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass
class Out:
    """All collaborators of a service in one: what it announces, asks of agents and contexts, and reads of results."""

    announced: list[Turn] = field(default_factory=list)
    woken: list[str] = field(default_factory=list)
    alerted: list[str] = field(default_factory=list)
    finished: list[Turn] = field(default_factory=list)
    delivered: list[str] = field(default_factory=list)
    closed: int = 0
    asked: list[tuple[object, ...]] = field(default_factory=list)
    """What was asked of memory and agent runtimes."""
    refusal: LoomError | None = None
    """Raised by whatever is asked."""

    def parts(self) -> ServiceParts:
        here: Any = self
        runs: Any = NoRuns()
        return ServiceParts(**{each.name: here for each in fields(ServiceParts)} | {"runs": runs})

    def service(self, stage: Stage, agents: Agents | None = None, lanes: Lanes | None = None, **parts: Any) -> Service:
        """A service on this stage; ``parts`` in place of this one."""
        known = agents or load(None)
        waits = WaitReports(stage.turns, LiveWaits(stage.redis), known)
        return Service(
            stage.settings,
            database=stage.database,
            lanes=lanes or stage.lanes,
            waiter=TurnWaiter(stage.turns, stage.events, waits, TurnStatuses(stage.database)),
            agents=known,
            parts=replace(self.parts(), **parts),
        )

    def of_session(self, session: Session) -> tuple[None, Caller]:
        return None, Caller(session.lane, session.id, session.workspace, "", "", session.agent)

    def accepted(self, turn: Turn) -> None:
        self.announced.append(turn)

    def wake(self, lane: str) -> None:
        self.woken.append(lane)

    def alert(self, lane: str) -> None:
        self.alerted.append(lane)

    def ended(self, turn: Turn) -> None:
        self.finished.append(turn)

    def deliver(self, delivery_id: str) -> None:
        self.delivered.append(delivery_id)

    def close(self) -> None:
        self.closed += 1

    def ask(self, *question: object) -> None:
        self.asked.append(question)
        if self.refusal is not None:
            raise self.refusal

    def check_kernel(self, *question: object) -> None:
        self.ask("kernel", *question)

    @property
    def sessions(self) -> "Out":
        return self

    budgets = sessions

    def known(self, *_question: object) -> None:
        return None

    def left(self, *_question: object, now_ms: int) -> tuple[()]:
        return ()

    def check_fits(self, tenant: Tenant, session_id: str, agent: str, message: ChatMessage) -> None:
        self.ask("fits", tenant, session_id, agent, message.text)

    def tools(self, agent: str, _version: str | None = None, workspace: str | None = None) -> tuple[Tool, ...]:
        self.ask("tools", agent)
        return (a_tool("add", "Adds.", {"type": "object"}), a_tool("note", "Notes.", {"type": "object"}))

    def prepared(self, _agent: str, use: ToolUse, _version: str | None = None) -> tuple[Json, str | None]:
        return use.arguments, None if "b" in use.arguments else "/: 'b' is missing"

    def of(self, turn: Turn) -> str:
        return json.dumps(turn.as_json())

    def workers(self) -> int:
        return 2
