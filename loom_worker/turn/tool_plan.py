"""A reply's tool calls, and what becomes of calls that are under way. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

from loom_worker.core.settings import LimitSettings
from loom_worker.core.values.calls import Awaited, Call
from loom_worker.core.values.chat import ToolUse
from loom_worker.core.values.json import Json
from loom_worker.llm.sanitize import CALL_ID
from loom_worker.tools.registry import Registry

PICKUP_MS = 5_000
"""A call that no worker took within this is sent again; twice as long after each sending, up to MAX_PICKUP_MS: a
long queue is not a death."""

MAX_PICKUP_MS = 60_000

MAX_SENDS = 5
"""A call whose workers died so often is closed: it may be what kills them."""

SLACK_MS = 5_000
"""A call is closed this long after its own timeout should have ended it."""


@dataclass(frozen=True, slots=True)
class Check:
    """What the calls under way need: some are sent (again), some closed, the others waited for."""

    send: tuple[Call, ...] = ()
    close: tuple[Call, ...] = ()
    approve: tuple[Call, ...] = ()
    """Nobody was there to say no in time, and the agent's policy says yes."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A call as it may run, or why it may not."""

    arguments: Json
    error: str | None = None
    approve_by_ms: int | None = None
    """A person must approve it until then; None: nobody needs to be asked."""
    awaits: Awaited | None = None
    """What gives its result where no tool runs."""


@dataclass(frozen=True, slots=True)
class CallRules:
    """By what calls under way are looked after."""

    alive: frozenset[str]
    """Living workers."""
    tools: Registry
    timeout_s: float
    """The time one call may take."""
    concurrency: int
    """Calls of a turn under way at a time."""
    on_timeout: Literal["deny", "approve"] = "deny"
    """What holds when nobody decided on a call in time."""


def named(uses: Sequence[ToolUse], taken: frozenset[str], *, position: int) -> tuple[ToolUse, ...]:
    """The same calls, each with an id of its own that can stand in a URL; most ids are left as they are.

    A provider may give an id twice, even in one reply: neither a result nor a person's word would find its call.

    Args:
        taken: ids of the turn's earlier calls.
        position: of the first of them, within the turn.
    """
    known, renamed = set(taken), []
    for place, use in enumerate(uses, start=position):
        if use.id in known or not CALL_ID.fullmatch(use.id):
            use = replace(use, id=next(free for n in count() if (free := f"call_{place}_{n}") not in known))
        known.add(use.id)
        renamed.append(use)
    return tuple(renamed)


def planned(
    uses: Sequence[ToolUse],
    examined: Callable[[ToolUse], Checked],
    limits: LimitSettings,
    *,
    position: int,
    reply_n: int,
    children: int = 0,
) -> tuple[Call, ...]:
    """The calls of a reply; those that cannot run are closed from the start, with the reason as their result.

    Args:
        examined: a use as it may run, or why it may not.
        position: of the first of them, within the turn.
        children: turns of other agents that it has asked for.
    """
    calls: list[Call] = []
    for place, use in enumerate(uses):
        problem = _over_limit(place, position + place, limits)
        found = Checked(use.arguments, problem) if problem else examined(use)
        if found.awaits == "turn" and found.error is None:
            children += 1
            if children > limits.max_children:
                found = replace(found, error=f"Not run: a turn may ask other agents {limits.max_children} times.")
        call = Call(id=use.id, name=use.name, arguments=found.arguments, position=position + place, reply_n=reply_n)
        if found.error is not None:
            call = replace(call, status="failed", content=found.error)
        elif found.approve_by_ms is not None:
            call = replace(call, approval="waiting", approve_by_ms=found.approve_by_ms)
        calls.append(replace(call, awaits=found.awaits))
    return tuple(calls)


def _over_limit(place: int, position: int, limits: LimitSettings) -> str | None:
    if place >= limits.max_calls_per_reply:
        return f"Not run: at most {limits.max_calls_per_reply} tool calls in one reply."
    if position >= limits.max_tool_calls:
        return f"Not run: at most {limits.max_tool_calls} tool calls in one turn. Answer from what you have."
    return None


TOLD_AT = 0.75
"""Share (0-1) of a limit from which on the model is reminded of it with the results of every reply."""


