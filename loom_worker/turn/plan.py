"""A reply's tool calls, and what becomes of calls that are under way. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from loom_worker.settings import LimitSettings
from loom_worker.values.chat import ToolUse
from loom_worker.values.turns import Call

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

    send: tuple[Call, ...]
    close: tuple[Call, ...]


def planned(
    uses: Sequence[ToolUse],
    flaw: Callable[[ToolUse], str | None],
    limits: LimitSettings,
    *,
    position: int,
    reply_n: int,
) -> tuple[Call, ...]:
    """The calls of a reply; those that cannot run are closed from the start, with the reason as their result.

    Args:
        flaw: why a use cannot run, None if it can.
        position: of the first of them, within the turn.
    """
    calls = []
    for place, use in enumerate(uses):
        problem = _over_limit(place, position + place, limits) or flaw(use)
        call = Call(id=use.id, name=use.name, arguments=use.arguments, position=position + place, reply_n=reply_n)
        calls.append(call if problem is None else replace(call, status="failed", content=problem))
    return tuple(calls)


def _over_limit(place: int, position: int, limits: LimitSettings) -> str | None:
    if place >= limits.max_calls_per_reply:
        return f"Not run: at most {limits.max_calls_per_reply} tool calls in one reply."
    if position >= limits.max_tool_calls:
        return f"Not run: at most {limits.max_tool_calls} tool calls in one turn. Answer from what you have."
    return None


def check(
    open_calls: Sequence[Call],
    alive: frozenset[str],
    is_idempotent: Callable[[str], bool],
    *,
    now_ms: int,
    timeout_s: float,
) -> Check:
    """Look after the calls under way.

    Args:
        alive: workers whose heart beats.
        timeout_s: the time one call may take.
    """
    send: list[Call] = []
    close: list[Call] = []
    for call in open_calls:
        if call.status == "pending":
            if _is_overdue(call, now_ms):
                send.append(call)
        elif call.worker not in alive:
            (send if is_idempotent(call.name) and call.sends < MAX_SENDS else close).append(call)
        elif now_ms - (call.started_ms or now_ms) > timeout_s * 1000 + SLACK_MS:
            close.append(call)
    return Check(tuple(send), tuple(_closed(call, alive, now_ms) for call in close))


def _is_overdue(call: Call, now_ms: int) -> bool:
    if call.sent_ms is None:
        return True
    return now_ms - call.sent_ms > min(PICKUP_MS << (call.sends - 1), MAX_PICKUP_MS)


def _closed(call: Call, alive: frozenset[str], now_ms: int) -> Call:
    if call.worker in alive:
        return replace(call, status="timeout", finished_ms=now_ms, content=f"Tool '{call.name}' timed out.")
    content = f"Tool '{call.name}': outcome unknown, its worker died. It may or may not have taken effect."
    return replace(call, status="unknown", finished_ms=now_ms, content=content)
