"""What a turn does for its calls that other agents answer: begins their turns, takes messages, passes on references."""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

from loom_worker.core import crash_points
from loom_worker.core.errors import Interrupted, LoomError
from loom_worker.core.text import clean
from loom_worker.core.values.agent_messages import refs_in, scope_of
from loom_worker.core.values.calls import Call
from loom_worker.core.values.children import NewChild, OutputRef
from loom_worker.core.values.sessions import Choice
from loom_worker.core.values.spans import traceparent_of
from loom_worker.core.values.tools import Caller, Outcome
from loom_worker.core.values.turns import Turn
from loom_worker.events.turn_signals import tell_accepted
from loom_worker.events.writer import EventWriter
from loom_worker.guard import rails
from loom_worker.llm.tokens import cl100k_tokens
from loom_worker.turn.agent_calls import AgentCallCheck, check_agent_calls
from loom_worker.turn.filtering import allowed
from loom_worker.turn.reporting import call_work, tell_closed
from loom_worker.turn.state import TurnState
from loom_worker.turn.worker import Execution, TurnWorker, guardrails

log = logging.getLogger(__name__)

ASK = "ask_agent"
USUAL_REPLY_S = 30
NAME_CHARS = 70
"""Characters of an agent's name in the id of a session, which has 128 characters at the most."""
PARK_MS = 30_000
"""A turn that waits for other agents alone looks after them this often, should a signal be lost."""
MOST_TAKEN = 20
"""Messages that one call takes, unless it asks for fewer."""


def check(calls: Sequence[Call], execution: Execution, *, now_ms: int) -> AgentCallCheck:
    """Look after the calls of a turn that other agents answer; the database is asked only if there are any."""
    awaited = {call.awaits for call in calls if call.is_open}
    waits_for = [call.child_turn_id for call in calls if call.is_awaiting and call.child_turn_id is not None]
    ends = execution.worker.children.ends(waits_for) if waits_for else {}
    has_messages = "messages" in awaited and execution.worker.messages.are_there(execution.claim.turn.id)
    return check_agent_calls(calls, ends, has_messages=has_messages, now_ms=now_ms)


def pause_ms(until_ms: int | None, *, now_ms: int) -> int:
    """For how long a turn that waits for other agents alone is left, unless one of them wakes it.

    Args:
        until_ms: when it gives one of them up.
    """
    return PARK_MS if until_ms is None else min(max(until_ms - now_ms, 1), PARK_MS)


def begin(state: TurnState, calls: Sequence[Call], execution: Execution, writer: EventWriter) -> TurnState:
    """Accept the turns that calls ask for; calls that a guardrail refuses are closed.

    Raises:
        Fenced: another worker owns the turn; nothing was accepted.
        Interrupted: a call has changed meanwhile; nothing was accepted.
    """
    worker, now_ms = execution.worker, execution.worker.clock_ms()
    for call in (call for call in calls if call.awaits == "messages"):
        until_ms = now_ms + int(call.arguments["wait_s"] * 1000)
        waiting = worker.children.wait_for_messages(state.claim, call, until_ms=until_ms, now_ms=now_ms)
        state = state.with_calls((waiting,))
        _tell_waits([waiting], state.turn, worker)
    asked = [call for call in calls if call.awaits == "turn"]
    if not asked:
        return state
    planned = {call.position: _planned(call, state, execution, now_ms) for call in asked}
    refused = [call for call in planned.values() if isinstance(call, Call)]
    state = close(state, refused, execution, writer)
    tell_closed(refused, state.turn, execution.runtime, worker.monitor)
    new = [child for child in planned.values() if isinstance(child, NewChild)]
    if not new:
        return state
    begun, noted = worker.children.begin(state.claim, new, now_ms=now_ms)
    crash_points.reached("children.accepted")
    for turn in begun:
        tell_accepted(turn, worker.signals, worker.dispatcher)
    _tell_waits([call for call in noted if call.position in planned and call.is_awaiting], state.turn, worker)
    return state.with_calls(noted)


def receive(state: TurnState, call: Call, execution: Execution, writer: EventWriter) -> TurnState:
    """Take messages for a call, and close it with them."""
    worker, now_ms = execution.worker, execution.worker.clock_ms()
    scope = scope_of(state.turn.run_id, state.claim.user)
    limit = min(int(call.arguments.get("limit", MOST_TAKEN)), MOST_TAKEN)
    taken = worker.messages.take(state.claim, call, scope=scope, limit=limit, now_ms=now_ms)
    crash_points.reached("messages.taken")
    if not taken:  # a turn of the same agent was faster
        return state
    content = json.dumps([message.for_agent() for message in taken], ensure_ascii=False)
    done = replace(call, status="completed", finished_ms=now_ms, content=content)
    state = close(state, [done], execution, writer)
    tell_closed([done], state.turn, execution.runtime, worker.monitor)
    return state


