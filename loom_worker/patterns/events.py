"""Telling what became of the pattern library: to the log, and through Redis to whoever listens or asks.

Redis gets the news from a thread of their own that lives while there are any: a Redis that is away or slow holds up
nothing, and learns of the library once it is back.
"""

import json
import logging
import threading
from collections import deque
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from loom_worker.core.errors import Unavailable
from loom_worker.core.redis_client import translate_redis_errors
from loom_worker.core.text import one_line
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json, rfc3339
from loom_worker.core.values.patterns import PatternUpdateEvent
from loom_worker.patterns.library import COMPLAINT_CHARS

log = logging.getLogger(__name__)

CHANNEL = "loom:patterns"
"""Where each event is published."""
RELOADS = "loom:patterns:reloads"
"""Hash of ok and failed to how often the files were read anew after a process' first load. Failed is a reload with an
error that the process had not told in the event before: one that stands does not make failures of the good ones."""
AT = "loom:patterns:at:"
"""And the name of a process: what it has loaded."""
KEPT_S = 7 * 86_400
MOST_ERRORS = 50
"""Of a process that are told through Redis; its log has all of them."""
MOST_UNSENT = 100
"""Events kept for a Redis that is away; older ones are forgotten."""
LEAST_PAUSE_S, MOST_PAUSE_S = 1.0, 30.0
"""Between two tries to reach it."""


@dataclass(frozen=True, slots=True)
class _Item:
    """An event as Redis is told it."""

    message: str
    state: str
    result: str | None
    """What it counts as; None: it was the first load."""


class News:
    """What one process tells of its library, and what all of them told. Any thread may use it."""

    def __init__(self, client: Any, *, process: str) -> None:
        """Nothing is sent yet.

        Args:
            client: a redis-py client that decodes responses.
            process: a name never used before.
        """
        self._client = client
        self._process = process
        self._lock = threading.Lock()
        self._unsent: deque[_Item] = deque(maxlen=MOST_UNSENT)
        self._is_sending = False
        self._is_closed = threading.Event()
        self._is_loaded = False
        self._errors: frozenset[str] = frozenset()

    def tell(self, event: PatternUpdateEvent) -> None:
        """Log an event, and have Redis told of it; returns at once."""
        with self._lock:
            is_first, self._is_loaded = not self._is_loaded, True
            new = [error for error in event.errors if error not in self._errors]
            self._errors = frozenset(event.errors)
            self._unsent.append(self._item(event, None if is_first else "failed" if new else "ok"))
            starts, self._is_sending = not self._is_sending, True
        done = "loaded" if is_first else "reloaded"
        log.info("Pattern library %s (%d patterns, %.0f ms)", done, event.patterns, event.duration_ms)
        for error in new:
            log.warning("pattern library: %s", one_line(error, COMPLAINT_CHARS))  # of a file whose name may be no text
        if starts:
            threading.Thread(target=self._send, name="loom-patterns-news", daemon=True).start()

    def processes(self, alive: Collection[str]) -> list[Json]:
        """What each of these processes has loaded, by name; those that have not told yet are left out.

        Raises:
            Unavailable: Redis did not answer.
        """
        if not alive:
            return []
        with translate_redis_errors():
            found = self._client.mget([AT + name for name in sorted(alive)])
        told = [json.loads(text) for text in found if text is not None]
        return [{**each, "loaded_at": rfc3339(each["loaded_at"])} for each in told]

    def counts(self) -> Json:
        """How often any process has read its files anew since Redis began; nothing while Redis does not answer."""
        try:
            with translate_redis_errors():
                counts = self._client.hgetall(RELOADS)
        except Unavailable:
            return {}
        return {result: int(counts.get(result, 0)) for result in ("ok", "failed")}

    def close(self) -> None:
        """Send nothing any more; what a Redis that is away has not been told stays untold."""
        self._is_closed.set()

    def _item(self, event: PatternUpdateEvent, result: str | None) -> _Item:
        errors = list(event.errors[:MOST_ERRORS])
        if len(event.errors) > MOST_ERRORS:
            errors.append(f"… and {len(event.errors) - MOST_ERRORS} more")
        duration_ms = round(event.duration_ms, 1)
        told = {**asdict(event), "duration_ms": duration_ms, "errors": errors}
        state = {
            "process": self._process,
            "patterns": event.patterns,
            "loaded_at": now_ms(),
            "duration_ms": duration_ms,
            "errors": errors,
        }
        return _Item(
            message=json.dumps({"type": "PatternUpdateEvent", "process": self._process, **told}),
            state=json.dumps(state),
            result=result,
        )

    def _send(self) -> None:
        """Send what is unsent, in order; a new event starts another thread once this one has ended."""
        pause_s = LEAST_PAUSE_S
        while (item := self._next()) is not None and not self._is_closed.is_set():
            trouble = self._said(item)
            if trouble is None:
                pause_s = LEAST_PAUSE_S
                continue
            if pause_s == LEAST_PAUSE_S:
                log.warning("pattern library: its news wait for Redis: %s", trouble)
            self._is_closed.wait(pause_s)
            pause_s = min(2 * pause_s, MOST_PAUSE_S)

    def _next(self) -> _Item | None:
        with self._lock:
            self._is_sending = bool(self._unsent)
            return self._unsent[0] if self._unsent else None

    def _said(self, item: _Item) -> Unavailable | None:
        """Send one, which then is no longer unsent; or why it could not be."""
        try:
            with translate_redis_errors(), self._client.pipeline() as pipe:
                pipe.set(AT + self._process, item.state, ex=KEPT_S)
                if item.result is not None:
                    pipe.hincrby(RELOADS, item.result, 1)
                pipe.publish(CHANNEL, item.message)
                pipe.execute()
        except Unavailable as error:
            return error
        with self._lock:
            if self._unsent[0] is item:  # else newer ones have pushed it out meanwhile
                self._unsent.popleft()
        return None
