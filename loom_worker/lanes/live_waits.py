"""Which turn waits for its model right now: told by the worker that waits, beside the leases and as short-lived."""

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from loom_worker.core.errors import Unavailable
from loom_worker.core.redis_client import translate_redis_errors
from loom_worker.core.values.turns import Turn, Waiting
from loom_worker.lanes import keys

log = logging.getLogger(__name__)

KEPT_MS = 30_000
"""A record goes so long after it was last written: its worker died, or waits no longer."""

LATE_KEPT_MS = 86_400_000
"""For a day nobody says again that the same tool calls take long."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What Redis says of a turn that a worker holds."""

    is_held: bool
    """False: that worker's heartbeat has stopped."""
    waiting: Waiting | None
    """None: nothing was told by the turn's present owner."""


class LiveWaits:
    """Records of calls of the model that are under way. They can be lost at any time; their worker writes them again.

    Redis rather than the turn's row: a call would otherwise cost a transaction of the one SQLite writer.
    """

    def __init__(self, redis: Any) -> None:
        self._redis = redis

    def tell(self, turn: Turn, waiting: Waiting) -> None:
        """Write what a turn of ours waits for.

        Raises:
            Unavailable: Redis did not answer.
        """
        record = json.dumps({"fence": turn.fence, "waiting": asdict(waiting)})
        with translate_redis_errors():
            self._redis.set(keys.waiting(turn.id), record, px=KEPT_MS)

    def is_first(self, turn: Turn, reply_n: int) -> bool:
        """True for the first who asks this of the calls of a turn's reply.

        Raises:
            Unavailable: Redis did not answer.
        """
        with translate_redis_errors():
            return bool(self._redis.set(keys.late(turn.id, reply_n), "", nx=True, px=LATE_KEPT_MS))

    def of(self, held: Iterable[Turn]) -> Mapping[str, Seen]:
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
            log.warning("what turns wait for is told by the database alone: %s", error)
            return {}
        records = zip(turns, answers[::2], answers[1::2], strict=True)
        return {turn.id: Seen(bool(is_held), _read(record, turn)) for turn, record, is_held in records}


def _read(record: str | None, turn: Turn) -> Waiting | None:
    """The record, if this very owner of the turn wrote it."""
    if record is None:
        return None
    told = json.loads(record)
    return Waiting(**told["waiting"]) if told["fence"] == turn.fence else None
