"""The event logs of turns as Redis streams: read by many while they grow, gone some time after the end.

What is lost here is rebuilt from the journal, so nothing durable depends on it.
"""

import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

from loom_worker.errors import Fenced
from loom_worker.redis_client import in_our_words
from loom_worker.values.events import TERMINAL, Event
from loom_worker.values.json import Json

TTL_S = 3600
"""A stream nobody wrote to for so long is dropped; readers then get it from the journal."""
FENCED = -2
"""What append.lua answers a writer whose turn is another's by now."""


class EventLog:
    """All streams, on one Redis."""

    def __init__(self, redis: Any, waiting: Any) -> None:
        """Make the log.

        Args:
            redis: a redis-py client that decodes responses.
            waiting: another with a connection for each reader that may wait, and a socket timeout above MAX_BLOCK_MS.
        """
        self._redis = redis
        self._waiting = waiting
        self._append = redis.register_script((files("loom_worker.events") / "append.lua").read_text(encoding="utf-8"))

    def append(
        self,
        turn_id: str,
        events: Sequence[tuple[str, Json]],
        *,
        least: int,
        fence: int = 0,
        written: tuple[str, int] = ("", 0),
    ) -> int | None:
        """Add events; return the id of the last one.

        Args:
            least: ids the log must already have; -1: none at all.
            fence: the writer's, where only the turn's owner may write this; 0: whoever tells it, it is true.
            written: a name that one writer alone has, in letters and digits, and how many events it has written so far:
                what an earlier try of it wrote, though Redis did not say so in time, is not written twice.

        Returns:
            None if the log has fewer, for it was lost (or any, where it should be empty); nothing was added then.

        Raises:
            Fenced: an owner with a higher fence has written; nothing was added.
            Unavailable: Redis did not answer.
        """
        pairs = [part for kind, data in events for part in (kind, _text(data))]
        with in_our_words():
            is_final = int(any(kind in TERMINAL for kind, _ in events))
            log_keys = [_key(turn_id), _end(turn_id), _written(turn_id)]
            last = self._append(keys=log_keys, args=[TTL_S, least, fence, is_final, *written, *pairs])
        if last == FENCED:
            raise Fenced(f"Another worker writes the events of turn {turn_id}.")
        return None if last == -1 else int(last)

    def last_id(self, turn_id: str) -> int:
        """The id of the last event, 0 for a log that is not there.

        Raises:
            Unavailable: Redis did not answer.
        """
        with in_our_words():
            tail = self._redis.xrevrange(_key(turn_id), count=1)
        return _number(tail[0][0]) if tail else 0

    def restore(self, turn_id: str, events: Iterable[Event], *, fence: int = 0) -> None:
        """Write a whole log anew, as the owner with this fence.

        Raises:
            Unavailable: Redis did not answer.
        """
        with in_our_words(), self._redis.pipeline(transaction=True) as pipe:
            pipe.delete(_key(turn_id))
            for event in events:
                pipe.xadd(_key(turn_id), {"t": event.type, "d": _text(event.data), "f": fence}, id=f"{event.id}-0")
            pipe.expire(_key(turn_id), TTL_S)
            pipe.execute()

    def read(self, turn_id: str, *, after: int, wait_ms: int) -> tuple[Event, ...]:
        """Events behind an id; waits for the first of them up to wait_ms (0: not at all), then returns none.

        Raises:
            Unavailable: Redis did not answer.
        """
        block = wait_ms if wait_ms > 0 else None
        with in_our_words():
            found = self._waiting.xread({_key(turn_id): f"{after}-0"}, count=500, block=block)
        entries = next(iter(found.values()))[0] if isinstance(found, dict) and found else _entries(found)
        return tuple(Event(_number(entry_id), fields["t"], json.loads(fields["d"])) for entry_id, fields in entries)

    def wait_end(self, turn_id: str, *, wait_ms: int) -> bool:
        """Wait for the final event up to wait_ms; True if it was written.

        Raises:
            Unavailable: Redis did not answer.
        """
        with in_our_words():
            return bool(self._waiting.xread({_end(turn_id): "0-0"}, count=1, block=wait_ms))


MAX_BLOCK_MS = 15_000
"""Longest wait of one read; readers that wait longer ask again."""


def _entries(found: Any) -> Any:
    return found[0][1] if found else ()


def _key(turn_id: str) -> str:
    return f"loom:events:{turn_id}"


def _end(turn_id: str) -> str:
    return f"loom:end:{turn_id}"


def _written(turn_id: str) -> str:
    return f"loom:written:{turn_id}"


def _number(entry_id: str) -> int:
    return int(entry_id.partition("-")[0])


def _text(data: Json) -> str:
    return json.dumps(data, separators=(",", ":"))  # ASCII: a lone surrogate out of a model's arguments passes too
