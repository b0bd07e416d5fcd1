"""Updates of the pattern library: into the log, and through Redis to subscribers and to GET /v1/patterns.

Redis receives them from a thread of their own, which lives while there are any: a Redis that is away or slow delays
nothing, and learns of the library once it is back.
"""

import json
import logging
import threading
from collections import deque
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from loom_worker.core import metrics
from loom_worker.core.errors import Unavailable
from loom_worker.core.redis_client import translate_redis_errors
from loom_worker.core.text import one_line
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json, rfc3339
from loom_worker.core.values.patterns import PatternUpdateEvent
from loom_worker.patterns.library import MAX_PROBLEM_CHARS

log = logging.getLogger(__name__)

CHANNEL = "loom:patterns"
"""Where each event is published."""
AT = "loom:patterns:at:"
"""Prefix of the key, followed by the name of a process, of what that process has loaded."""
KEPT_S = 7 * 86_400
MOST_ERRORS = 50
"""Errors of a process that Redis receives; its log has all of them."""
MOST_UNSENT = 100
"""Events kept while Redis is away; older ones are dropped."""
LEAST_PAUSE_S, MOST_PAUSE_S = 1.0, 30.0
"""Between two attempts to reach Redis."""


@dataclass(frozen=True, slots=True)
class _Update:
    message: str
    state: str


class LibraryEvents:
    """Publishes the updates of one process' library, and reads those of all. Any thread may use it."""

    def __init__(self, client: Any, *, process: str) -> None:
        """Args: client: a redis-py client that decodes responses; process: a name never used before."""
        self._client = client
        self._process = process
        self._lock = threading.Lock()
        self._unsent: deque[_Update] = deque(maxlen=MOST_UNSENT)
        self._is_sending = False
        self._is_closed = threading.Event()
        self._is_loaded = False
        self._errors: frozenset[str] = frozenset()

    def publish(self, event: PatternUpdateEvent) -> None:
        """Log an event and send it to Redis; returns at once."""
        with self._lock:
            is_first, self._is_loaded = not self._is_loaded, True
            new = [error for error in event.errors if error not in self._errors]
            self._errors = frozenset(event.errors)
            self._unsent.append(self._update(event))
            starts, self._is_sending = not self._is_sending, True
        if not is_first:
            metrics.PATTERN_RELOADS.count("failed" if new else "ok")
        done = "loaded" if is_first else "reloaded"
        log.info("Pattern library %s (%d patterns, %.0f ms)", done, event.patterns, event.duration_ms)
        for error in new:
            log.warning("pattern library: %s", one_line(error, MAX_PROBLEM_CHARS))  # the file's name may be no text
        if starts:
            threading.Thread(target=self._send, name="loom-patterns-events", daemon=True).start()

    def processes(self, alive: Collection[str]) -> list[Json]:
        """What each of these processes has loaded, by name; those that have not published yet are left out."""
        if not alive:
            return []
        with translate_redis_errors():
            found = self._client.mget([AT + name for name in sorted(alive)])
        states = [json.loads(text) for text in found if text is not None]
        return [{**each, "loaded_at": rfc3339(each["loaded_at"])} for each in states]

    def close(self) -> None:
        """Send nothing any more; what a Redis that is away has not received is lost."""
        self._is_closed.set()

    def _update(self, event: PatternUpdateEvent) -> _Update:
        errors = list(event.errors[:MOST_ERRORS])
        if len(event.errors) > MOST_ERRORS:
            errors.append(f"… and {len(event.errors) - MOST_ERRORS} more")
        duration_ms = round(event.duration_ms, 1)
        changes = {**asdict(event), "duration_ms": duration_ms, "errors": errors}
        state = {
            "process": self._process,
            "patterns": event.patterns,
            "loaded_at": now_ms(),
            "duration_ms": duration_ms,
            "errors": errors,
        }
        return _Update(
            message=json.dumps({"type": "PatternUpdateEvent", "process": self._process, **changes}),
            state=json.dumps(state),
        )

    def _send(self) -> None:
        """Send what is unsent, in order; a new event starts another thread once this one has ended."""
        pause_s = LEAST_PAUSE_S
        while not self._is_closed.is_set():
            with self._lock:
                self._is_sending = bool(self._unsent)
                if not self._unsent:
                    return
                update = self._unsent[0]
            failure = self._sent(update)
            if failure is None:
                pause_s = LEAST_PAUSE_S
                continue
            if pause_s == LEAST_PAUSE_S:
                log.warning("pattern library: its events wait for Redis: %s", failure)
            self._is_closed.wait(pause_s)
            pause_s = min(2 * pause_s, MOST_PAUSE_S)

    def _sent(self, update: _Update) -> Unavailable | None:
        """Send one, which then is no longer unsent; or return why it could not be sent."""
        try:
            with translate_redis_errors(), self._client.pipeline() as pipe:
                pipe.set(AT + self._process, update.state, ex=KEPT_S)
                pipe.publish(CHANNEL, update.message)
                pipe.execute()
        except Unavailable as error:
            return error
        with self._lock:
            if self._unsent[0] is update:  # else newer ones have pushed it out meanwhile
                self._unsent.popleft()
        return None
