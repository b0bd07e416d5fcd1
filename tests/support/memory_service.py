"""The seam under ``web`` in memory: a small Service that keeps, orders, waits and streams as the real one does."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from loom_worker.core.errors import Conflict, Flaw, Invalid, NotFound, QueueFull, Unavailable
from loom_worker.core.settings import Settings
from loom_worker.core.values.agents import Agent, Backend
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.ids import new_id, now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.memory import Snapshot
from loom_worker.core.values.notifications import Delivery, Event
from loom_worker.core.values.pages import Excerpt, Hit, Page
from loom_worker.core.values.sessions import DEFAULT_AGENT, Message, NewSession, Session, SessionPatch
from loom_worker.core.values.tools import Tool
from loom_worker.core.values.turns import STRENGTH, Call, CancelAction, NewTurn, Retry, Turn, TurnStatus, Webhook
from loom_worker.service import allowed
from tests.support.callers import a_tool
from tests.support.memory_parts import (
    asked_again,
    dead_delivery,
    metrics_of,
    new_session,
    page_of,
    queued_turn,
    refuse_private,
    said_in,
    stats_of,
    usage_rows,
)
from tests.support.memory_recall import Recollections
from tests.support.memory_results import Decisions, Leftovers

HEARTBEAT_S = 15.0
_LOOK_S = 0.02
"""How often a waiter asks whether it must stop."""


@dataclass
class MemoryService(Leftovers):
    """All state in dictionaries behind one condition; ``start``, ``say`` and ``finish`` play the worker."""

    settings: Settings = field(default_factory=Settings)
    missing: tuple[str, ...] = ()
    """What readiness tells."""
    is_down: bool = False
    """True: every call fails as with a database that does not answer."""
    is_closed: bool = False
    webhooks_checked: list[Webhook] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._sessions: dict[tuple[str, str], Session] = {}
        self._turns: dict[str, Turn] = {}
        self._lanes: dict[str, list[str]] = {}
        self._keys: dict[tuple[str, str], tuple[str | None, str]] = {}
        self._events: dict[str, list[Event]] = {}
        self._messages: list[Message] = []
        self._deliveries: dict[str, Delivery] = {}
        self.memory = Recollections(self._said)
        self.approvals = Decisions(self.turn, self._put)
        self.new_turns: list[NewTurn] = []
        self.waiters = 0

    def create_session(self, workspace: str, new: NewSession) -> Session:
        with self._locked():
            session_id = new.id or new_id("sess_")
            if (workspace, session_id) in self._sessions:
                raise Conflict(f"session {session_id} exists", "session-exists")
            self._known_agent(new.agent or DEFAULT_AGENT)
            made = new_session(workspace, session_id, new)
            self._sessions[workspace, session_id] = made
            self._lanes[made.lane] = []
            return made

    def session(self, workspace: str, session_id: str) -> Session:
        with self._locked():
            found = self._sessions.get((workspace, session_id))
            if found is None:
                raise NotFound("no such session")
            depth = len(self._unfinished(found))
            return replace(found, queue_depth=depth, is_busy=depth > 0)

    def sessions(self, workspace: str, *, limit: int, after: str | None) -> Page[Session]:
        with self._locked():
            mine = [item for item in self._sessions.values() if item.workspace == workspace]
            return page_of(mine, limit=limit, after=after, id_of=lambda item: item.id)

    def patch_session(self, workspace: str, session_id: str, patch: SessionPatch) -> Session:
        with self._locked():
            found = self.session(workspace, session_id)
            allowed.check(patch, self.agents()[0], [tool.spec.name for tool in self.tools(found.agent)])
            self._sessions[workspace, session_id] = replace(found, **patch.changes(), updated_ms=now_ms())
            return self.session(workspace, session_id)

    def delete_session(self, workspace: str, session_id: str) -> None:
        with self._locked():
            gone = self.session(workspace, session_id)
            del self._sessions[workspace, session_id]
            for turn_id in self._lanes.pop(gone.lane):
                del self._turns[turn_id]
                del self._events[turn_id]
            self._keys = {key: known for key, known in self._keys.items() if known[1] in self._turns}
            self._messages = [said for said in self._messages if said.turn_id in self._turns]
            self._changed.notify_all()

    def submit(self, workspace: str, session_id: str, new: NewTurn, *, agent: str | None) -> tuple[Turn, bool]:
        with self._locked():
            replay = self._replay(workspace, new)
            if replay is not None:
                return replay, True
            session = self._session_for(workspace, session_id, agent)
            queue = self._unfinished(session)
            if session.status == "archived":
                raise Conflict(f"session {session_id} is archived", "session-archived")
            if queue and new.double_texting == "reject":
                raise Conflict(f"session {session_id} is busy", "lane-busy")
            if len(queue) >= self.settings.limits.lane_depth:
                raise QueueFull("the session's lane is full", 1.5)
            if new.double_texting in ("interrupt", "rollback"):
                self._wish([turn for turn in queue if turn.started_ms], new.double_texting)
            return self._accept(session, new, position=len(queue)), False

    def cancel(self, workspace: str, turn_id: str, action: CancelAction) -> Turn:
        with self._locked():
            self._wish([self.turn(workspace, turn_id)], action)
            found = self.turn(workspace, turn_id)
            if found.started_ms is None and not found.is_finished and action != "finish":
                return self._end(turn_id, "cancelled", found.cancel)
            return found

    def retry(self, workspace: str, turn_id: str, new: Retry) -> tuple[Turn, bool]:
        with self._locked():
            failed = self.turn(workspace, turn_id)
            again = asked_again(failed, new)
            if failed.status != "failed" and self._replay(workspace, again) is None:
                raise Conflict(f"turn {turn_id} did not fail", "not-retryable")
            return self.submit(workspace, failed.session_id, again, agent=None)

    def turn(self, workspace: str, turn_id: str) -> Turn:
        with self._locked():
            found = self._turns.get(turn_id)
            if found is None or found.workspace != workspace:
                raise NotFound("no such turn")
            return found

    def wait(self, workspace: str, turn_id: str, *, timeout_s: float, is_stopping: Callable[[], bool]) -> Turn:
        deadline = time.monotonic() + timeout_s
        with self._waiting():
            while True:
                found = self.turn(workspace, turn_id)
                left_s = deadline - time.monotonic()
                if found.is_finished or left_s <= 0 or is_stopping():
                    return found
                self._changed.wait(min(left_s, _LOOK_S))

    def events(
        self, workspace: str, turn_id: str, *, after: int, is_stopping: Callable[[], bool]
    ) -> Iterator[Event | None]:
        self.turn(workspace, turn_id)
        while not is_stopping():
            fresh = self._fresh_events(turn_id, after, is_stopping)
            if not fresh and not is_stopping() and not self._has_ended(turn_id, after):
                yield None
            yield from fresh
            after += len(fresh)
            if self._has_ended(turn_id, after):
                return

    def turns(
        self,
        workspace: str,
        *,
        session_id: str | None,
        status: str | None,
        reason: str | None,
        limit: int,
        after: str | None,
    ) -> Page[Turn]:
        with self._locked():
            if session_id is not None:
                self.session(workspace, session_id)
            mine = [
                turn
                for turn in reversed(self._turns.values())
                if turn.workspace == workspace
                and session_id in (None, turn.session_id)
                and status in (None, turn.status)
                and reason in (None, turn.reason)
            ]
            return page_of(mine, limit=limit, after=after, id_of=lambda turn: turn.id)

    def messages(self, workspace: str, session_id: str, *, limit: int, after: str | None) -> Page[Message]:
        with self._locked():
            mine = self._said(self.session(workspace, session_id))
            return page_of(mine, limit=limit, after=after, id_of=lambda item: item.id)

    def search(self, workspace: str, session_id: str, question: str, *, limit: int) -> tuple[Hit, ...]:
        said = self.messages(workspace, session_id, limit=1000, after=None).items
        found = [item for item in said if question and question in item.chat.text]
        return tuple(_hit(item) for item in found[:limit])

    def context(self, workspace: str, session_id: str) -> Json:
        return self.memory.context(self.session(workspace, session_id))

    def recall(self, workspace: str, session_id: str, message_ids: Sequence[str]) -> int:
        return self.memory.recall(self.session(workspace, session_id), message_ids)

    def clear_recalled(self, workspace: str, session_id: str) -> None:
        self.memory.clear(self.session(workspace, session_id))

    def snapshots(self, workspace: str, session_id: str, *, limit: int, after: str | None) -> Page[Snapshot]:
        return self.memory.snapshots(self.session(workspace, session_id), limit=limit, after=after)

    def deliveries(self, workspace: str, *, limit: int, after: str | None) -> Page[Delivery]:
        with self._locked():
            mine = [item for item in self._deliveries.values() if item.workspace == workspace]
            return page_of(mine, limit=limit, after=after, id_of=lambda item: item.id)

    def replay_delivery(self, workspace: str, delivery_id: str) -> Delivery:
        with self._locked():
            found = self._deliveries.get(delivery_id)
            if found is None or found.workspace != workspace:
                raise NotFound("no such delivery")
            self._deliveries[delivery_id] = again = replace(found, status="pending", next_ms=now_ms())
            return again

    def check_webhook(self, webhook: Webhook) -> None:
        self.webhooks_checked.append(webhook)
        refuse_private(webhook)

    def agents(self) -> tuple[Agent, ...]:
        data = Backend(url="db://user:pass@host", databases=("north", "south"))
        return (Agent("default", description="Answers", raw={"secret": "raw"}, backend=data),)

    def tools(self, agent: str) -> tuple[Tool, ...]:
        self._known_agent(agent)
        nothing = {"type": "object", "properties": {}}
        return (a_tool("clock", "Tells the time", nothing), a_tool("dice", "Rolls", nothing))

    def queue_stats(self, workspace: str) -> Json:
        with self._locked():
            return stats_of([turn for turn in self._turns.values() if turn.workspace == workspace])

    def usage(self, workspace: str, *, group_by: str) -> tuple[Json, ...]:
        with self._locked():
            mine = (turn for turn in self._turns.values() if turn.workspace == workspace)
            return usage_rows(mine, group_by=group_by)

    def metrics(self) -> Json:
        return metrics_of(None if self.is_down else [*self._turns.values()])

    def readiness(self) -> tuple[str, ...]:
        return self.missing

    def close(self) -> None:
        self.is_closed = True

    def start(self, turn_id: str) -> None:
        """A worker takes the turn."""
        with self._locked():
            self._turns[turn_id] = replace(self._turns[turn_id], status="in_progress", started_ms=now_ms())
            self._append(turn_id, "turn.started", {})

    def say(self, turn_id: str, text: str) -> None:
        """The model streams a piece of its answer."""
        with self._locked():
            self._append(turn_id, "output_text.delta", {"text": text})

    def ask_person(self, turn_id: str, *calls: Call) -> None:
        """The turn waits for a person to decide on its tool calls."""
        self._put(replace(self.turn("default", turn_id), status="requires_action", started_ms=now_ms(), calls=calls))

    def finish(self, turn_id: str, output_text: str = "done") -> Turn:
        """The turn ends with an answer: messages, webhook and final event come with it."""
        with self._locked():
            usage = Usage(input_tokens=3, output_tokens=2, cost_usd=0.001, llm_calls=1)
            self._turns[turn_id] = answered = replace(self._turns[turn_id], output_text=output_text, usage=usage)
            self._messages += said_in(answered)
            return self._end(turn_id, "completed", None)

    def heed(self, turn_id: str) -> Turn:
        """The worker hears how the running turn shall end, and ends it so."""
        with self._locked():
            wish = self._turns[turn_id].cancel
            assert wish is not None, "nobody wished it to end"
            return self.finish(turn_id) if wish == "finish" else self._end(turn_id, "cancelled", wish)

    def die(self, turn_id: str, reason: str = "dead") -> Turn:
        """The turn fails for good."""
        with self._locked():
            return self._end(turn_id, "failed", reason)

    def count(self) -> int:
        """How many sessions and turns are stored."""
        return len(self._sessions) + len(self._turns)

    def await_waiters(self, count: int, *, within_s: float = 5.0) -> bool:
        """Block until so many waits and streams are open; False if that does not come about."""
        with self._changed:
            return self._changed.wait_for(lambda: self.waiters == count, within_s)

    def _said(self, session: Session) -> list[Message]:
        return [item for item in self._messages if self._turns[item.turn_id].lane == session.lane]

    def _locked(self) -> threading.Condition:
        if self.is_down:
            raise Unavailable("the database does not answer")
        return self._changed

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        with self._locked():
            self.waiters += 1
            self._changed.notify_all()
            try:
                yield
            finally:
                self.waiters -= 1
                self._changed.notify_all()

    def _fresh_events(self, turn_id: str, after: int, is_stopping: Callable[[], bool]) -> list[Event]:
        deadline = time.monotonic() + HEARTBEAT_S
        with self._waiting():
            while not (fresh := self._log(turn_id)[after:]) and not self._has_ended(turn_id, after):
                if is_stopping() or time.monotonic() >= deadline:
                    break
                self._changed.wait(_LOOK_S)
            return fresh

    def _has_ended(self, turn_id: str, after: int) -> bool:
        log = self._log(turn_id)
        return log[-1].is_final and after >= len(log)

    def _log(self, turn_id: str) -> list[Event]:
        if turn_id not in self._events:
            raise NotFound("no such turn")
        return self._events[turn_id]

    def _replay(self, workspace: str, new: NewTurn) -> Turn | None:
        if new.idempotency_key is None or (workspace, new.idempotency_key) not in self._keys:
            return None
        fingerprint, turn_id = self._keys[workspace, new.idempotency_key]
        if fingerprint != new.fingerprint:
            raise Invalid("this Idempotency-Key came with another body", (), "idempotency-mismatch")
        return self._turns[turn_id]

    def _session_for(self, workspace: str, session_id: str, agent: str | None) -> Session:
        if (workspace, session_id) not in self._sessions:
            return self.create_session(workspace, NewSession(id=session_id, agent=agent))
        session = self._sessions[workspace, session_id]
        if agent is not None:
            self._known_agent(agent)
            if agent != session.agent:
                raise Invalid(f"the session's agent is {session.agent}", (Flaw("/agent", "another"),), "agent-mismatch")
        return session

    def _accept(self, session: Session, new: NewTurn, *, position: int) -> Turn:
        made = queued_turn(session, new, seq=1 + len(self._lanes[session.lane]), position=position)
        self.new_turns.append(new)
        self._turns[made.id] = made
        self._lanes[session.lane].append(made.id)
        if new.idempotency_key is not None:
            self._keys[session.workspace, new.idempotency_key] = (new.fingerprint, made.id)
        self._events[made.id] = []
        self._append(made.id, "turn.queued", {"position": position})
        return made

    def _known_agent(self, name: str) -> None:
        if name not in {agent.name for agent in self.agents()}:
            raise Invalid(f"no agent is called {name}", (Flaw("/agent", "unknown agent"),))

    def _unfinished(self, session: Session) -> list[Turn]:
        turns = (self._turns[turn_id] for turn_id in self._lanes[session.lane])
        return [turn for turn in turns if not turn.is_finished]

    def _append(self, turn_id: str, kind: str, data: Json) -> None:
        log = self._events[turn_id]
        log.append(Event(len(log) + 1, kind, data))
        self._changed.notify_all()

    def _put(self, turn: Turn) -> None:
        with self._locked():
            self._turns[turn.id] = turn

    def _wish(self, turns: list[Turn], action: CancelAction) -> None:
        """The stronger of two asks holds; a turn that has ended hears none."""
        for turn in turns:
            if not turn.is_finished and STRENGTH[action] > STRENGTH[turn.cancel]:
                self._turns[turn.id] = replace(turn, cancel=action)

    def _end(self, turn_id: str, status: TurnStatus, reason: str | None) -> Turn:
        ended = replace(self._turns[turn_id], status=status, reason=reason, completed_ms=now_ms())
        self._turns[turn_id] = ended
        if ended.webhook is not None:
            made = dead_delivery(ended, ended.webhook)
            self._deliveries[made.id] = made
        self._append(turn_id, f"turn.{status}", ended.as_json())
        return ended


def _hit(item: Message) -> Hit:
    snippet = item.chat.text[:200]
    passage = (Excerpt(item.id, item.turn_id, item.chat.role, snippet),)
    return Hit(item.id, item.turn_id, item.chat.role, snippet, 1.0, passage)
