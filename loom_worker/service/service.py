"""All that a client can ask of Loom; the web front end is a translation of this class to HTTP."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from loom_worker.agents.live import LiveAgents
from loom_worker.agents.load import Agents
from loom_worker.core import crash_points
from loom_worker.core.errors import Flaw, Invalid, LoomError, NotFound, Unavailable
from loom_worker.core.settings import Settings
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.memory import Snapshot
from loom_worker.core.values.notifications import Delivery, Event
from loom_worker.core.values.pages import Hit, Page
from loom_worker.core.values.sessions import DEFAULT_AGENT, Message, NewSession, Session, SessionPatch
from loom_worker.core.values.tools import DataReference, ErrorFilter, StoredError, Tool
from loom_worker.core.values.turns import CancelAction, NewTurn, Retry, Turn, Webhook
from loom_worker.lanes.lanes import Lanes
from loom_worker.service import allowed
from loom_worker.service.announcer import Announcer
from loom_worker.service.approvals import Approvals
from loom_worker.service.context_report import ContextReport
from loom_worker.service.metrics import Figures, Health
from loom_worker.service.pattern_catalog import PatternCatalog
from loom_worker.service.turn_waiter import Following
from loom_worker.store.cancel import Cancelled, cancel
from loom_worker.store.database import Database
from loom_worker.store.ledger import GROUPS, Ledger
from loom_worker.store.memory import Memories
from loom_worker.store.messages import Messages
from loom_worker.store.outbox import Outbox
from loom_worker.store.search import Search
from loom_worker.store.sessions import Sessions
from loom_worker.store.submit import replayed, retry, submit
from loom_worker.store.tool_errors import ToolErrors
from loom_worker.store.turns import Turns
from loom_worker.tools.references import References
from loom_worker.turn.agent_runtime import AgentRuntimes
from loom_worker.webhook.body import WebhookBodies
from loom_worker.webhook.send import check

log = logging.getLogger(__name__)

SETTLE_S = 0.1
"""After a deletion. Whoever sends a session's text asks the database on an open connection, just before the first byte:
one that was told yes before the deletion has begun by then."""
CHECKED_BYTES = 400
"""A shorter message fits any window worth having."""


class Closeable(Protocol):
    """What is closed with the service (``runtime/components.py``: Components)."""

    def close(self) -> None:
        """End child processes and servers, close connections."""
        ...


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """What the service works with besides the store."""

    announcer: Announcer
    runtimes: AgentRuntimes
    contexts: ContextReport
    patterns: PatternCatalog
    references: References
    bodies: WebhookBodies
    health: Health
    figures: Figures
    components: Closeable

    def close(self) -> None:
        """Send what waits, then close what the service works with."""
        self.announcer.close()
        self.components.close()


class Service:
    """One workspace at a time, as the caller names it; what belongs to others is not found."""

    def __init__(
        self,
        settings: Settings,
        *,
        database: Database,
        lanes: Lanes,
        following: Following,
        agents: Agents | LiveAgents,
        parts: ServiceParts,
    ) -> None:
        self.settings = settings
        self._database = database
        self._lanes = lanes
        self._following = following
        self._agents = agents
        self._parts = parts
        self._announcer = parts.announcer
        self._sessions = Sessions(database)
        self._turns = Turns(database)
        self._messages = Messages(database)
        self._memories = Memories(database)
        self._search = Search(database)
        self._outbox = Outbox(database)
        self._ledger = Ledger(database)
        self.approvals = Approvals(database, agents=parts.runtimes, announcer=parts.announcer, waits=following.waits)
        self.patterns = parts.patterns
        self._waits = following.waits
        self._errors = ToolErrors(database)

    def create_session(self, workspace: str, new: NewSession) -> Session:
        """Make a session.

        Raises:
            Conflict: the id exists.
            Invalid: there is no such agent, or the kernel is larger than its share of the agent's window.
        """
        agent = new.agent or DEFAULT_AGENT
        self._check_agent(agent)
        if new.kernel:
            self._parts.contexts.check_kernel(agent, new.kernel)
        return self._sessions.create(workspace, new, now_ms=now_ms())

    def session(self, workspace: str, session_id: str) -> Session:
        """Return a session, or raise NotFound."""
        return self._sessions.get(workspace, session_id)

    def sessions(self, workspace: str, *, limit: int, after: str | None) -> Page[Session]:
        """List sessions, the newest first."""
        return self._sessions.page(workspace, limit=limit, after=after)

    def patch_session(self, workspace: str, session_id: str, patch: SessionPatch) -> Session:
        """Change a session; one that becomes active goes on with its queue.

        Raises:
            NotFound: the workspace has no such session.
            Invalid: its agent does not allow that, or the kernel is larger than its share of the window.
        """
        self._check_patch(workspace, session_id, patch)
        session = self._sessions.patch(workspace, session_id, patch, now_ms=now_ms())
        if patch.status == "active" and session.queue_depth:
            self._announcer.wake(session.lane)
        return session

    def delete_session(self, workspace: str, session_id: str) -> None:
        """Delete a session, or raise NotFound; its rows go by and by, but nothing sends its text from now on."""
        deleted = self._sessions.delete(workspace, session_id)
        time.sleep(SETTLE_S)
        try:
            self._lanes.forget(deleted.lane)
            self._following.forget(deleted.turns)
        except Unavailable:  # of the lane nothing is in the database, and the sweep removes the event logs
            return

    def submit(self, workspace: str, session_id: str, new: NewTurn, *, agent: str | None) -> tuple[Turn, bool]:
        """Accept a turn at the tail of its session's lane; when this returns it will not be lost.

        Returns:
            The turn, and True if it is an earlier one of the same idempotency key.

        Raises:
            Conflict, Invalid, QueueFull: nothing was accepted; Invalid also if the session has another agent.
            Unavailable: the database did not answer; nothing was accepted.
        """
        self._check_asked(workspace, session_id, agent)
        if len(new.input.encode()) > CHECKED_BYTES:
            try:
                self._parts.contexts.check_fits(workspace, session_id, agent or "default", new.input)
            except Invalid:
                # What was accepted once is accepted again: it may be larger by what has been learned since.
                if (earlier := replayed(self._database, workspace, new)) is None:
                    raise
                return earlier, True
        session = NewSession(id=session_id, agent=agent)
        crash_points.reached("web.received")
        turn, is_replay = submit(self._database, self.settings.limits, (workspace, session), new, now_ms=now_ms())
        crash_points.reached("web.committed")
        self._announce(turn, is_replay=is_replay)
        if new.double_texting in ("interrupt", "rollback") and turn.position:
            self._announcer.alert(turn.lane)
        crash_points.reached("web.answering")
        return self._waits.told(turn), is_replay

    def cancel(self, workspace: str, turn_id: str, action: CancelAction) -> Turn:
        """Wish a turn to end: one that nobody has begun is cancelled at once, one that runs within a second.

        Repeats change nothing; of two asks the stronger one holds (rollback, interrupt, finish).

        Raises:
            NotFound: the workspace has no such turn.
            Unavailable: the database did not answer; nothing was changed.
        """
        moment_ms = now_ms()
        done = cancel(
            self._database,
            workspace,
            turn_id,
            action,
            now_ms=moment_ms,
            deliver=lambda turn: Delivery.of(turn, self._parts.bodies.of(turn), now_ms=moment_ms),
        )
        if done.is_new:
            log.info("cancel: %s", action, extra={"session": done.turn.session_id, "turn": turn_id})
            self._tell(done)
        return self._waits.told(done.turn)

    def retry(self, workspace: str, turn_id: str, asked: Retry) -> tuple[Turn, bool]:
        """Accept a failed turn's input once more, at the tail of its lane.

        Returns:
            The new turn, and True if it is an earlier one of the same idempotency key.

        Raises:
            NotFound: the workspace has no such turn.
            Conflict: the turn did not fail, or its session is archived.
            QueueFull, Invalid, Unavailable: nothing was accepted.
        """
        turn, is_replay = retry(self._database, self.settings.limits, workspace, turn_id, asked, now_ms=now_ms())
        self._announce(turn, is_replay=is_replay)
        return self._waits.told(turn), is_replay

    def turn(self, workspace: str, turn_id: str) -> Turn:
        """Return a turn, or raise NotFound."""
        return self._waits.told(self._turns.get(workspace, turn_id))

    def wait(self, workspace: str, turn_id: str, *, timeout_s: float, is_stopping: Callable[[], bool]) -> Turn:
        """Return a turn as soon as it has ended, or as it is after timeout_s."""
        return self._following.wait(workspace, turn_id, timeout_s=timeout_s, is_stopping=is_stopping)

    def events(
        self, workspace: str, turn_id: str, *, after: int, is_stopping: Callable[[], bool]
    ) -> Iterator[Event | None]:
        """Events of a turn behind an id, as they come; None after 15 s of silence. Ends after a final one."""
        return self._following.events(workspace, turn_id, after=after, is_stopping=is_stopping)

    def turns(
        self,
        workspace: str,
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
        page = self._turns.page(workspace, where, limit=limit, after=after)
        return replace(page, items=self._waits.told_all(page.items))

    def messages(self, workspace: str, session_id: str, *, limit: int, after: str | None) -> Page[Message]:
        """List a session's messages, oldest first."""
        return self._messages.page(workspace, session_id, limit=limit, after=after)

    def message(self, workspace: str, session_id: str, message_id: str) -> Message:
        """One message, whole; NotFound."""
        return self._messages.get(workspace, session_id, message_id)

    def search(self, workspace: str, session_id: str, question: str, *, limit: int) -> tuple[Hit, ...]:
        """Find a session's messages that a question is about, the best first."""
        return self._search.session(workspace, session_id, question, limit=limit)

    def context(self, workspace: str, session_id: str) -> Json:
        """What the model would be sent now, by layer, or raise NotFound."""
        return self._parts.contexts.context(workspace, session_id)

    def recall(self, workspace: str, session_id: str, message_ids: Sequence[str]) -> int:
        """Put messages back into a session's context, until they are cleared; the tokens of all recalled ones.

        Raises:
            NotFound: the workspace has no such session.
            Invalid: the session has no such message, or together they are too large; nothing was changed.
        """
        return self._parts.contexts.recall(workspace, session_id, message_ids)

    def clear_recalled(self, workspace: str, session_id: str) -> None:
        """Take all recalled messages out of a session's context, or raise NotFound."""
        self._parts.contexts.clear_recalled(workspace, session_id)

    def snapshots(self, workspace: str, session_id: str, *, limit: int, after: str | None) -> Page[Snapshot]:
        """List a session's former summaries, the newest first."""
        return self._memories.snapshots(workspace, session_id, limit=limit, after=after)

    def deliveries(self, workspace: str, *, limit: int, after: str | None) -> Page[Delivery]:
        """List webhook deliveries, the newest first."""
        return self._outbox.page(workspace, limit=limit, after=after)

    def replay_delivery(self, workspace: str, delivery_id: str) -> Delivery:
        """Send a delivery again, or raise NotFound."""
        delivery = self._outbox.replay(workspace, delivery_id, now_ms=now_ms())
        self._announcer.deliver(delivery.id)
        return delivery

    def errors(self, workspace: str, wanted: ErrorFilter, *, limit: int, after: str | None) -> Page[StoredError]:
        """List errors of tools, the newest first."""
        return self._errors.page(workspace, wanted, limit=limit, after=after)

    def error(self, workspace: str, error_id: str) -> StoredError:
        """One error, whole; NotFound."""
        return self._errors.get(workspace, error_id)

    def blob(self, workspace: str, ref: str) -> tuple[DataReference, bytes]:
        """A large result, whole and verified; NotFound."""
        return self._parts.references.open(workspace, ref)

    def check_webhook(self, webhook: Webhook) -> None:
        """Raise Invalid for a webhook that would never be served: a private target, no URL, a bad secret."""
        check(webhook, allow_private=self.settings.webhook.allow_private)

    def agents(self) -> tuple[Agent, ...]:
        """All agents, by name."""
        return tuple(agent for _, agent in sorted(self._agents.current().agents.items()))

    def tools(self, agent: str) -> tuple[Tool, ...]:
        """The tools of an agent.

        Raises:
            Invalid: there is no such agent, or it cannot work.
        """
        self._check_agent(agent)
        try:
            return self._parts.runtimes.tools(agent)
        except LoomError as error:
            raise Invalid(f"The agent {agent!r} cannot work: {error}", (Flaw("/agent", "cannot work"),)) from error

    def queue_stats(self, workspace: str) -> Json:
        """How many lanes, turns and workers there are, and how old the oldest turns are that run and wait."""
        figures = self._waits.figures(workspace)
        del figures["waiting_ages"]
        return {**figures, "workers": self._parts.health.workers()}

    def usage(self, workspace: str, *, group_by: str) -> tuple[Json, ...]:
        """What was spent, summed by session, agent, model, workspace or day."""
        if group_by not in GROUPS:
            raise Invalid(f"group_by must be one of {', '.join(GROUPS)}.")
        return self._ledger.totals(workspace, group_by=group_by)

    def readiness(self) -> tuple[str, ...]:
        """What is missing before a turn could be answered; empty: ready."""
        return self._parts.health.problems()

    def metrics(self) -> Json:
        """Figures over all workspaces."""
        return self._parts.figures.all()

    def close(self) -> None:
        """Flush what waits to be sent and close everything."""
        self._parts.close()
        self._database.close()

    def _announce(self, turn: Turn, *, is_replay: bool) -> None:
        if not is_replay:
            log.info("turn accepted", extra={"session": turn.session_id, "turn": turn.id, "request": turn.request_id})
            self._announcer.accepted(turn)

    def _tell(self, done: Cancelled) -> None:
        if not done.turn.is_finished:
            self._announcer.alert(done.turn.lane)
            return
        self._announcer.ended(done.turn)
        if done.delivery is not None:
            self._announcer.deliver(done.delivery.id)

    def _check_patch(self, workspace: str, session_id: str, patch: SessionPatch) -> None:
        if patch.tools is None and patch.backend is None and patch.agent is None and not patch.kernel:
            return
        name = self._sessions.get(workspace, session_id).agent
        agent = self._check_agent(name)
        tools = () if patch.tools is None else self.tools(name)
        allowed.check(patch, agent, [tool.spec.name for tool in tools])
        if patch.kernel:
            self._parts.contexts.check_kernel(name, patch.kernel)

    def _check_asked(self, workspace: str, session_id: str, agent: str | None) -> None:
        """Refuse an agent that cannot work; where none is named, only a new session would get the default one."""
        try:
            self._check_agent(agent or DEFAULT_AGENT)
        except Invalid:
            with suppress(NotFound):
                if agent is None and self._sessions.get(workspace, session_id).agent != DEFAULT_AGENT:
                    return
            raise

    def _check_agent(self, name: str) -> Agent:
        return allowed.named(self._agents.current(name), name)
