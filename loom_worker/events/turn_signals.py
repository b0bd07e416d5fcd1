"""What Redis is told when a turn is accepted and when it has ended: its lane and its log, in one round trip each."""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from redis.exceptions import NoScriptError

from loom_worker.core.redis_client import translate_redis_errors
from loom_worker.core.values.turns import Turn
from loom_worker.events.log import EventLog, Unsent
from loom_worker.events.rebuild import queued
from loom_worker.lanes import lanes as lane_scripts
from loom_worker.lanes.lanes import Advanced, Lanes, Lease


class TurnSignals:
    """Both signals, on one Redis."""

    def __init__(self, redis: Any, lanes: Lanes, events: EventLog) -> None:
        """Args: redis: a redis-py client that decodes responses."""
        self._redis = redis
        self._lanes = lanes
        self._events = events
        self._accepted, self._ended = (redis.register_script(_source(name)) for name in ("accepted", "ended"))

    def accepted(self, *turns: Turn) -> tuple[Turn, ...]:
        """Put turns on their lanes and begin their logs; return those for which a wake-up must be sent.

        Raises:
            Unavailable: Redis did not answer; the sweep finds the turns.
        """
        with translate_redis_errors():
            answers = self._in_one_round_trip(turns) if len(turns) > 1 else []
            answers = answers or [self._accepted(*self._call(turn)) for turn in turns]
        return tuple(turn for turn, answer in zip(turns, answers, strict=True) if answer == 1)

    def ended(self, unsent: Unsent, lease: Lease, seq: int, *, slot: str, wait_s: float) -> tuple[int, Advanced]:
        """Write a turn's last events and go on; see EventLog.append and Lanes.advance.

        Raises:
            Unavailable: Redis did not answer.
        """
        lane, *advance = self._lanes.advance_args(lease, seq, slot, wait_s)
        args = [*self._lanes.lane_args(lane), *advance, *self._events.append_args(unsent)]
        with translate_redis_errors():
            last, answer = self._ended(keys=_keys(lane, unsent), args=args)
        return last, lane_scripts.advanced(answer)

    def _in_one_round_trip(self, turns: Sequence[Turn]) -> list[int]:
        """What the script answers for each; nothing if Redis does not know the script, as after its start."""
        with self._redis.pipeline(transaction=False) as pipe:
            for turn in turns:
                keys, args = self._call(turn)
                pipe.evalsha(self._accepted.sha, len(keys), *keys, *args)
            try:
                return list(pipe.execute())
            except NoScriptError:
                return []

    def _call(self, turn: Turn) -> tuple[list[str], list[Any]]:
        """Keys and arguments of the script that accepts a turn; to run it twice changes nothing."""
        first = Unsent(turn.id, (("turn.queued", queued(turn)),), least=-1)
        args = [*self._lanes.lane_args(turn.lane), turn.seq, turn.id, *self._events.append_args(first)]
        return _keys(turn.lane, first), args


def _keys(lane: str, unsent: Unsent) -> list[str]:
    return [*lane_scripts.lane_keys(lane), *unsent.keys]


def _source(name: str) -> str:
    folder = files("loom_worker.events")
    own = ((folder / f"{part}.lua").read_text(encoding="utf-8") for part in ("common", name))
    return "\n".join((lane_scripts.source("common"), *own))
