"""Tells Redis that a turn is accepted or has ended (lane and log, in one round trip each), and that a run goes on."""

import logging
from importlib.resources import files
from typing import Any

from loom_worker.core import log_context
from loom_worker.core.dispatcher import Dispatcher
from loom_worker.core.errors import LoomError
from loom_worker.core.redis_client import translate_redis_errors
from loom_worker.core.values.runs import Run
from loom_worker.core.values.turns import Turn
from loom_worker.events.log import EventLog, Unsent
from loom_worker.events.rebuild import queued
from loom_worker.lanes import lanes as lane_scripts
from loom_worker.lanes.lanes import Advanced, Lanes, Lease

log = logging.getLogger(__name__)


class TurnSignals:
    """Both signals, on one Redis."""

    def __init__(self, redis: Any, lanes: Lanes, events: EventLog) -> None:
        """Args: redis: a redis-py client that decodes responses."""
        self._lanes = lanes
        self._events = events
        self._accepted, self._ended = (redis.register_script(_source(name)) for name in ("accepted", "ended"))

    def accepted(self, turn: Turn) -> bool:
        """Put a turn on its lane and begin its log; True if a wake-up must be sent.

        Raises:
            Unavailable: Redis did not answer; the sweep finds the turn.
        """
        first = Unsent(turn.id, (("turn.queued", queued(turn)),), least=-1)
        args = [*self._lanes.lane_args(turn.lane), turn.seq, turn.id, *self._events.append_args(first)]
        with translate_redis_errors():
            return bool(self._accepted(keys=_keys(turn.lane, first), args=args) == 1)

    def ended(self, unsent: Unsent, lease: Lease, seq: int, *, slot: str, wait_s: float) -> tuple[int, Advanced]:
        """Write a turn's last events and go on; EventLog.append and Lanes.advance in one step."""
        lane, *advance = self._lanes.advance_args(lease, seq, slot, wait_s)
        args = [*self._lanes.lane_args(lane), *advance, *self._events.append_args(unsent)]
        with translate_redis_errors():
            last, answer = self._ended(keys=_keys(lane, unsent), args=args)
        return last, lane_scripts.advanced(answer)


def tell_accepted(turn: Turn, signals: TurnSignals, dispatcher: Dispatcher) -> None:
    """Put a turn on its lane that was accepted for another one, or for a run; what is lost here the sweep finds."""
    with log_context.about(log_context.turn_ids(turn)):
        log.info("turn.accepted")
        try:
            if signals.accepted(turn):
                dispatcher.wake(turn.lane)
        except LoomError as error:
            log.warning("the sweep will tell of it: %s", error)


def _keys(lane: str, unsent: Unsent) -> list[str]:
    return [*lane_scripts.lane_keys(lane), *unsent.keys]


def _source(name: str) -> str:
    folder = files("loom_worker.events")
    own = ((folder / f"{part}.lua").read_text(encoding="utf-8") for part in ("common", name))
    return "\n".join((lane_scripts.source("common"), *own))


class RunNews:
    """Publishes on the channels of turns: ids of runs are no ids of turns."""

    def __init__(self, redis: Any) -> None:
        """Args: redis: a redis-py client."""
        self._redis = redis

    def changed(self, run: Run) -> None:
        """The event log of a run has grown; who misses it looks once a second; Unavailable: Redis did not answer."""
        with translate_redis_errors():
            self._redis.publish(f"loom:news:{run.id}", run.events)
            if run.is_finished:
                self._redis.publish("loom:ended", run.id)
