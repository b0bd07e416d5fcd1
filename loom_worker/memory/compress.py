"""L1's oldest messages become a summary, a full L2 a snapshot: one step after the other, until nothing is due.

Every step is made from one version of the session's memory and applied only to that version. So it does no harm if it
comes late, twice, or never; the session stays due until somebody has done it.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from loom_worker.core import crash_points
from loom_worker.core.errors import Interrupted, Unavailable
from loom_worker.core.values.ids import new_id, now_ms
from loom_worker.core.values.memory import Change, MemoryPolicy, MemoryState, Summary
from loom_worker.core.values.sessions import Message, Session
from loom_worker.llm.revocable import Revocable
from loom_worker.memory import summarize
from loom_worker.memory.kernel import kept
from loom_worker.memory.layers import turns
from loom_worker.memory.pressure import Batch, batch, l2_is_full
from loom_worker.memory.summarize import Means
from loom_worker.store.ledger import Charge
from loom_worker.store.memory import Held, Memories
from loom_worker.store.snapshots import NewSnapshot

log = logging.getLogger(__name__)

READ = 1_000
"""Messages of L1 looked at in one step, more than it holds at ease; what is behind them comes with the next."""
BACKLOG = 400
"""Messages of L1 of which half become one summary, where a policy names smaller batches."""
READABLE = 0.8
"""Of what a request to the compressor may hold: the rest is for the instructions, and for who said what and when."""
DUE = 50
"""Sessions asked for at a time, when one is done and others are due."""
STEPS = 20
"""Taken at a time; a session that needs more waits until all that are due had theirs."""
AT_ONCE = 4
"""A process works on one session for every so many of its threads: the others are for tools, which turns wait for."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What the compression of memory works with."""

    worker: str
    memories: Memories
    means: Callable[[Session], Means]
    alive_workers: Callable[[], frozenset[str]]
    is_stopping: Callable[[], bool]
    places: threading.Semaphore
    """One for each session that may be worked on at a time."""
    at_work: set[str] = field(default_factory=set)
    """Lanes that this process works on. A hold of its own that is not among them is left from a release that failed."""
    door: threading.Lock = field(default_factory=threading.Lock)
    """Of ``at_work``."""
    clock_ms: Callable[[], int] = field(default=now_ms)


@dataclass(frozen=True, slots=True)
class _Step:
    after: MemoryState
    summary: Summary
    snapshot: NewSnapshot | None = None


def serve(lane: str, desk: Desk) -> None:
    """Compress a session's memory, then that of others that are due; at once back if all places are taken.

    Those at work look for what is due before they leave, so a wake-up that finds no place is not lost. A session that
    needs many steps lets the others go first.
    """
    if not desk.places.acquire(blocking=False):
        return
    try:
        seen: set[str] = set()
        lanes = [lane]
        while lanes and not desk.is_stopping():
            lane = lanes.pop(0)
            seen.add(lane)
            must_go_on = _compress_or_tell(lane, desk)
            if not lanes:
                due = desk.memories.due(due_before_ms=desk.clock_ms(), limit=DUE)
                lanes = [other for other in due if other not in seen]
            if must_go_on:
                lanes.append(lane)
    finally:
        desk.places.release()


def _compress_or_tell(lane: str, desk: Desk) -> bool:
    try:
        return compress(lane, desk)
    except Unavailable:
        raise
    except Exception:  # a session that cannot be compressed stays due, and must not keep those behind it waiting
        log.exception("memory could not be compressed", extra={"lane": lane})
        return False


def compress(lane: str, desk: Desk) -> bool:
    """Take step after step until the session's memory is at ease; nothing if another worker is at it.

    Returns:
        True if there is more to do: the session took STEPS steps, or has become due again meanwhile.
    """
    with desk.door:
        if lane in desk.at_work:
            return False
        desk.at_work.add(lane)
    try:
        held = desk.memories.claim(lane, worker=desk.worker, alive=desk.alive_workers(), now_ms=desk.clock_ms())
        return held is not None and _compress(lane, held, desk)
    finally:
        desk.at_work.discard(lane)


