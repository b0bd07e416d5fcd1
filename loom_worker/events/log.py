"""The event logs of turns as Redis streams: many readers follow them while they grow; they expire after the end.

A log that is lost is rebuilt from the journal, so nothing durable depends on it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from loom_worker.core.errors import Fenced
from loom_worker.core.redis_client import translate_redis_errors
from loom_worker.core.settings_tree import EventSettings
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import TERMINAL, Event
from loom_worker.events.news import NewsFeed

RUNNING_TTL_S = 3600
"""The stream of a running turn expires when nobody has written to it for so long, as when it waits for a person;
readers then get it from the journal."""
GONE_TTL_S = 3600
"""For so long after a session was deleted nobody can write the logs of its turns again."""
FENCED = -2
"""The answer of append.lua to a writer whose turn another worker owns by now."""
GONE = -3
"""The answer of both scripts to a writer whose session is deleted."""
STUB_BYTES = 64 * 1024
"""A larger final event is stored without its data: that is the turn, which readers find in the database."""
FORGOTTEN = 200
"""Turns whose logs are removed at a time."""

USUAL = EventSettings()


@dataclass(frozen=True, slots=True)
class Unsent:
    """Events that are to be added to a log; see EventLog.append."""

    turn_id: str
    events: tuple[tuple[str, Json], ...]
    least: int
    fence: int = 0
    written: tuple[str, int] = ("", 0)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of append."""
        return _keys(self.turn_id)

    def appended(self, last: int) -> int | None:
        """The id of the last event, by the scripts' answer; None if the log has fewer events than it must."""
        if last == FENCED:
            raise Fenced(f"Another worker writes the events of turn {self.turn_id}.")
        _check_not_deleted(last, self.turn_id)
        return None if last == -1 else int(last)


class EventLog:
    """All streams, on one Redis; each method raises Unavailable if that does not answer."""

    def __init__(self, redis: Any, settings: EventSettings = USUAL) -> None:
        """Build it with a redis-py client that decodes responses; nothing is connected."""
        self._redis = redis
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
            least: number of events that the log must already have; -1: it must be empty.
            fence: the writer's, if only the turn's owner may write these events; 0: anyone may.
            written: a name that only this writer has, in letters and digits, and how many events it has written so far.
                What an earlier try wrote, though Redis did not confirm it in time, is not written twice.

        Returns:
            None if the log has fewer events, for it was lost (or any, where it must be empty); nothing was added then.

        Raises:
            Fenced: an owner with a higher fence has written, or the session is deleted; nothing was added.
        """
        unsent = Unsent(turn_id, tuple(events), least, fence, written)
        with translate_redis_errors():
            last = self._append(keys=unsent.keys, args=self.append_args(unsent))
        return unsent.appended(last)

    def append_args(self, unsent: Unsent) -> list[Any]:
        """The arguments of append, for a script that does more in the same step."""
        pairs = [part for kind, data in unsent.events for part in (kind, _text(kind, data))]
        is_final = int(any(kind in TERMINAL for kind, _ in unsent.events))
        mine = self._settings
        limits = (RUNNING_TTL_S, mine.ttl_s, mine.log_bytes, mine.total_bytes)
        return [*limits, unsent.least, unsent.fence, is_final, *unsent.written, *pairs]

    def last_id(self, turn_id: str) -> int:
        """The id of the last event, 0 if there is no log."""
        with translate_redis_errors():
            tail = self._redis.xrevrange(_key(turn_id), count=1)
        return _number(tail[0][0]) if tail else 0

    def restore(self, turn_id: str, events: Iterable[Event], *, fence: int = 0) -> None:
        """Write a whole log again, as the owner with this fence; of a long one only the end, as much as a log may hold.

        Raises:
            Fenced: the session is deleted; nothing was written.
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
            args = [ttl_s, fence, kept[0][0].id - 1, int(is_final), self._settings.total_bytes, *pairs]
            _check_not_deleted(self._restore(keys=keys, args=args), turn_id)

    def forget(self, turns: Mapping[str, bool]) -> None:
        """Remove the logs of a deleted session's turns for good.

        Args:
            turns: by id: True if the turn may have a writer, whose further events are then refused.
        """
        ids = list(turns)
        for begin in range(0, len(ids), FORGOTTEN):
            some = ids[begin : begin + FORGOTTEN]
            keys = [key for turn_id in some for key in _keys(turn_id)]
            with translate_redis_errors():
                self._forget(keys=keys, args=[GONE_TTL_S, *(int(turns[turn_id]) for turn_id in some)])

    def note_removed(self) -> None:
        """Note that what was deleted still stands in the server's append-only file."""
        with translate_redis_errors():
            self._redis.set(_REMOVED, "")

    def compact(self) -> bool:
        """Have the server write that file anew; False: nothing was removed since it last began, or it is at it.

        Raises:
            Unavailable: Redis did not answer, or lets nobody do so; it is not tried again.
        """
        with translate_redis_errors():
            if not self._redis.exists(_REMOVED):
                return False
            state = self._redis.info("persistence")
            if state["aof_rewrite_in_progress"] or not self._redis.delete(_REMOVED):
                return False
            return not state["aof_enabled"] or bool(self._redis.bgrewriteaof())

    def read(self, turn_id: str, *, after: int, most: int = 500) -> tuple[Event, ...]:
        """Events after an id that are there now, at most so many.

        The first may be later than the next id: the events between were dropped; the journal has or will have them.
        """
        return self.read_many({turn_id: after}, most=most).get(turn_id, ())

    def read_many(self, places: Mapping[str, int], *, most: int) -> dict[str, tuple[Event, ...]]:
        """Events of several logs, by turn, that are there now; a log that has none is missing.

        Args:
            places: by turn: the id after which to read.
            most: most events of a log.
        """
        if not places:
            return {}
        with translate_redis_errors():
            return _by_turn(self._redis.xread({_key(turn): f"{after}-0" for turn, after in places.items()}, count=most))

    def feed(self) -> NewsFeed:
        """A way to hear which logs have changed; not yet open."""
        return NewsFeed(self._redis)


_PREFIX = "loom:events:"
_REMOVED = "loom:removed"
"""String: something was deleted since the append-only file was written anew."""


def _key(turn_id: str) -> str:
    return f"{_PREFIX}{turn_id}"


def _gone(turn_id: str) -> str:
    return f"loom:gone:{turn_id}"


def _keys(turn_id: str) -> tuple[str, str, str, str]:
    return _key(turn_id), f"loom:end:{turn_id}", _gone(turn_id), f"loom:written:{turn_id}"


def _number(entry_id: str) -> int:
    return int(entry_id.partition("-")[0])


def _by_turn(found: Any) -> dict[str, tuple[Event, ...]]:
    """What XREAD found, in the form of either protocol."""
    pairs = ((key, parts[0]) for key, parts in found.items()) if isinstance(found, dict) else found or ()
    return {
        key.removeprefix(_PREFIX): tuple(
            Event(_number(entry_id), fields["t"], data := json.loads(fields["d"]), tuple(data.pop("tries", ())))
            for entry_id, fields in entries
        )
        for key, entries in pairs
    }


def _check_not_deleted(answer: int, turn_id: str) -> None:
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
