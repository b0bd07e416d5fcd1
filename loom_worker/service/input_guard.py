"""Holds what users say against the guardrails of their agent and workspace, before it is stored."""

from dataclasses import replace

from loom_worker.agents.known import AgentSource
from loom_worker.core.errors import BadFile, Flaw, Invalid
from loom_worker.core.values.audit import INPUT_BLOCKED, AuditEntry
from loom_worker.core.values.guardrails import NO_GUARDRAILS, Guardrails
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.sessions import DEFAULT_AGENT
from loom_worker.core.values.tenants import LOCAL, Tenant, user_of, workspace_of
from loom_worker.core.values.turns import NewTurn
from loom_worker.guard.rails import check
from loom_worker.store.audit import AuditRows
from loom_worker.store.database import Database
from loom_worker.store.sessions import Sessions

BLOCKED = "guardrail-blocked"
"""The problem of a message that may not be answered."""


class InputGuard:
    """The stage *input* of guardrails."""

    def __init__(self, database: Database, agents: AgentSource) -> None:
        self._sessions = Sessions(database)
        self._audit = AuditRows(database)
        self._agents = agents

    def admitted(self, tenant: Tenant, session_id: str, new: NewTurn, *, named: str | None) -> NewTurn:
        """The turn with a message without what the rules take out, and with what was decided.

        Args:
            named: the agent that the client names.

        Raises:
            Invalid: a rule blocks the message; nothing is stored but that (slug ``guardrail-blocked``).
        """
        # The session's agent answers, or the one that is named where it has none yet; perhaps its file is gone.
        name, version, rules = self._sessions.asked(tenant, session_id, named or DEFAULT_AGENT)
        try:
            agent = self._agents.kept(name, version)
        except BadFile:  # no turn of it can run; its text may not be stored, either, unless the file lets it pass
            agent = self._agents.kept(name, None)
        own = NO_GUARDRAILS if agent is None else agent.guardrails
        checked = check("input", new.input, own.with_those_of(Guardrails.of(rules.guardrails)).input)
        if not checked.decisions:
            return new
        if checked.blocked_for:
            self._note(tenant, session_id, new, checked.decisions)
            held = ", ".join(checked.blocked_for)
            flaw = Flaw("/input", f"holds {held}")
            raise Invalid(f"A guardrail refuses the message: it holds {held}.", (flaw,), BLOCKED)
        return replace(new, input=checked.text, guard=list(checked.decisions))

    def _note(self, tenant: Tenant, session_id: str, new: NewTurn, decisions: tuple[Json, ...]) -> None:
        entry = AuditEntry(
            workspace=workspace_of(tenant),
            at_ms=now_ms(),
            action=INPUT_BLOCKED,
            key_id=new.key_id or LOCAL.key_id,
            user=user_of(tenant),
            channel=new.channel.name if new.channel else None,
            session_id=session_id,
            decisions=decisions,
        )
        self._audit.add(entry)
