"""On what terms agents work: what they may spend, and whether their calls can be paid for."""

from loom_worker.agents.known import AgentSource
from loom_worker.core.errors import BudgetSpent
from loom_worker.core.settings import Settings
from loom_worker.core.values.agents import Agent, ModelChoice
from loom_worker.core.values.budgets import LEAST_REPLY_TOKENS, NOTHING, CallCost, Level, Payer, limits_of
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.tenants import Tenant, workspace_of
from loom_worker.llm.prices import OLLAMA, has_price
from loom_worker.service.context_report import ContextReport
from loom_worker.store.submit import spent


class Terms:
    """See AgentTerms (``store/submit.py``)."""

    def __init__(self, settings: Settings, agents: AgentSource, contexts: ContextReport | None = None) -> None:
        """Args: contexts: None: nobody asks what budgets can pay."""
        self._settings, self._agents, self._contexts = settings, agents, contexts

    def check_affords(self, tenant: Tenant, session_id: str, agent: str, text: str, *budgets: Json | None) -> None:
        """Raise QueueFull if these budgets, a run's where no session is named, or others pay for no call."""
        if self._contexts is None:
            return
        session = self._contexts.sessions.known(tenant, session_id, agent)
        name, lane = (session.agent, session.lane) if session else (agent, "")
        payer, moment_ms = Payer(workspace_of(tenant), lane, name, self.budget(name)), now_ms()
        level: Level = "turn" if session_id else "run"
        own = [(limit, NOTHING) for each in budgets for limit in limits_of(level, "", each, now_ms=moment_ms)]
        if not (left := [*own, *self._contexts.budgets.left(payer, now_ms=moment_ms)]):
            return
        need = CallCost(len(self._agent(name).system_prompt + text) // 8, LEAST_REPLY_TOKENS)
        if not self._agent(name).mcp_servers:  # they may take ten seconds to answer: then the texts count alone
            need = self._contexts.first_call(tenant, session, name, text)
        try:
            need.within(left)
        except BudgetSpent as error:
            raise spent(error, now_ms=moment_ms) from error

    def budget(self, agent: str) -> Json | None:
        """See AgentTerms; an agent that is gone has none."""
        return self._agent(agent).budget

    def has_price(self, agent: str, model: str | None, provider: str | None = None) -> bool:
        """See AgentTerms."""
        found = self._agent(agent)
        name = model or found.model or self._settings.llm.model
        provider = provider or found.provider or self._settings.llm.provider
        if found.remote is not None and not found.has_llm_judges:
            return True  # what it costs is paid elsewhere
        judge = found.judge_model if found.has_llm_judges else ModelChoice()
        return _has_price(provider, name) and _has_price(judge.provider or provider, judge.model or name)

    def _agent(self, name: str) -> Agent:
        return self._agents.current(name).agents.get(name) or Agent(name, backend=None)


def _has_price(provider: str, model: str) -> bool:
    if provider == "scripted":
        return True
    return has_price(f"{OLLAMA}{model.removeprefix(OLLAMA)}" if provider == "ollama" else model)
