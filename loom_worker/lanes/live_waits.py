"""Which turn waits for its model right now, as its worker records it in Redis; as short-lived as a lease."""

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from loom_worker.core.errors import Unavailable
from loom_worker.core.redis_client import translate_redis_errors
from loom_worker.core.values.turns import Turn
from loom_worker.core.values.waiting import Waiting
from loom_worker.lanes import keys

log = logging.getLogger(__name__)

KEPT_MS = 30_000
"""A record expires so long after it was last written: its worker died, or no longer waits."""

LATE_KEPT_MS = 86_400_000
"""For a day it is not logged again that the same tool calls take long."""


@dataclass(frozen=True, slots=True)
class WaitRecord:
    """What Redis knows of a turn that a worker holds."""

    is_held: bool
    """False: the heartbeats of that worker have stopped."""
    waiting: Waiting | None
    """None: the turn's present owner has recorded nothing."""


class LiveWaits:
    """Records of calls of the model that are under way. They can be lost at any time; their worker writes them again.

    They are in Redis, not in the turn's row, where each call would cost a transaction of the one SQLite writer.
    """

    def __init__(self, redis: Any) -> None:
        self._redis = redis

    def record(self, turn: Turn, waiting: Waiting) -> None:
        """Record what a turn of ours waits for; Unavailable: Redis did not answer."""
        text = json.dumps({"fence": turn.fence, "waiting": asdict(waiting)})
        with translate_redis_errors():
            self._redis.set(keys.waiting(turn.id), text, px=KEPT_MS)

    def is_first_report(self, turn: Turn, reply_n: int) -> bool:
        """True for the first worker that reports the calls of a turn's reply as late."""
        with translate_redis_errors():
            return bool(self._redis.set(keys.late(turn.id, reply_n), "", nx=True, px=LATE_KEPT_MS))

    def of(self, held: Iterable[Turn]) -> Mapping[str, WaitRecord]:
        """What is known of turns that workers hold, by id; empty while Redis does not answer."""
        turns = tuple(held)
        if not turns:
            return {}
        try:
            with translate_redis_errors(), self._redis.pipeline(transaction=False) as pipe:
                for turn in turns:
                    pipe.get(keys.waiting(turn.id))
                    pipe.exists(keys.worker(turn.held_by or ""))
                answers = pipe.execute()
        except Unavailable as error:
            log.warning("what turns wait for is known from the database alone: %s", error)
            return {}
        records = zip(turns, answers[::2], answers[1::2], strict=True)
        return {turn.id: WaitRecord(bool(is_held), _read(record, turn)) for turn, record, is_held in records}


def _read(record: str | None, turn: Turn) -> Waiting | None:
    """The record, if this very owner of the turn wrote it."""
    if record is None:
        return None
    fields = json.loads(record)
    return Waiting(**fields["waiting"]) if fields["fence"] == turn.fence else None