def used_up(calls: int, llm_calls: int, limits: LimitSettings) -> str:
    """A note to the model about limits that are near; empty if there are none.

    Args:
        calls: tool calls of the turn so far.
        llm_calls: replies so far.
    """
    used = []
    if calls >= TOLD_AT * limits.max_tool_calls:
        used.append(f"{min(calls, limits.max_tool_calls)} of {limits.max_tool_calls} tool calls")
    if llm_calls >= TOLD_AT * limits.max_llm_calls:
        used.append(f"{llm_calls} of {limits.max_llm_calls} replies")
    return f"[Loom: {' and '.join(used)} of this turn are used. Answer soon, from what you have.]" if used else ""


def check(calls: Sequence[Call], rules: CallRules, *, now_ms: int) -> Check:
    """Look after the calls of a turn.

    Args:
        calls: all of them, in order: one whose twin has an answer is given the same.
    """
    found = [(_step(call, calls, rules, now_ms), call) for call in calls if call.is_open]
    found = [(step, call) for step, call in found if call.awaits is None or step in ("close", "approve")]
    under_way = sum(step == "wait" and (call.sent_ms is not None or call.status == "running") for step, call in found)
    send = [call for step, call in found if step == "send"]
    return Check(
        tuple(send[: max(rules.concurrency - under_way, 0)]),
        tuple(_closed(call, calls, rules, now_ms) for step, call in found if step == "close"),
        tuple(replace(call, approval="expired") for step, call in found if step == "approve"),
    )


def _step(
    call: Call, calls: Sequence[Call], rules: CallRules, now_ms: int
) -> Literal["send", "close", "approve", "wait"]:
    if call.is_awaiting:
        return "wait"
    if call.status == "running":
        return _fate_of_running(call, rules, now_ms)
    if call.is_waiting:
        if now_ms < (call.approve_by_ms or 0):
            return "wait"
        return "approve" if rules.on_timeout == "approve" else "close"
    twin = twin_of(call, calls, rules.tools)
    if twin is not None and call.sent_ms is None:
        return "wait" if twin.is_open else "close"
    return "send" if _is_overdue(call, now_ms) else "wait"


def _fate_of_running(call: Call, rules: CallRules, now_ms: int) -> Literal["send", "close", "wait"]:
    if call.worker not in rules.alive:
        tool = rules.tools.get(call.name)
        return "send" if tool is not None and tool.is_idempotent and call.sends < MAX_SENDS else "close"
    is_late = now_ms - (call.started_ms or now_ms) > rules.timeout_s * 1000 + SLACK_MS
    return "close" if is_late else "wait"


def twin_of(call: Call, calls: Sequence[Call], tools: Registry) -> Call | None:
    """The latest earlier call with the same answer: same tool and arguments, and nothing was changed in between.

    A call that failed is nobody's twin: to try once more may help.
    """
    own = tools.get(call.name)
    if own is None or not (own.is_idempotent and own.is_repeatable):
        return None
    for earlier in _backwards(call, calls):
        other = tools.get(earlier.name)
        # One that failed on its way may have changed something all the same; one that was never sent has not.
        if other is not None and not other.is_read_only and earlier.sends:
            return None
        if (earlier.name, earlier.arguments) == (call.name, call.arguments):
            return earlier if earlier.is_open or earlier.status == "completed" else None
    return None


def _backwards(call: Call, calls: Sequence[Call]) -> Iterator[Call]:
    return (earlier for earlier in reversed(calls) if earlier.position < call.position)


def _is_overdue(call: Call, now_ms: int) -> bool:
    return call.sent_ms is None or is_lost(call.sent_ms, call.sends, now_ms=now_ms)


def is_lost(sent_ms: int, sends: int, *, now_ms: int) -> bool:
    """True if what was sent so often, and was not picked up, is taken for lost.

    So is what was sent long after now, by a machine whose clock is ahead: it would be waited for until then.
    """
    return abs(now_ms - sent_ms) > min(PICKUP_MS << (sends - 1), MAX_PICKUP_MS)


def _closed(call: Call, calls: Sequence[Call], rules: CallRules, now_ms: int) -> Call:
    if call.is_waiting:
        text = "Denied: nobody approved this call in time."
        return replace(call, status="denied", approval="expired", finished_ms=now_ms, content=text)
    if call.status == "pending" and (twin := twin_of(call, calls, rules.tools)) is not None:
        return replace(call, status=twin.status, finished_ms=now_ms, content=twin.content, ref=twin.ref)
    if call.worker in rules.alive:
        return replace(call, status="timeout", finished_ms=now_ms, content=f"Tool '{call.name}' timed out.")
    content = f"Tool '{call.name}': outcome unknown, its worker died. It may or may not have taken effect."
    return replace(call, status="unknown", finished_ms=now_ms, content=content)
