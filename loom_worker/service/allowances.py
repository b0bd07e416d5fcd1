"""What may be used: a key's requests and tokens in a minute, what agents may spend, and the rules of workspaces."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from loom_worker.agents.known import AgentSource
from loom_worker.core.errors import BudgetSpent
from loom_worker.core.settings_tree import Settings, WebSettings
from loom_worker.core.values.agents import Agent, ModelChoice
from loom_worker.core.values.api_keys import KeyHolder
from loom_worker.core.values.budgets import LEAST_REPLY_TOKENS, NOTHING, CallCost, Level, Payer, limits_of
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.tenants import LOCAL, Actor, Tenant, workspace_of
from loom_worker.core.values.tools import Rate
from loom_worker.core.values.workspaces import Workspace
from loom_worker.guard.limits import RateLimiter
from loom_worker.llm.prices import has_price
from loom_worker.service.announcer import Announcer
from loom_worker.service.context_report import ContextReport
from loom_worker.store.budgets import Budgets
from loom_worker.store.database import Database
from loom_worker.store.ledger import Ledger
from loom_worker.store.submit import spent
from loom_worker.store.workspaces import Workspaces

WINDOW_S = 60


@dataclass(frozen=True, slots=True)
class Quota:
    """What a key may still do."""

    what: Literal["requests", "tokens"]
    limit: int
    """In any WINDOW_S seconds."""
    left: int
    more_in_s: float
    """Seconds until there is more than ``left``; 0: all there can be is left."""
    wait_s: float = 0.0
    """Seconds after which it may be tried again; 0: it may be done now."""


class RateLimits:
    """The limits of all keys; requests without a key, which come from this machine alone, have none."""

    def __init__(self, settings: WebSettings, limiter: RateLimiter, ledger: Ledger) -> None:
        self._settings = settings
        self._limiter = limiter
        self._ledger = ledger

    def take_request(self, holder: KeyHolder) -> Quota | None:
        """Count a request, if it may be served; None: the key has no limit."""
        limit = holder.limits.requests_per_minute or self._settings.key_requests_per_minute
        if holder.key_id is None or not limit:
            return None
        taken = self._limiter.take(f"key:{holder.key_id}", Rate(limit, WINDOW_S))
        return Quota("requests", limit, taken.left, taken.more_in_s, taken.wait_s)

    def look_at_tokens(self, holder: KeyHolder) -> Quota | None:
        """See whether a turn may be accepted; None: the key has no limit; Unavailable: the database did not answer."""
        limit = holder.limits.tokens_per_minute or self._settings.key_tokens_per_minute
        if holder.key_id is None or not limit:
            return None
        moment_ms = now_ms()
        booked, running = self._ledger.tokens_of_key(holder.key_id, since_ms=moment_ms - WINDOW_S * 1000)
        return tokens_left(limit, booked, running, now_ms=moment_ms)


def tokens_left(limit: int, booked: Iterable[tuple[int, int]], running: int, *, now_ms: int) -> Quota:
    """What a limit leaves.

    Args:
        booked: of turns that ended in the window, in order: when (ms), and their tokens.
        running: tokens that unfinished turns have used so far; nobody knows when those end.
    """
    entries = [(at_ms + WINDOW_S * 1000 - now_ms, tokens) for at_ms, tokens in booked]
    used = running + sum(tokens for _, tokens in entries)
    more_in_s = entries[0][0] / 1000 if entries else WINDOW_S * (running > 0)
    if used < limit:
        return Quota("tokens", limit, limit - used, more_in_s)
    for leaves_ms, tokens in entries:
        used -= tokens
        if used < limit:
            return Quota("tokens", limit, 0, more_in_s, leaves_ms / 1000)
    return Quota("tokens", limit, 0, more_in_s, WINDOW_S)


class Terms:
    """AgentTerms (``store/submit.py``) by the files of the agents."""

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
        """What an agent's file lets it spend; one that is gone has no budget."""
        return self._agent(agent).budget

    def has_price(self, agent: str, model: str | None, provider: str | None = None) -> bool:
        """True if calls of an agent can be paid for: their prices are known, or nothing is paid here."""
        found, above = self._agent(agent), ModelChoice(provider, model)
        if found.remote is not None and not found.has_llm_judges:
            return True  # what it costs is paid elsewhere
        usual = self._settings.llm.usual
        judge = found.beside(found.judge_model if found.has_llm_judges else ModelChoice(), usual, above)
        chosen = found.answering(usual, above)
        asked = (chosen, *chosen.fallbacks, judge, *judge.fallbacks)
        return all(each.provider == "scripted" or has_price(each.name) for each in asked)

    def _agent(self, name: str) -> Agent:
        return self._agents.current(name).agents.get(name) or Agent(name, backend=None)


class WorkspaceRules:
    """The rules of workspaces."""

    def __init__(self, database: Database, announcer: Announcer) -> None:
        self._workspaces = Workspaces(database)
        self._budgets = Budgets(database)
        self._announcer = announcer

    def report(self, name: str) -> Json:
        """A workspace with what is used of its budget."""
        return self._with_spending(self._workspaces.get(name))

    def change(self, name: str, changes: Json, *, by: Actor = LOCAL) -> Json:
        """Change some of its rules; what runs in a workspace that is disabled is interrupted at once.

        Args:
            changes: members of the rules; null clears one.
        """
        workspace, lanes = self._workspaces.patch(name, changes, now_ms=now_ms(), by=by)
        for lane in lanes:
            if workspace.rules.is_disabled:
                self._announcer.alert(lane)
            else:
                self._announcer.wake(lane)
        return self._with_spending(workspace)

    def _with_spending(self, workspace: Workspace) -> Json:
        moment_ms = now_ms()
        limits = limits_of("workspace", workspace.name, workspace.rules.budget, now_ms=moment_ms)
        used = self._budgets.report(limits, now_ms=moment_ms) if limits else ()
        return {**workspace.as_json(), "spending": list(used)}
