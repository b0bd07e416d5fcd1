"""Figures over all workspaces, as ``web.metrics`` names them, and whether this installation is ready to answer."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loom_worker.core import redis_client
from loom_worker.core.errors import LoomError, Unavailable
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json, rfc3339
from loom_worker.guard.limits import UNANSWERED, Breakers
from loom_worker.lanes import readiness
from loom_worker.lanes.lease_renewer import LiveWorkers
from loom_worker.patterns.live import LiveLibrary
from loom_worker.service.waiting.reports import WaitReports
from loom_worker.store.agent_messages import AgentMessages
from loom_worker.store.audit import AuditRows
from loom_worker.store.calls import tool_counts
from loom_worker.store.database import Database
from loom_worker.store.engines.sqlite_file import full_disks
from loom_worker.store.memory import Memories
from loom_worker.store.metric_values import MetricValues
from loom_worker.store.turns import Turns
from loom_worker.tools.references import References

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a turn would be answered."""

    database: Database
    redis: Any
    """A client that gives up within redis_client.LOOK_S: whoever asks does not wait long."""
    folders: tuple[Path, ...] = ()
    """What is written."""

    def problems(self) -> tuple[str, ...]:
        """What is missing before a turn could be answered; empty: ready."""
        found = [f"disk: {each}" for each in full_disks(*self.folders)]
        try:
            self.database.probe()
        except LoomError as error:
            found.append(f"database: {error}")
        try:
            redis_client.probe(self.redis)
            found.extend(readiness.problems(readiness.read_readiness(self.redis)))
        except LoomError as error:
            found.append(f"redis: {error}")
        return tuple(found)

    def warnings(self) -> tuple[str, ...]:
        """Models whose latest call failed, since when and why; nothing is known while Redis does not answer."""
        with suppress(LoomError), redis_client.translate_redis_errors():
            found = [(name, *failure.split(" ", 1)) for name, failure in self.redis.hgetall(UNANSWERED).items()]
            return tuple(f"{name} has not answered since {rfc3339(int(ms))}: {why}" for name, ms, why in found)
        return ()

    def workers(self) -> int:
        """How many workers are alive."""
        return len(LiveWorkers(self.redis).alive())


@dataclass(frozen=True, slots=True)
class Figures:
    """Asks each part for its figures."""

    health: Health
    breakers: Breakers
    waits: WaitReports
    references: References
    library: LiveLibrary

    def all(self) -> Json:
        return collected(
            {
                "disks": lambda: {"disks_full": len(full_disks(*self.health.folders))},
                "turns": self.of_turns,
                "workers": self._workers,
                "waits": lambda: self.waits.figures(None),
                "tools": self._tools,
                "results": self._results,
                "patterns": self.of_patterns,
                "messages": self.of_messages,
                "counters": self.of_counters,
            }
        )

    def _results(self) -> Json:
        redis_client.probe(self.health.redis)  # the client of large results waits longer for an answer
        return self.references.figures()

    def of_turns(self) -> Json:
        """How many turns there are by status, and how many memories wait for compression."""
        moment_ms = now_ms()
        memory = Memories(self.health.database).totals(now_ms=moment_ms)
        stored = Turns(self.health.database).stats(None, now_ms=moment_ms)
        depth = {"lane_depth": Turns(self.health.database).deepest_lane()}
        return {**stored, **depth, **{f"memory_{name}": figure for name, figure in memory.items()}}

    def _workers(self) -> Json:
        # Asked alone, breakers would be reported as closed while Redis is away.
        return {"workers": self.health.workers(), "breakers": self.breakers.states()}

    def _tools(self) -> Json:
        counted = tool_counts(self.health.database, now_ms=now_ms())
        return {**counted, "guard_decisions": AuditRows(self.health.database).guard_counts()}

    def of_patterns(self) -> Json:
        """How many patterns this process has, and how many complaints about their files."""
        state = self.library.state()
        return {"patterns": len(state.matcher.patterns), "pattern_errors": len(state.problems)}

    def of_messages(self) -> Json:
        """How many messages between agents there are, by status."""
        return {"agent_messages": AgentMessages(self.health.database).counts()}

    def of_counters(self) -> Json:
        """What all processes have counted since the database was made, as Cells (core/metric_recorder.py)."""
        return {"counted": MetricValues(self.health.database).all()}


def collected(sources: Mapping[str, Callable[[], Json]]) -> Json:
    """Figures by name; those that cannot be had now are missing, and take no others with them.

    Args:
        sources: what figures are of, to what asks for them; Unavailable where nobody answers.

    Returns:
        ``known``, too: what the figures are of, to whether they could be had.
    """
    figures: Json = {"known": {}}
    for name, ask in sources.items():
        try:
            figures |= ask()
        except Unavailable as error:
            log.warning("metrics: the figures of %s are missing: %s", name, error)
            figures["known"][name] = False
        else:
            figures["known"][name] = True
    return figures
