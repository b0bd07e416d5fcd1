"""A session's memory is compressed in steps, one after the other, until nothing is due.

L1's oldest messages become a summary, a full L2 a snapshot, and what left L1 a summary by date and facts. Every step
is made from one version of the session's memory and applied only to that version. So it does no harm if it comes late,
twice, or never; the session stays due until somebody has done it.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from loom_worker.core import crash_points, log_context, metrics
from loom_worker.core.errors import Interrupted, Unavailable
from loom_worker.core.monitor import UNMONITORED, Monitor, Work
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.budgets import Payer, Settlement
from loom_worker.core.values.facts import LearnedFacts
from loom_worker.core.values.ids import new_id, now_ms, now_us
from loom_worker.core.values.memory import Change, ChangeKind, DatedSummary, MemoryPolicy, MemoryState, Summary
from loom_worker.core.values.sessions import Message, Session
from loom_worker.core.values.traces import Interval
from loom_worker.lanes.lease_renewer import LiveWorkers
from loom_worker.llm.model import OnBudget, Revocable
from loom_worker.memory import dated, summarize
from loom_worker.memory.dated import Noted
from loom_worker.memory.embed import DONE, MessageEmbedding, NoVectors
from loom_worker.memory.kernel import kept
from loom_worker.memory.layers import turns
from loom_worker.memory.pressure import Batch, batch, kept_tokens, l2_is_full
from loom_worker.memory.results import Sizes
from loom_worker.memory.summarize import CompressionRules
from loom_worker.store.budgets import Budgets
from loom_worker.store.facts import Facts
from loom_worker.store.ledger import Charge
from loom_worker.store.memory import Memories, MemoryClaim, NewMemory, NewSnapshot
from loom_worker.trace.flush import Flusher, NoTraces
from loom_worker.trace.later import of_compression

log = logging.getLogger(__name__)

READ = 1_000
"""Messages of L1 looked at in one step, more than it holds at ease; what is behind them comes with the next. Also the
facts, those last said first, among which those are looked for that a part of a conversation is about."""
BACKLOG = 400
"""Messages of L1 of which half become one summary, where a policy names smaller batches."""
READABLE = 0.8
"""Share of what a request to the compressor may hold: the rest is for the instructions, and for who said what and
when."""
DUE = 50
"""Sessions asked for at a time, when one is done and others are due."""
STEPS = 20
"""Taken at a time; a session that needs more waits until all that are due had theirs."""
THREADS_PER_SESSION = 4
"""A process works on one session for every so many of its threads: the others are for tools, which turns wait for."""


@dataclass(frozen=True, slots=True)
class _Work:
    lane: str
    held: MemoryClaim
    rules: CompressionRules
    payer: Payer
    paid: OnBudget | None
    """The model of ``rules``, as far as budgets see it; None: there is none."""
    made: list[str] = field(default_factory=list)
    """What was done so far, for the monitor."""

    def wants_model(self, kind: str) -> bool:
        is_alone = kind == "summarized" and self.rules.tiers is not None and self.rules.tiers.strategy == "heuristic"
        return self.rules.model is not None and not is_alone

    def charge(self, summary: Summary) -> Charge | None:
        """What a summary cost; None if no model was asked."""
        owner, usage = self.held.session, summary.usage
        if not usage.llm_calls:
            return None
        settlement = Settlement(self.payer, usage.amount(), self.paid.take() if self.paid else ())
        return Charge(
            owner.workspace, owner.id, owner.agent, summary.asked, usage, kind="summary", settlement=settlement
        )


@dataclass(frozen=True, slots=True)
class _Step:
    after: MemoryState
    summary: Summary
    snapshot: NewSnapshot | None = None
    dated: DatedSummary | None = None
    learned: LearnedFacts | None = None


class CompressionAgents(Protocol):
    """Where the rules of a session's agent are found (``runtime/agents.py``: AgentRegistry)."""

    def compression(self, session: Session) -> CompressionRules:
        """What the session's memory is compressed by."""


