"""Holds what clients say against the guardrails of their agents and workspace; people's decisions on tool calls."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, TypeVar

from loom_worker.agents.known import AgentSource
from loom_worker.core import log_context
from loom_worker.core.errors import BadFile, Flaw, Invalid
from loom_worker.core.values.audit import INPUT_BLOCKED, INPUT_GUARDED, AuditEntry
from loom_worker.core.values.chat import ToolUse
from loom_worker.core.values.decisions import Decision
from loom_worker.core.values.guardrails import NO_GUARDRAILS, Guardrails, Stage
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.media import InputPart, joined
from loom_worker.core.values.sessions import DEFAULT_AGENT, NewSession, SessionPatch
from loom_worker.core.values.tenants import LOCAL, Tenant, user_of, workspace_of
from loom_worker.core.values.turns import NewTurn, Turn
from loom_worker.guard.rails import check_json
from loom_worker.service.announcer import Announcer
from loom_worker.service.waiting.reports import WaitReports
from loom_worker.store import approvals
from loom_worker.store.audit import AuditRows
from loom_worker.store.database import Database
from loom_worker.store.sessions import Asked, Sessions
from loom_worker.turn.agent_runtime import AgentRuntimes

log = logging.getLogger(__name__)

BLOCKED = "guardrail-blocked"
"""The problem of a request that may not be stored."""
S = TypeVar("S", NewSession, SessionPatch)


class InputGuard:
    """The stage *input* of guardrails, and *arguments* for those that a person gives."""

    def __init__(self, database: Database, agents: AgentSource) -> None:
        self._sessions = Sessions(database)
        self._audit = AuditRows(database)
        self._agents = agents

    def admitted(self, tenant: Tenant, session_id: str, new: NewTurn, asked: Asked) -> NewTurn:
        """The turn without what the rules take out, and with what was decided; raises Invalid as ``kept``."""
        said = [part.text for part in new.parts] + [part.shown_name for part in new.parts]
        given: Json = {"input": said if new.parts else new.input, "metadata": new.metadata}
        channel = new.channel.name if new.channel else None
        about = {"key_id": new.key_id, "session_id": session_id, "channel": channel}
        kept, decisions = self._checked(tenant, given, (asked,), about)
        if new.parts and kept["input"] != said:
            kept |= _with_texts(new.parts, kept["input"])
        elif new.parts:
            kept["input"] = new.input
        return replace(new, **kept, guard=list(decisions)) if decisions else new

    def kept(
        self, tenant: Tenant, given: Json, agents: Iterable[str | None], *, stage: Stage = "input", **about: Any
    ) -> Json:
        """Members of a request without what the rules take out; what was found is noted.

        Args:
            agents: who reads them, unless it is the agent of a session.
            about: fields of the audit's row; ``session_id`` says whose rules count.

        Raises:
            Invalid: a rule blocks them; nothing is stored but that (slug ``guardrail-blocked``).
        """
        session_id = about.get("session_id") or ""
        asked = [self._sessions.asked(tenant, session_id, named or DEFAULT_AGENT) for named in agents]
        kept, decisions = self._checked(tenant, given, asked, about, stage)
        if decisions:
            self._note(INPUT_GUARDED, tenant, decisions, about)
        return kept

    def kept_session(self, tenant: Tenant, asked: S, agent: str | None, **about: Any) -> S:
        """A session, or a change of one, likewise."""
        given = {name: value for name in ("title", "metadata", "kernel") if (value := getattr(asked, name))}
        return replace(asked, **self.kept(tenant, given, (agent,), **about)) if given else asked

    def _checked(
        self, tenant: Tenant, given: Json, asked: Iterable[Asked], about: Json, stage: Stage = "input"
    ) -> tuple[Json, tuple[Json, ...]]:
        rules = reduce(Guardrails.with_those_of, map(self._rules, asked), NO_GUARDRAILS).at(stage)
        found = {name: check_json(stage, value, rules, name=name) for name, value in given.items()}
        decisions = tuple(decision for each in found.values() for decision in each.decisions)
        held = {name: ", ".join(each.blocked_for) for name, each in found.items() if each.blocked_for}
        if held:
            self._note(INPUT_BLOCKED, tenant, decisions, about)
            text = " ".join(f"A guardrail refuses {name}: it holds {kinds}." for name, kinds in held.items())
            raise Invalid(text, tuple(Flaw(f"/{name}", f"holds {kinds}") for name, kinds in held.items()), BLOCKED)
        return {name: each.kept for name, each in found.items()}, decisions

    def _rules(self, asked: Asked) -> Guardrails:
        try:
            agent = self._agents.kept(asked.agent, asked.version)
        except BadFile:  # no turn of it can run; its text may not be stored, either, unless the file lets it pass
            agent = self._agents.kept(asked.agent, None)
        own = NO_GUARDRAILS if agent is None else agent.guardrails  # perhaps its file is gone
        return own.with_those_of(Guardrails.of(asked.rules.guardrails))

    def _note(self, action: str, tenant: Tenant, decisions: tuple[Json, ...], about: Json) -> None:
        who = {
            "workspace": workspace_of(tenant),
            "user": user_of(tenant),
            "key_id": about.get("key_id") or LOCAL.key_id,
        }
        self._audit.add(AuditEntry(at_ms=now_ms(), action=action, decisions=decisions, **(about | who)))


def _with_texts(parts: Sequence[InputPart], texts: Sequence[str]) -> Json:
    """Parts and input with what is left of the parts' texts; a file is as it is, so what would change it is refused.

    Args:
        texts: of the parts, then their names.
    """
    texts, names = texts[: len(parts)], texts[len(parts) :]
    for place, (part, text, name) in enumerate(zip(parts, texts, names, strict=True)):
        if part.type != "text" and (part.text, part.shown_name) != (text, name):
            detail = "a guardrail would take something out of this file or its name; send it without that"
            raise Invalid(f"A guardrail refuses a file: {detail}.", (Flaw(f"/input/{place}", detail),), BLOCKED)
    kept = tuple(replace(part, text=text) for part, text in zip(parts, texts, strict=True))
    return {"parts": kept, "input": joined(kept)}


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
