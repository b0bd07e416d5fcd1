"""All that a client can ask of Loom; the web front end is a translation of this class to HTTP."""

import logging
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

from loom_worker.agents.known import AgentSource
from loom_worker.core import crash_points, log_context
from loom_worker.core.errors import Flaw, Forbidden, Invalid, LoomError, QueueFull, Unavailable
from loom_worker.core.fields import Fields, InvalidField
from loom_worker.core.settings import Settings
from loom_worker.core.values.agent_messages import AgentMessage
from loom_worker.core.values.agents import Agent, ModelChoice
from loom_worker.core.values.chat import ChatMessage
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json, pointer_step
from loom_worker.core.values.media import joined, media_of
from loom_worker.core.values.notifications import Delivery
from loom_worker.core.values.pages import Page
from loom_worker.core.values.sessions import DEFAULT_AGENT, NewSession, Session, SessionPatch
from loom_worker.core.values.tenants import LOCAL, Actor, Tenant, user_of, workspace_of
from loom_worker.core.values.tools import Tool
from loom_worker.core.values.turns import CancelAction, NewTurn, Retry, Turn
from loom_worker.core.values.usage import ALL, GROUPS, UsageFilter
from loom_worker.core.values.webhooks import Webhook
from loom_worker.guard.limits import RateLimiter
from loom_worker.judge.checks import response_format
from loom_worker.lanes.lanes import Lanes
from loom_worker.llm.catalog import all_of, described
from loom_worker.service.agent_versions import AgentCatalog
from loom_worker.service.allowances import RateLimits, Terms, WorkspaceRules
from loom_worker.service.announcer import Announcer
from loom_worker.service.context_report import ContextReport
from loom_worker.service.input_guard import Approvals, InputGuard
from loom_worker.service.keys import Keys
from loom_worker.service.learned import Learned
from loom_worker.service.metrics import Figures, Health
from loom_worker.service.pattern_catalog import PatternCatalog
from loom_worker.service.schedules import Schedules
from loom_worker.service.sessions import Semantics, SessionChanges, SessionSearch, named
from loom_worker.service.users import UserDeletions, UserFacts
from loom_worker.service.waiting.waiter import TurnWaiter
from loom_worker.service.workflow_runs import WorkflowRuns
from loom_worker.store.agent_errors import AgentErrors
from loom_worker.store.agent_messages import AgentMessages
from loom_worker.store.api_keys import KeyRows
from loom_worker.store.audit import AuditRows
from loom_worker.store.cancel import cancel
from loom_worker.store.database import Database
from loom_worker.store.facts import Facts
from loom_worker.store.learned import LearnedLayers
from loom_worker.store.ledger import Ledger
from loom_worker.store.memory import Memories
from loom_worker.store.messages import Messages
from loom_worker.store.outbox import Outbox
from loom_worker.store.pairings import Pairings
from loom_worker.store.search import Search
from loom_worker.store.sessions import Sessions
from loom_worker.store.submit import replayed, retry, submit
from loom_worker.store.turns import Turns, set_webhook
from loom_worker.tools.files import Files
from loom_worker.tools.references import References
from loom_worker.trace.turn_spans import TurnTraces
from loom_worker.turn.agent_runtime import AgentRuntimes
from loom_worker.webhook.body import WebhookBodies
from loom_worker.webhook.send import check

log = logging.getLogger(__name__)

SETTLE_S = 0.1
"""Pause after a deletion. Code that sends a session's text checks the database right before the first byte, on an open
connection: if that check came before the deletion, it has begun to send by then."""
CHECKED_BYTES = 400
"""A shorter message fits any window worth having."""


class Closeable(Protocol):
    """What is closed with the service (``runtime/components.py``: Components)."""

    def close(self) -> None:
        """End child processes and servers, close connections."""


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """What the service works with, apart from the store."""

    announcer: Announcer
    runs: WorkflowRuns
    schedules: Schedules
    runtimes: AgentRuntimes
    contexts: ContextReport
    semantics: Semantics
    patterns: PatternCatalog
    references: References
    files: Files
    bodies: WebhookBodies
    health: Health
    figures: Figures
    components: Closeable
    rates: RateLimiter