@dataclass(frozen=True, slots=True)
class Compressor:
    """Compresses the memory of sessions that are due, a few at a time."""

    worker: str
    """This process' name."""
    memories: Memories
    facts: Facts
    budgets: Budgets
    agents: CompressionAgents
    workers: LiveWorkers
    stopping: Stopping
    slots: threading.Semaphore
    """One for each session that may be worked on at a time."""
    in_progress: set[str] = field(default_factory=set)
    """Lanes that this process works on. A claim of its own that is not among them was left by a failed release."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Guards ``in_progress``."""
    embedding: MessageEmbedding | NoVectors = field(default_factory=NoVectors)
    traces: Flusher | NoTraces = field(default_factory=NoTraces)
    """Is told of spans that are to be exported."""
    monitor: Monitor = UNMONITORED
    clock_ms: Callable[[], int] = field(default=now_ms)

    def serve(self, lane: str) -> None:
        """Compress a session's memory, then that of others that are due; nothing if all slots are taken.

        Those at work look for what is due before they leave, so a wake-up that finds no slot is not lost. A session
        that needs many steps lets the others go first.
        """
        if not self.slots.acquire(blocking=False):
            return
        try:
            seen: set[str] = set()
            lanes = [lane]
            while lanes and not self.stopping.is_asked:
                lane = lanes.pop(0)
                seen.add(lane)
                must_go_on = self._compress_or_log(lane)
                if not lanes:
                    due = self.memories.due(due_before_ms=self.clock_ms(), limit=DUE)
                    lanes = [other for other in due if other not in seen]
                if must_go_on:
                    lanes.append(lane)
        finally:
            self.slots.release()

    def _compress_or_log(self, lane: str) -> bool:
        try:
            return self.compress(lane)
        except Unavailable:
            raise
        except Exception:  # a session that cannot be compressed stays due, and must not keep those behind it waiting
            log.exception("memory could not be compressed", extra={"lane": lane})
            return False

    def compress(self, lane: str) -> bool:
        """Take step after step until a memory that is due is at ease; nothing if another worker is at it.

        Returns:
            True if there is more to do: the session took STEPS steps, or has become due again meanwhile.
        """
        with self.lock:
            if lane in self.in_progress:
                return False
            self.in_progress.add(lane)
        try:
            held = self.memories.claim(lane, worker=self.worker, alive=self.workers.alive(), now_ms=self.clock_ms())
            if held is None:
                return False
            with log_context.about(_log_ids(lane, held)):
                return self._compress(lane, held)
        finally:
            self.in_progress.discard(lane)

    def _compress(self, lane: str, held: MemoryClaim) -> bool:
        crash_points.reached("summary.claimed")
        is_done, was_interrupted, embedded = False, False, DONE
        task = _monitored(lane, held, began_ms=self.clock_ms())
        self.monitor.started(task)
        try:
            work = self._work(lane, held)
            state: MemoryState | None = held.state
            left = STEPS
            while state is not None and left and not self.stopping.is_asked:
                state = self._advance(work, state)
                left -= 1
            embedded = self.embedding.embed(held.session) if state is None else DONE
            is_done = state is None and not embedded.must_go_on
            made = [*work.made, *([f"{embedded.messages} vectors"] if embedded.messages else [])]
            self.monitor.succeeded(task, f"summaries: {', '.join(made) or 'none'}", run_ms=self._ms_since(task))
        except Interrupted as error:
            was_interrupted = True
            log.info("summary left to another worker: %s", error, extra={"session": held.session.id})
            self.monitor.waits(task, "another worker", run_ms=self._ms_since(task))
        except Exception as error:
            self.monitor.failed(task, type(error).__name__, run_ms=self._ms_since(task))
            raise
        finally:
            again_ms = embedded.again_ms
            is_due = self.memories.release(
                lane, self.worker, is_done=is_done, seen_due_ms=held.due_ms, again_ms=again_ms
            )
        return is_due or not (is_done or was_interrupted)

    def _ms_since(self, task: Work) -> int:
        return self.clock_ms() - task.entry

    def _work(self, lane: str, held: MemoryClaim) -> _Work:
        """What its agent compresses it by; what the model is sent ends with the session, and is paid for by it."""
        owner, rules = held.session, self.agents.compression(held.session)
        payer = Payer(owner.workspace, lane, owner.agent, rules.agent_budget)
        if rules.model is None:
            return _Work(lane, held, rules, payer, None)
        paid = OnBudget(rules.model, self.budgets, payer, rules.count)
        model = Revocable(paid, lambda: self.memories.is_there(lane))
        return _Work(lane, held, replace(rules, model=model), payer, paid)

    def _advance(self, work: _Work, state: MemoryState) -> MemoryState | None:
        """Take one step; the state it led to, or None if none was due or somebody else changed the memory."""
        lane, session_id, began_us = work.lane, work.held.session.id, now_us()
        step = self._next(work, state)
        if step is None:
            return None
        crash_points.reached("summary.made")
        change, turn = step.after.changes[-1], work.held.turn
        told = of_compression(turn, change, step.summary, Interval(began_us, now_us())) if turn else None
        told = told and replace(told, is_exported=self.traces.exports)
        new = NewMemory(step.after, step.snapshot, step.dated, step.learned, work.charge(step.summary), told)
        is_applied = self.memories.apply(lane, state, new, now_ms=self.clock_ms())
        crash_points.reached("summary.applied")
        self.traces.added(1)
        if not is_applied:
            log.info("summary came too late", extra={"session": session_id})
            return None
        metrics.COMPRESSIONS.count(change.kind, "heuristic" if change.by == "heuristic" else "model")
        log.info("memory.%s", change.kind, extra={"session": session_id, **change.as_json()})
        has_failed = change.by == summarize.HEURISTIC and work.wants_model(change.kind)
        work.made.append(f"{change.kind} by {change.by}" + (", as the model failed" if has_failed else ""))
        return step.after

    def _next(self, work: _Work, state: MemoryState) -> _Step | None:
        lane, rules = work.lane, work.rules
        l2_tokens = rules.count(state.l2_text) if state.l2_text else 0
        # Only what came since the last digest can fill it: a digest of a digest would free nothing and say less.
        if state.l2_from_n and l2_is_full(l2_tokens, policy=rules.policy, allowance_tokens=rules.l2_tokens):
            return _snapshot(state, l2_tokens, _once(rules))
        history = self.memories.oldest(lane, state, limit=READ)
        room = rules.l1.beside(kept_tokens(state, rules.count))
        found = batch(history, room=room, policy=rules.policy, sizes=Sizes(rules.count))
        if found is None:
            return self._dated(work, state)
        batch_messages = _readable(_with_backlog(found, history, rules.policy).messages, rules)
        return _compressed(state, replace(found, messages=batch_messages), _once(rules))

    def _dated(self, work: _Work, state: MemoryState) -> _Step | None:
        lane, rules, tiers = work.lane, work.rules, work.rules.tiers
        if tiers is None or not dated.wants(tiers) or self.memories.undated(lane, state) < tiers.batch_size:
            return None
        behind = replace(state, first_n=state.dated_n + 1)
        oldest = self.memories.oldest(lane, behind, limit=2 * tiers.batch_size)
        left = [each for each in oldest if each.n < state.first_n]
        if not left:  # retention has removed them meanwhile
            return None
        part = _readable(dated.part(left, tiers), rules)
        known = self.facts.find(lane, tiers.scope, (), limit=READ) if tiers.learns else ()
        known = tuple(each for each in known if each.user is None)  # others close them themselves
        noted = dated.note(part, rules, known, work.held.session)
        return _summarized(state, noted, rules, now_ms=self.clock_ms())


