"""Calls that other agents answer, by a turn of their own or by messages: what is to be done for them now. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from loom_worker.core.values.calls import Call
from loom_worker.core.values.children import ChildEnd

DELETED = "The session of this agent's work was deleted."


@dataclass(frozen=True, slots=True)
class AgentCallCheck:
    """What the calls that other agents answer need; the others are waited for."""

    begin: tuple[Call, ...] = ()
    """Turns of other agents are to be accepted for them, or messages waited for."""
    receive: tuple[Call, ...] = ()
    """There are messages."""
    close: tuple[Call, ...] = ()
    """As they end: the other agent's turn has, or the time is up."""


NOTHING_TO_DO = AgentCallCheck()


def check_agent_calls(
    calls: Sequence[Call], ends: Mapping[str, ChildEnd], *, has_messages: bool, now_ms: int
) -> AgentCallCheck:
    """Look after the calls of a turn that other agents answer.

    Args:
        calls: all of the turn.
        ends: of children that have ended, by their ids.
        has_messages: there are messages for the turn's agent.
    """
    ours = [call for call in calls if call.is_open and call.awaits is not None and not call.is_waiting]
    receive = tuple(call for call in ours if call.awaits == "messages" and has_messages)
    late = [call for call in ours if call not in receive and _is_late(call, now_ms)]
    return AgentCallCheck(
        begin=tuple(call for call in ours if call.status == "pending" and call not in (*receive, *late)),
        receive=receive,
        close=tuple(
            closed
            for call in ours
            if call not in receive and (closed := _closed(call, ends, is_late=call in late, now_ms=now_ms)) is not None
        ),
    )


def next_look_ms(calls: Sequence[Call]) -> int | None:
    """When a turn that waits for other agents alone gives one of them up; None: it does not, or waits for more."""
    if not all(call.is_awaiting for call in calls):
        return None
    return min((call.wait_until_ms for call in calls if call.wait_until_ms is not None), default=None)


def _is_late(call: Call, now_ms: int) -> bool:
    if call.status == "pending":  # messages that are not to be waited for
        return call.awaits == "messages" and not call.arguments.get("wait_s")
    return call.wait_until_ms is not None and now_ms >= call.wait_until_ms


def _closed(call: Call, ends: Mapping[str, ChildEnd], *, is_late: bool, now_ms: int) -> Call | None:
    end = ends.get(call.child_turn_id or "")
    # Whose time is up is cancelled, and has that time as its deadline: who looks first must not decide what is told.
    if end is not None and (end.status == "completed" or not is_late):
        return _answered(replace(call, finished_ms=now_ms), end)
    if not is_late:
        return None
    if call.awaits == "messages":
        return replace(call, status="completed", finished_ms=now_ms, content="No messages.")
    wait_s = ((call.wait_until_ms or 0) - (call.started_ms or 0)) / 1000
    text = f"No answer from {call.arguments.get('agent')} within {wait_s:g} s. What it was doing is cancelled."
    return replace(call, status="timeout", finished_ms=now_ms, content=text)


def _answered(call: Call, end: ChildEnd) -> Call:
    if end.status == "completed" and end.output_ref is not None:
        return replace(call, status="completed", content=end.output_ref["preview"], ref=end.output_ref["ref"])
    if end.status == "completed":
        return replace(call, status="completed", content=end.output_text or "")
    agent = call.arguments.get("agent")
    message = DELETED if end.reason == "deleted" else (end.error or {}).get("message") or f"It was {end.status}."
    said = f"\n\nIt had said so far:\n{end.output_text}" if end.output_text else ""
    return replace(
        call, status="failed", content=f"{agent} gave no answer ({end.reason or end.status}): {message}{said}"
    )
