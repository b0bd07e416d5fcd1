"""A person decides on tool calls that wait for one."""

import logging
from dataclasses import dataclass, replace

from loom_worker.core import log_context
from loom_worker.core.errors import Flaw, Invalid
from loom_worker.core.values.chat import ToolUse
from loom_worker.core.values.decisions import Decision
from loom_worker.core.values.guardrails import Stage
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.tenants import Tenant
from loom_worker.core.values.turns import Turn
from loom_worker.service.announcer import Announcer
from loom_worker.service.input_guard import InputGuard
from loom_worker.service.waiting.reports import WaitReports
from loom_worker.store import approvals
from loom_worker.store.database import Database
from loom_worker.turn.agent_runtime import AgentRuntimes

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Approvals:
    """Decisions on the calls of a tenant's turns."""

    database: Database
    guard: InputGuard
    agents: AgentRuntimes
    announcer: Announcer
    waits: WaitReports

    def decide(self, tenant: Tenant, turn_id: str, call_id: str, decision: Decision) -> Turn:
        """Let a call run, with the arguments of the model or other ones, or refuse it and tell the model.

        Raises:
            NotFound: the tenant has no such turn, or the turn no such call.
            Conflict: the call is already decided, needs no decision, or its turn has ended.
            Invalid: the tool does not take the new arguments, or a guardrail blocks a text; nothing was decided.
            Unavailable: the database did not answer; nothing was decided.
        """
        if decision.verdict != "approve":
            turn, call = approvals.waiting(self.database, tenant, turn_id, call_id)
            about: Json = {"key_id": decision.by.key_id, "session_id": turn.session_id, "turn_id": turn.id}
            stage: Stage = "arguments" if decision.verdict == "edit" else "input"
            given = {"arguments": decision.arguments, "reason": decision.reason}
            decision = replace(decision, **self.guard.kept(tenant, given, (turn.agent,), stage=stage, **about))
        if decision.verdict == "edit":
            use = ToolUse(call.id, call.name, decision.arguments or {})
            arguments, flaw = self.agents.prepared(turn.agent, use, turn.agent_version)
            if flaw is not None:
                detail = f"The tool {call.name} does not take these arguments: {flaw}"
                raise Invalid(detail, (Flaw("/arguments", flaw),))
            decision = replace(decision, arguments=arguments)
        turn = approvals.decide(self.database, tenant, turn_id, call_id, decision, now_ms=now_ms())
        ids = {**log_context.turn_ids(turn, "tool", call_id), "call": call_id}
        log.info("tool.approval: %s", decision.verdict, extra=ids)
        self.announcer.alert(turn.lane)
        return self.waits.with_wait(turn)