class Service:
    """One tenant at a time, a workspace or one user of it, as the caller names it; others' things are not found.

    What is only read or changed in one place is asked there: in ``sessions``, ``messages``, ``search``, ``memories``,
    ``outbox``, ``agent_errors`` and ``agent_messages`` of the store, and in the other collaborators. The methods do
    more than that.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        database: Database,
        lanes: Lanes,
        waiter: TurnWaiter,
        agents: AgentSource,
        parts: ServiceParts,
    ) -> None:
        self.settings = settings
        self.sessions = Sessions(database)
        self.messages = Messages(database)
        self.search = SessionSearch(self.sessions, Search(database), parts.semantics)
        self.memories = Memories(database)
        self.outbox = Outbox(database)
        self.agent_errors = AgentErrors(database)
        self.agent_messages = AgentMessages(database)
        self.traces = TurnTraces(database, settings.trace.shows_content)
        self.keys = Keys(KeyRows(database))
        self.pairings = Pairings(database)
        self.audit = AuditRows(database)
        self._input_guard = guard = InputGuard(database, agents)
        self.facts = UserFacts(Facts(database), guard)
        self.users = UserDeletions(database, lanes, waiter.events)
        self.references = parts.references
        self.files = parts.files
        self.contexts = parts.contexts
        self.patterns = parts.patterns
        self.approvals = Approvals(database, guard, parts.runtimes, parts.announcer, waiter.waits)
        self._ledger = Ledger(database)
        self.rate_limits = RateLimits(settings.web, parts.rates, self._ledger)
        self.workspaces = WorkspaceRules(database, parts.announcer)
        self.waiter = waiter
        self.runs = parts.runs
        self.schedules = parts.schedules
        self.learned = Learned(LearnedLayers(database), agents)
        self.health = parts.health
        self.figures = parts.figures
        self._database = database
        self._lanes = lanes
        self._agents = agents
        self._runtimes = parts.runtimes
        self._announcer = parts.announcer
        self._bodies = parts.bodies
        self._components = parts.components
        self._waits = waiter.waits
        self._turns = Turns(database)
        self.agent_versions = AgentCatalog(database, agents, pins=settings.agent_pin == "session")
        self._changes = SessionChanges(self.sessions, agents, parts.runtimes, self.contexts, self.agent_versions)
        self._terms = Terms(settings, agents, parts.contexts)

    def create_session(self, tenant: Tenant, new: NewSession, *, by: Actor = LOCAL) -> Session:
        """Make a session.

        Raises:
            Conflict: the id exists.
            Forbidden: it would be another user's than the tenant.
            Invalid: there is no such agent, a guardrail blocks a text, or the kernel is too large.
        """
        if new.user is not None and user_of(tenant) not in (None, new.user):
            raise Forbidden("This key acts for a user and creates sessions for that user only.")
        agent = new.agent or DEFAULT_AGENT
        self._check_agent(agent)
        if new.kernel:
            self.contexts.check_kernel(agent, new.kernel)
        new = self._input_guard.kept_session(tenant, new, agent, key_id=by.key_id)
        return self.sessions.create(tenant, new, now_ms=now_ms())

    def patch_session(
        self, tenant: Tenant, session_id: str, patch: SessionPatch, *, may_choose_any: bool = True, by: Actor = LOCAL
    ) -> Session:
        """Change a session; one that becomes active goes on with its queue.

        Raises:
            NotFound, Invalid, Forbidden, Conflict: nothing was changed.
        """
        patch = self._changes.checked(tenant, session_id, patch, may_choose_any=may_choose_any)
        patch = self._input_guard.kept_session(tenant, patch, None, key_id=by.key_id, session_id=session_id)
        session = self.sessions.patch(tenant, session_id, patch, now_ms=now_ms())
        if patch.status == "active" and session.queue_depth:
            self._announcer.wake(session.lane)
        return session

    def delete_session(self, tenant: Tenant, session_id: str, *, by: Actor = LOCAL) -> None:
        """Delete a session, or raise NotFound; its rows go by and by, but nothing sends its text from now on."""
        deleted = self.sessions.delete(tenant, session_id, by=by)
        time.sleep(SETTLE_S)
        try:
            for each in deleted:
                self._lanes.forget(each.lane)
                self.waiter.events.forget(each.turns)
        except Unavailable:  # of the lane nothing is in the database, and the sweep removes the event logs
            return

    def submit(self, tenant: Tenant, session_id: str, new: NewTurn, *, agent: str | None) -> tuple[Turn, bool]:
        """Accept a turn at the tail of its session's lane; when this returns it will not be lost.

        Returns:
            The turn, and True if it is an earlier one of the same idempotency key.

        Raises:
            Conflict, Invalid, QueueFull, Forbidden: nothing was accepted.
            Unavailable: the database did not answer; nothing was accepted.
        """
        self._check_asked(tenant, session_id, agent)
        asked = self.sessions.asked(tenant, session_id, agent or DEFAULT_AGENT)
        if new.parts and (earlier := replayed(self._database, tenant, new)) is not None:
            return earlier, True
        try:
            if new.parts:
                parts = self.files.looked_up(tenant, new.parts)
                new = replace(new, parts=parts, input=joined(parts))
            if new.parts or len(new.input.encode()) > CHECKED_BYTES:
                message = ChatMessage("user", new.input, media=media_of(new.parts))
                self.contexts.check_fits(tenant, session_id, asked.agent, message)
            if new.budget or asked.budget or asked.rules.budget or self._terms.budget(asked.agent):
                self._terms.check_affords(tenant, session_id, asked.agent, new.input, new.budget)
            new = self._input_guard.admitted(tenant, session_id, new, asked)
        except (Invalid, QueueFull):
            # What was accepted once is accepted again: rules, and what has been learned, may have changed since.
            if (earlier := replayed(self._database, tenant, new)) is None:
                raise
            return earlier, True
        session = NewSession(id=session_id, agent=agent)
        crash_points.reached("web.received")
        limits, terms = self.settings.limits, self._terms
        with self.files.kept(new.parts) if new.parts else nullcontext():
            turn, is_replay = submit(self._database, limits, (tenant, session), new, terms, now_ms=now_ms())
        crash_points.reached("web.committed")
        self._announce(turn, is_replay=is_replay)
        if new.double_texting in ("interrupt", "rollback") and turn.position:
            self._announcer.alert(turn.lane)
        crash_points.reached("web.answering")
        return self._waits.with_wait(turn), is_replay

    def cancel(self, tenant: Tenant, turn_id: str, action: CancelAction) -> Turn:
        """Cancel a turn: at once if nobody has started it, within a second if it is running.

        Repeating a request changes nothing; if it is cancelled twice, the stronger action wins (rollback, interrupt,
        finish).
        """
        moment_ms = now_ms()
        done = cancel(
            self._database,
            (tenant, turn_id),
            action,
            now_ms=moment_ms,
            deliver=lambda turn: Delivery.of(turn, self._bodies.of(turn), now_ms=moment_ms),
            is_exported=self.settings.trace.endpoint is not None,
        )
        if done.is_new:
            log_context.add(log_context.turn_ids(done.turn))
            log.info("turn.cancel: %s", action)
            if not done.turn.is_finished:
                self._announcer.alert(done.turn.lane)
            else:
                self._announcer.ended(done.turn)
                self.runs.turn_ended(done.turn.run_id)
                if done.delivery is not None:
                    self._announcer.deliver(done.delivery.id)
        return self._waits.with_wait(done.turn)

    def retry(self, tenant: Tenant, turn_id: str, asked: Retry) -> tuple[Turn, bool]:
        """Accept a failed turn's input once more, at the tail of its lane.

        Returns:
            The new turn, and True if it is an earlier one of the same idempotency key.
        """
        limits, terms = self.settings.limits, self._terms
        turn, is_replay = retry(self._database, limits, (tenant, turn_id), asked, terms, now_ms=now_ms())
        self._announce(turn, is_replay=is_replay)
        return self._waits.with_wait(turn), is_replay

    def turn(self, tenant: Tenant, turn_id: str) -> Turn:
        """Return a turn, or raise NotFound."""
        return self._waits.with_wait(self._turns.get(tenant, turn_id))

    def turns(
        self,
        tenant: Tenant,
        *,
        session_id: str | None = None,
        status: str | None = None,
        reason: str | None = None,
        limit: int,
        after: str | None,
    ) -> Page[Turn]:
        """List turns, the newest first; a filter that is None lets all pass."""
        filters = {"session_id": session_id, "status": status, "reason": reason}
        where = {name: value for name, value in filters.items() if value is not None}
        page = self._turns.page(tenant, where, limit=limit, after=after)
        return replace(page, items=self._waits.with_waits(page.items))

    def replay_delivery(self, tenant: Tenant, delivery_id: str, *, by: Actor = LOCAL) -> Delivery:
        """Send a delivery again, or raise NotFound."""
        delivery = self.outbox.replay(tenant, delivery_id, now_ms=now_ms(), by=by)
        self._announcer.deliver(delivery.id)
        return delivery

    def replay_message(self, tenant: Tenant, message_id: str, *, by: Actor = LOCAL) -> AgentMessage:
        """Queue a dead message between agents again; a turn that waits for messages goes on.

        Raises:
            NotFound: the tenant has no such message.
            Conflict: it is not dead (slug ``not-replayable``).
        """
        message, lanes = self.agent_messages.replay(tenant, message_id, now_ms=now_ms(), by=by)
        for lane in lanes:
            self._announcer.alert(lane)
        return message

    def check_webhook(self, webhook: Webhook) -> None:
        """Raise Invalid for a webhook that would never be served: a private target, no URL, a bad secret."""
        served = self.settings.webhook
        check(webhook, allow_private=served.allow_private, ports=served.ports)

    def response_format(self, given: Json) -> Json:
        """The form that a request's ``response_format`` asks for, as a turn keeps it; Invalid: it is none."""
        try:
            return response_format(Fields({"response_format": given["response_format"]})) or {}
        except InvalidField as error:
            place = "".join(f"/{pointer_step(step)}" for step in error.place)
            raise Invalid(str(error), (Flaw(place, error.reason),)) from error

    def set_webhook(self, tenant: Tenant, turn_id: str, webhook: Webhook | None) -> Turn:
        """Have the end of an accepted turn reported; None: nowhere. See ``check_webhook``.

        Raises:
            NotFound: the tenant has no such turn.
            Conflict: the turn has ended, or another webhook.
        """
        return self._waits.with_wait(set_webhook(self._database, tenant, turn_id, webhook))

    def agents(self) -> tuple[Agent, ...]:
        """All agents, by name."""
        return tuple(agent for _, agent in sorted(self._agents.current().agents.items()))

    def models(self, tenant: Tenant) -> Iterator[Json]:
        """The models that can be named: those of providers that have a key, and those that agents ask here."""
        rules, llm = self.workspaces.report(workspace_of(tenant)), self.settings.llm
        above = ModelChoice(rules["provider"], rules["model"])
        named = {each.id: each for agent in self.agents() for each in (llm.usual, *agent.models(llm.usual, above))}
        local = {f"{each.provider}" for each in named.values() if each.is_local}
        offered = (name for provider in {*llm.offered, *local} for name in all_of(provider))
        return map(described, sorted({*named, *offered}))

    def tools(self, tenant: Tenant, agent: str) -> tuple[Tool, ...]:
        """The tools that an agent has in the tenant's workspace; Invalid: there is no such agent, or it cannot work."""
        self._check_agent(agent)
        try:
            return self._runtimes.tools(agent, workspace=workspace_of(tenant))
        except Unavailable:
            raise
        except LoomError as error:
            raise Invalid(f"The agent {agent!r} cannot work: {error}", (Flaw("/agent", "cannot work"),)) from error

    def queue_stats(self, tenant: Tenant) -> Json:
        """How many lanes, turns and workers there are, and how old the oldest turns are that run and wait."""
        figures = self._waits.figures(tenant)
        del figures["waiting_ages"]
        return {**figures, "workers": self.health.workers()}

    def usage(self, tenant: Tenant, *, group_by: str, where: UsageFilter = ALL) -> tuple[Json, ...]:
        """What was spent, summed by one of GROUPS (``values/usage.py``)."""
        if group_by not in GROUPS:
            raise Invalid(f"group_by must be one of {', '.join(GROUPS)}.")
        return self._ledger.totals(tenant, group_by=group_by, where=where)

    def close(self) -> None:
        """Send what is still waiting to be sent, then close everything."""
        self.waiter.close()
        self.runs.waiter.close()
        self._announcer.close()
        self._components.close()
        self._database.close()

    def _announce(self, turn: Turn, *, is_replay: bool) -> None:
        if not is_replay:
            with log_context.about(log_context.turn_ids(turn)):
                log.info("turn.accepted")
                self._announcer.accepted(turn)

    def _check_asked(self, tenant: Tenant, session_id: str, agent: str | None) -> None:
        """Refuse an agent that cannot work; where none is named, only a new session would get the default one."""
        try:
            self._check_agent(agent or DEFAULT_AGENT)
        except Invalid:
            session = self.sessions.known(tenant, session_id, DEFAULT_AGENT)
            if agent is not None or session is None or session.agent == DEFAULT_AGENT:
                raise

    def _check_agent(self, name: str) -> Agent:
        return named(self._agents.current(name), name)