def _once(rules: CompressionRules) -> CompressionRules:
    """The rules of what a session is sent: no model where a slow one writes summaries by date of the same messages."""
    return replace(rules, model=None) if rules.is_thrifty and dated.wants(rules.tiers) else rules


def _monitored(lane: str, held: MemoryClaim, *, began_ms: int) -> Work:
    return Work(
        id=f"summary:{lane}:{held.state.version}",
        kind="summary",
        ids=(held.session.id,),
        entry=began_ms,
        accepted_ms=held.due_ms,
        started_ms=began_ms,
        names={"agent": held.session.agent},
    )


def _log_ids(lane: str, held: MemoryClaim) -> log_context.Ids:
    ids = {"lane": lane, "session": held.session.id, "workspace": held.session.workspace}
    turn = held.turn
    return {**ids, "turn": turn.turn_id, **log_context.trace_ids(turn.trace_id, turn.turn_id)} if turn else ids


def _with_backlog(found: Batch, history: Sequence[Message], policy: MemoryPolicy) -> Batch:
    """A batch as it is; where L1 has grown far beyond its number of messages, as of an older Loom's session, half.

    Eight messages at a time would cost such a session a thousand summaries.
    """
    if policy.batches is None or len(history) < BACKLOG:
        return found
    begins = (at for at in range(len(history) // 2, len(history)) if history[at].turn_id != history[at - 1].turn_id)
    end = next(begins, len(found.messages))
    return replace(found, messages=tuple(history[:end]))


def _readable(messages: tuple[Message, ...], rules: CompressionRules) -> tuple[Message, ...]:
    """As many turns of a batch as the compressor can read at once, one at least; the others come with the next."""
    kept, tokens = 0, 0
    for turn in turns(messages):
        tokens += sum(message.token_count for message in turn)
        if kept and tokens > READABLE * rules.budget_tokens:
            break
        kept += len(turn)
    return messages[:kept]


def _change(
    state: MemoryState, kind: ChangeKind, rules: CompressionRules, *, of: Summary, messages: Sequence[Message] = ()
) -> Change:
    to_tokens = rules.count(of.text) if of.text else 0
    from_tokens = sum(message.token_count for message in messages)
    return Change(state.version + 1, kind, None, len(messages), from_tokens, to_tokens, of.by)


def _compressed(state: MemoryState, found: Batch, rules: CompressionRules) -> _Step:
    tokens = sum(message.token_count for message in found.messages)
    summary = summarize.of_part(found.messages, rules, tokens=tokens)
    schemas, refs = kept(found.messages, state.schemas, state.refs)
    change = replace(_change(state, "compressed", rules, of=summary, messages=found.messages), level=found.level)
    after = replace(
        state,
        version=change.version,
        first_n=found.messages[-1].n + 1,
        l2_text="\n\n".join(filter(None, [state.l2_text, summary.text])),
        l2_from_n=state.l2_from_n or found.messages[0].n,
        schemas=schemas,
        refs=refs,
        changes=(*state.changes, change),
    )
    return _Step(after, summary)


def _summarized(state: MemoryState, noted: Noted, rules: CompressionRules, *, now_ms: int) -> _Step:
    summary = noted.summary
    change = _change(state, "summarized", rules, of=summary, messages=noted.messages)
    changes = (*state.changes, change)
    after = replace(state, version=change.version, dated_n=noted.messages[-1].n, changes=changes)
    kept_summary = noted.dated(new_id("sum_"), token_count=change.to_tokens, now_ms=now_ms) if summary.text else None
    return _Step(after, summary, dated=kept_summary, learned=noted.learned)


def _snapshot(state: MemoryState, tokens: int, rules: CompressionRules) -> _Step:
    digest = summarize.of_notes(state.l2_text, rules)
    snapshot = NewSnapshot(
        id=new_id("snap_"), content=state.l2_text, token_count=tokens, from_n=state.l2_from_n, to_n=state.first_n - 1
    )
    change = replace(_change(state, "snapshot", rules, of=digest), from_tokens=tokens, snapshot_id=snapshot.id)
    after = replace(state, version=change.version, l2_text=digest.text, l2_from_n=0, changes=(*state.changes, change))
    return _Step(after, digest, snapshot)