def close(state: TurnState, calls: Sequence[Call], execution: Execution, writer: EventWriter) -> TurnState:
    """Store ends of calls; where another result came first, that one stays and is found at the next entry.

    Raises:
        Interrupted: a call got its result from elsewhere.
    """
    worker = execution.worker
    for call in calls:
        if call.child_turn_id is not None and call.status in ("timeout", "cancelled"):
            _stop(call.child_turn_id, state, worker)
        if call.child_turn_id is not None and (refs := refs_in(call.content or "")):
            references = worker.tools.references.stores.rows
            references.pass_on(refs, from_turn=call.child_turn_id, to_lane=state.turn.lane)
        done = call if call.awaits is None else _filtered(call, execution)
        if worker.calls.close(state.turn.id, done) is None:
            raise Interrupted(f"Call {call.id} got its result from elsewhere.")
        writer.emit("tool_call.completed", done.as_json())
        state = state.with_calls((done,))
    return state


def tell_others(turn: Turn, children: Sequence[Turn], worker: TurnWorker) -> None:
    """A turn has ended: its children end, the turn that waits for it and its run go on."""
    tell_cancelled(children, worker)
    tell_parent(turn, worker)
    worker.runs.turn_ended(turn)


def tell_parent(turn: Turn, worker: TurnWorker) -> None:
    """A turn has ended: the one that waits for it goes on. What fails is left to the sweep."""
    if not turn.ancestors:
        return
    crash_points.reached("child.ended")
    _wake(turn.ancestors[-1].lane, f"{turn.id}:child", worker)


def tell_cancelled(children: Sequence[Turn], worker: TurnWorker) -> None:
    """Children of a turn that has ended are to end, too: have their workers look."""
    for child in children:
        try:
            if child.is_finished:
                worker.events.append(child.id, [(f"turn.{child.status}", child.as_json())], least=1)
            elif worker.lanes.alert(child.lane):
                worker.dispatcher.wake(child.lane)
        except LoomError as error:
            log.warning("its worker looks later: %s", error)


def _tell_waits(calls: Sequence[Call], turn: Turn, worker: TurnWorker) -> None:
    for call in calls:
        caller = Caller(turn.lane, turn.session_id, turn.workspace, turn.id, call.id, turn.agent)
        worker.monitor.started(call_work(call, caller, is_known=True))


def _wake(lane: str, ticket: str, worker: TurnWorker) -> None:
    try:
        if worker.lanes.wake(lane, ticket):
            worker.dispatcher.wake(lane)
    except LoomError as error:
        log.warning("left to the sweep: %s", error)


def _stop(turn_id: str, state: TurnState, worker: TurnWorker) -> None:
    child = worker.children.cancel(state.claim, turn_id, now_ms=worker.clock_ms())
    tell_cancelled([child] if child is not None else [], worker)


def _planned(call: Call, state: TurnState, execution: Execution, now_ms: int) -> NewChild | Call:
    """The turn that a call asks for, or the call as it ends if a guardrail of the other agent refuses its text."""
    worker, turn, agent = execution.worker, state.turn, str(call.arguments["agent"])
    asked = worker.agents.runtime(agent, Choice(), turn.workspace).agent
    text = str(call.arguments.get("message") or call.arguments.get("task"))
    checked = rails.check("input", text, guardrails(asked, state.claim.rules).input)
    if checked.blocked_for:
        why = f"Not asked: a guardrail of {agent} refuses the text, for it holds {', '.join(checked.blocked_for)}."
        return replace(call, status="failed", finished_ms=now_ms, content=why, guard=list(checked.decisions))
    until_ms, session = None, f"{agent[:NAME_CHARS]}:{turn.id}.{call.position}"
    if call.name == ASK:
        until_ms = now_ms + int(float(call.arguments.get("reply_timeout_s", USUAL_REPLY_S)) * 1000)
        session = f"{agent[:NAME_CHARS]}:{blake2b(f'{turn.lane} {agent}'.encode(), digest_size=16).hexdigest()}"
    kept = by_reference(checked.kept, turn, call.name, execution)
    shown = checked.kept if kept is None else kept.preview
    ends = [moment_ms for moment_ms in (turn.deadline_ms, until_ms) if moment_ms is not None]
    return NewChild(
        position=call.position,
        agent=agent,
        session_id=session,
        input=shown,
        guard=tuple(checked.decisions),
        refs=refs_in(shown),
        traceparent=traceparent_of(turn.trace_id, turn.id, "tool", call.id),
        wait_until_ms=until_ms,
        deadline_ms=min(ends, default=None),
    )


def by_reference(text: str, turn: Turn, source: str, execution: Execution) -> OutputRef | None:
    """A long text for another agent, stored apart, under the turn's session; None if it is passed on as it is.

    Args:
        source: the tool, or what else the text comes from.
    """
    worker = execution.worker
    if len(text.encode()) < worker.settings.tools.agent_reference_bytes:
        return None
    caller = Caller(turn.lane, turn.session_id, turn.workspace, turn.id, "", turn.agent, turn.trace_id)
    kept = worker.tools.references.keep(text, "text/plain", caller, tool=source, count=cl100k_tokens)
    return None if kept is None else OutputRef(kept.reference.id, clean(kept.preview))


def _filtered(call: Call, execution: Execution) -> Call:
    """A call with what guardrails let its turn's agent read of what others told it."""
    if call.status != "completed":
        return call
    said, rules = Outcome("completed", call.content or ""), execution.guardrails.tool_result
    outcome = allowed(said, rules, execution.runtime, execution.caller(call.id))
    return replace(call, status=outcome.status, content=outcome.content, guard=list(outcome.guard) or None)
