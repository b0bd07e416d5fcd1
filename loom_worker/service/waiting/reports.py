"""What turns wait for: out of their rows and journals, and for a call of the model that is under way out of Redis."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from loom_worker.agents.known import AgentSource
from loom_worker.core.errors import BadFile
from loom_worker.core.text import one_line
from loom_worker.core.values.calls import Call
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.tenants import Tenant
from loom_worker.core.values.turns import Turn
from loom_worker.core.values.waiting import Waiting, WaitsFor
from loom_worker.lanes.live_waits import LiveWaits, WaitRecord
from loom_worker.store.turns import Turns

LATE_MS = 2_000
"""A parked turn that nobody took up so long after it was due waits for a worker: sweeping and waking take less."""
MOST_COUNTED = 500
"""So many of the oldest turns that have begun are looked at for figures."""


@dataclass(frozen=True, slots=True)
class WaitReports:
    """Reports what turns wait for."""

    turns: Turns
    live: LiveWaits
    agents: AgentSource

    def with_wait(self, turn: Turn) -> Turn:
        """The turn with what it waits for; one that has ended is returned as it is."""
        return self.with_waits((turn,))[0]

    def with_waits(self, turns: Iterable[Turn]) -> tuple[Turn, ...]:
        """Turns with what each of them waits for."""
        listed, moment_ms = tuple(turns), now_ms()
        # Of all others the row alone says it.
        seen = self.live.of(turn for turn in listed if turn.held_by is not None and not _open(turn))
        parked = [turn.id for turn in listed if turn.parked_until_ms is not None and not _open(turn)]
        waited = self.turns.waited(parked) if parked else {}
        by_judges = {
            turn_id: Waiting("judges", since_ms, attempt=sends)
            for turn_id, (since_ms, sends) in (self.turns.judged(parked) if parked else {}).items()
        }
        return tuple(
            turn
            if turn.is_finished
            else replace(turn, waiting=by_judges.get(turn.id) or self._waiting(turn, seen, waited, moment_ms))
            for turn in listed
        )

    def in_words(self, turn: Turn) -> str:
        """What a turn waits for, for people; empty for one that has ended."""
        return one_line(in_words(self.with_wait(turn), now_ms()))

    def figures(self, tenant: Tenant | None) -> Json:
        """The queue's figures, and how old the oldest turns are that run and that wait.

        Ages are in seconds, None where there is no such turn.

        Args:
            tenant: None: all workspaces.
        """
        moment_ms = now_ms()
        stats = self.turns.stats(tenant, now_ms=moment_ms)
        begun = self.with_waits(self.turns.begun(tenant, limit=MOST_COUNTED))
        ages: dict[WaitsFor, float] = {} if (queued_s := stats["oldest_queued_age_s"]) is None else {"lane": queued_s}
        for turn in begun:
            if turn.waiting is not None:
                age_s = _age_s(turn.waiting.since_ms, moment_ms)
                ages[turn.waiting.waits_for] = max(age_s, ages.get(turn.waiting.waits_for, 0.0))
        running = [_age_s(turn.started_ms or turn.created_ms, moment_ms) for turn in begun if turn.held_by is not None]
        longest = max(ages.items(), key=lambda each: each[1], default=None)
        return {
            **stats,
            "oldest_running_age_s": max(running, default=None),
            "oldest_waiting_age_s": None if longest is None else longest[1],
            "oldest_waiting_for": None if longest is None else longest[0],
            "waiting_ages": {name: ages.get(name, 0.0) for name in get_args(WaitsFor)},
        }

    def _waiting(
        self, turn: Turn, seen: Mapping[str, WaitRecord], waited: Mapping[str, Json], moment_ms: int
    ) -> Waiting:
        if turn.status == "queued":
            return Waiting("lane", turn.created_ms)
        calls = _open(turn)
        if asked := [call for call in calls if call.is_waiting]:
            return Waiting("person", self._asked_ms(turn, asked))
        if calls:
            since_ms = min(call.started_ms or call.sent_ms or _latest_ms(turn) for call in calls)
            if all(call.is_awaiting for call in calls):
                return Waiting("agents", since_ms)
            return Waiting("tools", since_ms, attempt=max(call.sends for call in calls) or None)
        if turn.held_by is not None:
            # A worker runs it. Between its calls of the model it pauses for milliseconds alone.
            record = seen.get(turn.id)
            if record is not None and not record.is_held:
                return Waiting("lane", _latest_ms(turn))
            return (record and record.waiting) or Waiting("model", _latest_ms(turn))
        return _parked(turn, waited.get(turn.id), moment_ms)

    def _asked_ms(self, turn: Turn, asked: Sequence[Call]) -> int:
        """When a person was asked: a decision is due so long after that as the agent says."""
        try:
            agent = self.agents.kept(turn.agent, turn.agent_version)
        except BadFile:
            agent = None
        due_ms = min((call.approve_by_ms for call in asked if call.approve_by_ms is not None), default=None)
        if agent is None or due_ms is None:
            return _latest_ms(turn)
        return max(due_ms - int(agent.approval.timeout_s * 1000), turn.created_ms)


def _parked(turn: Turn, waited: Json | None, moment_ms: int) -> Waiting:
    """Nobody runs it: its model is to be asked again later, or it is for the next worker to take."""
    due_ms = turn.parked_until_ms
    if waited is None or due_ms is None:
        return Waiting("lane", _latest_ms(turn))
    tries, last_error = waited.get("tries"), waited.get("last_error") or waited.get("why")
    if due_ms + LATE_MS < moment_ms:
        return Waiting("lane", due_ms, attempt=tries, last_error=last_error)
    since_ms = waited.get("since_ms", _latest_ms(turn))
    return Waiting(waited.get("for", "model"), since_ms, attempt=tries, next_try_ms=due_ms, last_error=last_error)


def in_words(turn: Turn, moment_ms: int) -> str:
    """What a turn waits for, for people who look on; empty for one that has ended."""
    if (waiting := turn.waiting) is None:
        return ""
    what, waited = waiting.waits_for, f"{_age_s(waiting.since_ms, moment_ms):.0f} s"
    calls = sorted({call.name for call in _open(turn) if call.is_waiting == (what == "person")})
    error = f": {waiting.last_error}" if waiting.last_error else ""
    match what:
        case "lane":
            many = f"{turn.position} turn{'s' * (turn.position > 1)} of its session"
            return f"queued {f'behind {many}' if turn.position else 'and no worker has taken it'} for {waited}"
        case "person":
            return f"waiting for approval of {', '.join(calls)} for {waited}: `loom turns approve {turn.id}`"
        case "tools" | "agents" | "judges":
            return f"waiting for {what} for {waited}: {', '.join(calls)}".rstrip(": ")
    if waiting.next_try_ms is not None:
        who = f"attempt {waiting.attempt}" if what == "model" else "rate limited by the provider"
        return f"{who}, next in {max(0, waiting.next_try_ms - moment_ms) / 1000:.0f} s{error}"
    again = f"attempt {waiting.attempt}, " if error else ""
    return f"{again}the model has been reading for {waited}" + error.replace(":", "; before:", 1)


def _open(turn: Turn) -> tuple[Call, ...]:
    return tuple(call for call in turn.calls if call.is_open)


def _latest_ms(turn: Turn) -> int:
    """The latest moment of the turn that its row knows."""
    ends = (call.finished_ms for call in turn.calls if call.finished_ms is not None)
    return max(ends, default=turn.started_ms or turn.created_ms)


def _age_s(since_ms: int, moment_ms: int) -> float:
    return round(max(0, moment_ms - since_ms) / 1000, 3)