def _compress(lane: str, held: Held, desk: Desk) -> bool:
    crash_points.reached("summary.claimed")
    is_done = was_interrupted = False
    try:
        means = desk.means(held.session)
        if means.model is not None:
            means = replace(means, model=Revocable(means.model, lambda: desk.memories.is_there(lane)))
        state: MemoryState | None = held.state
        left = STEPS
        while state is not None and left and not desk.is_stopping():
            state = _advance(lane, held, state, means, desk)
            left -= 1
        is_done = state is None
    except Interrupted as error:
        was_interrupted = True
        log.info("summary left to another worker: %s", error, extra={"session": held.session.id})
    finally:
        is_due = desk.memories.release(lane, desk.worker, is_done=is_done, seen_due_ms=held.due_ms)
    return is_due or not (is_done or was_interrupted)


def _advance(lane: str, held: Held, state: MemoryState, means: Means, desk: Desk) -> MemoryState | None:
    """Take one step; the state it led to, or None if none was due or somebody else changed the memory."""
    step = _next(lane, state, means, desk)
    if step is None:
        return None
    crash_points.reached("summary.made")
    owner, usage = held.session, step.summary.usage
    charge = Charge(owner.workspace, owner.id, owner.agent, step.summary.asked, usage) if usage.llm_calls else None
    is_applied = desk.memories.apply(
        lane, state, step.after, snapshot=step.snapshot, charge=charge, now_ms=desk.clock_ms()
    )
    crash_points.reached("summary.applied")
    if not is_applied:
        log.info("summary came too late", extra={"session": held.session.id})
        return None
    change = step.after.changes[-1]
    log.info("memory.%s", change.kind, extra={"session": held.session.id, **change.as_json()})
    return step.after


def _next(lane: str, state: MemoryState, means: Means, desk: Desk) -> _Step | None:
    l2_tokens = means.count(state.l2_text) if state.l2_text else 0
    # Only what came since the last digest can fill it: a digest of a digest would free nothing and say less.
    if state.l2_from_n and l2_is_full(l2_tokens, policy=means.policy, allowance_tokens=means.l2_tokens):
        return _snapshot(state, l2_tokens, means)
    history = desk.memories.oldest(lane, state, limit=READ)
    found = batch(
        history,
        room=means.l1,
        policy=means.policy,
        count=means.count,
    )
    return (
        None
        if found is None
        else _compressed(state, _readable(_with_backlog(found, history, means.policy), means), means)
    )


def _with_backlog(found: Batch, history: Sequence[Message], policy: MemoryPolicy) -> Batch:
    """A batch as it is; where L1 has grown far beyond its number of messages, as of an older Loom's session, half.

    Eight messages at a time would cost such a session a thousand summaries.
    """
    if policy.batches is None or len(history) < BACKLOG:
        return found
    begins = (at for at in range(len(history) // 2, len(history)) if history[at].turn_id != history[at - 1].turn_id)
    end = next(begins, len(found.messages))
    return replace(found, messages=tuple(history[:end]))


def _readable(found: Batch, means: Means) -> Batch:
    """As many turns of a batch as the compressor can read at once, one at least; the others come with the next."""
    kept, tokens = 0, 0
    for turn in turns(found.messages):
        tokens += sum(message.token_count for message in turn)
        if kept and tokens > READABLE * means.budget_tokens:
            break
        kept += len(turn)
    return replace(found, messages=found.messages[:kept])


def _compressed(state: MemoryState, found: Batch, means: Means) -> _Step:
    tokens = sum(message.token_count for message in found.messages)
    summary = summarize.of_part(found.messages, means, tokens=tokens)
    schemas, refs = kept(found.messages, state.schemas, state.refs)
    change = Change(
        version=state.version + 1,
        kind="compressed",
        level=found.level,
        messages=len(found.messages),
        from_tokens=tokens,
        to_tokens=means.count(summary.text),
        by=summary.by,
    )
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


def _snapshot(state: MemoryState, tokens: int, means: Means) -> _Step:
    digest = summarize.of_notes(state.l2_text, means)
    snapshot = NewSnapshot(
        id=new_id("snap_"),
        content=state.l2_text,
        token_count=tokens,
        from_n=state.l2_from_n,
        to_n=state.first_n - 1,
    )
    change = Change(
        version=state.version + 1,
        kind="snapshot",
        level=None,
        messages=0,
        from_tokens=tokens,
        to_tokens=means.count(digest.text),
        by=digest.by,
        snapshot_id=snapshot.id,
    )
    after = replace(state, version=change.version, l2_text=digest.text, l2_from_n=0, changes=(*state.changes, change))
    return _Step(after, digest, snapshot)
