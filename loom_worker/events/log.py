"""The event logs of turns as Redis streams: read by many while they grow, gone some time after the end.

What is lost here is rebuilt from the journal, so nothing durable depends on it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from loom_worker.core.errors import Fenced
from loom_worker.core.redis_client import translate_redis_errors
from loom_worker.core.settings_tree import EventSettings
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import TERMINAL, Event

RUNNING_TTL_S = 3600
"""A stream of a turn that runs is dropped when nobody wrote to it for so long (it may wait for a person); readers then
get it from the journal."""
GONE_TTL_S = 3600
"""For so long after its session was deleted nobody can write a turn's log anew."""
FENCED = -2
"""What append.lua answers a writer whose turn is another's by now."""
GONE = -3
"""What both scripts answer a writer whose turn's session is deleted."""
STUB_BYTES = 64 * 1024
"""A final event that is larger is kept without its data: that is the turn, which readers find in the database."""
FORGOTTEN = 200
"""Turns forgotten at a time."""


USUAL = EventSettings()


class EventLog:
    """All streams, on one Redis."""

    def __init__(self, redis: Any, waiting: Any, settings: EventSettings = USUAL) -> None:
        """Make the log.

        Args:
            redis: a redis-py client that decodes responses.
            waiting: another with a connection for each reader that may wait, and a socket timeout above MAX_BLOCK_MS.
        """
        self._redis = redis
        self._waiting = waiting
        self._settings = settings
        self._append, self._restore, self._forget = (
            redis.register_script(_source(name)) for name in ("append", "restore", "forget")
        )

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
            Fenced: an owner with a higher fence has written, or the session is deleted; nothing was added.
            Unavailable: Redis did not answer.
        """
        pairs = [part for kind, data in events for part in (kind, _text(kind, data))]
        is_final = int(any(kind in TERMINAL for kind, _ in events))
        limits = (RUNNING_TTL_S, self._settings.ttl_s, self._settings.log_bytes)
        args = [*limits, least, fence, is_final, *written, *pairs]
        with translate_redis_errors():
            last = self._append(keys=_keys(turn_id), args=args)
        if last == FENCED:
            raise Fenced(f"Another worker writes the events of turn {turn_id}.")
        _check_there(last, turn_id)
        return None if last == -1 else int(last)

    def last_id(self, turn_id: str) -> int:
        """The id of the last event, 0 for a log that is not there.

        Raises:
            Unavailable: Redis did not answer.
        """
        with translate_redis_errors():
            tail = self._redis.xrevrange(_key(turn_id), count=1)
        return _number(tail[0][0]) if tail else 0

    def restore(self, turn_id: str, events: Iterable[Event], *, fence: int = 0) -> None:
        """Write a whole log anew, as the owner with this fence: of a long one the end that it may hold.

        Raises:
            Fenced: the session is deleted; nothing was written.
            Unavailable: Redis did not answer.
        """
        kept: list[tuple[Event, str]] = []
        room = self._settings.log_bytes
        for event in reversed(tuple(events)):
            text = _text(event.type, event.data)
            room -= len(text) + len(event.type)
            if kept and room < 0:
                break
            kept.append((event, text))
        kept.reverse()
        if not kept:
            return
        is_final = kept[-1][0].is_final
        ttl_s = self._settings.ttl_s if is_final else RUNNING_TTL_S
        pairs = [part for event, text in kept for part in (event.type, text)]
        with translate_redis_errors():
            keys = [_key(turn_id), _gone(turn_id)]
            _check_there(self._restore(keys=keys, args=[ttl_s, fence, kept[0][0].id - 1, *pairs]), turn_id)

    def forget(self, turns: Mapping[str, bool]) -> None:
        """Remove the logs of a deleted session's turns for good.

        Args:
            turns: their ids, and whether each may have a writer: what that one writes from now on is refused.

        Raises:
            Unavailable: Redis did not answer.
        """
        ids = list(turns)
        for begin in range(0, len(ids), FORGOTTEN):
            some = ids[begin : begin + FORGOTTEN]
            keys = [key for turn_id in some for key in _keys(turn_id)]
            with translate_redis_errors():
                self._forget(keys=keys, args=[GONE_TTL_S, *(int(turns[turn_id]) for turn_id in some)])

    def read(self, turn_id: str, *, after: int, wait_ms: int, most: int = 500) -> tuple[Event, ...]:
        """Events behind an id; waits for the first of them up to wait_ms (0: not at all), then returns none.

        The first may be a later one than the next: what stood between was dropped, and is in the journal or will be.

        Args:
            most: events that are returned at a time.

        Raises:
            Unavailable: Redis did not answer.
        """
        block = wait_ms if wait_ms > 0 else None
        with translate_redis_errors():
            found = self._waiting.xread({_key(turn_id): f"{after}-0"}, count=most, block=block)
        entries = next(iter(found.values()))[0] if isinstance(found, dict) and found else _entries(found)
        return tuple(Event(_number(entry_id), fields["t"], json.loads(fields["d"])) for entry_id, fields in entries)

    def wait_end(self, turn_id: str, *, wait_ms: int) -> bool:
        """Wait for the final event up to wait_ms; True if it was written.

        Raises:
            Unavailable: Redis did not answer.
        """
        with translate_redis_errors():
            return bool(self._waiting.xread({_end(turn_id): "0-0"}, count=1, block=wait_ms))


MAX_BLOCK_MS = 15_000
"""Longest wait of one read; readers that wait longer ask again."""


def _entries(found: Any) -> Any:
    return found[0][1] if found else ()


def _key(turn_id: str) -> str:
    return f"loom:events:{turn_id}"


def _end(turn_id: str) -> str:
    return f"loom:end:{turn_id}"


def _gone(turn_id: str) -> str:
    return f"loom:gone:{turn_id}"


def _written(turn_id: str) -> str:
    return f"loom:written:{turn_id}"


def _keys(turn_id: str) -> tuple[str, str, str, str]:
    """All that a log may have in Redis, in the order of the scripts."""
    return _key(turn_id), _end(turn_id), _gone(turn_id), _written(turn_id)


def _number(entry_id: str) -> int:
    return int(entry_id.partition("-")[0])


def _check_there(answer: int, turn_id: str) -> None:
    if answer == GONE:
        raise Fenced(f"The session of turn {turn_id} is deleted, and its events with it.")


def _text(kind: str, data: Json) -> str:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    if kind in TERMINAL and len(text) > STUB_BYTES:
        return "{}"
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate out of a model's arguments
        return json.dumps(data, separators=(",", ":"))
    return text


def _source(name: str) -> str:
    folder = files("loom_worker.events")
    return "\n".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in ("common", name))
