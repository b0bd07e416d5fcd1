"""The newest version that any process has accepted of what agents are made of, by part; Redis keeps it.

A process publishes a version only after it has read the source while knowing the version published before. So what is
published last was read last, whichever process was slower, and a process that reads its own source behind that has the
same or something newer. If it has something else, its source is not that of the others: it says so and goes on.
"""

import hashlib
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any

from loom_worker.core import metrics
from loom_worker.core.errors import Unavailable
from loom_worker.core.redis_client import translate_redis_errors
from loom_worker.core.values.agents import Content, ContentChange, Part
from loom_worker.lanes.keys import CONTENT_VERSION, told

log = logging.getLogger(__name__)

KEY = "loom:content"
"""Hash of a part's name to its digest, the process that accepted it, and that process's count of such news."""
KEPT_S = 7 * 86_400
MOST_TRIES = 3
"""At telling a version while others tell theirs; the next turn tries again."""
APART_S = 2.0
"""Between two readings of a source that gave something else than what others have: a share may lag behind."""
_TELL = """
local known = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if known ~= ARGV[2] then return known end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('EXPIRE', KEYS[1], ARGV[4])
redis.call('SET', KEYS[2], ARGV[3], 'EX', ARGV[4])
return ARGV[3]
"""


@dataclass(slots=True)
class _Followed:
    part: Part
    seen: str = ""
    """What Redis said when this process last compared itself; empty: nothing."""
    settled: str | None = None
    """Its own digest then."""
    again_s: float = math.inf
    """Monotonic time at which a source that gave something else is read again."""
    is_busy: bool = False


class ContentVersions(Content):
    """Compares the content that this process has with that of all others. Any thread may use it."""

    def __init__(self, client: Any, *, process: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Args: client: a redis-py client that decodes responses; process: a name never used before."""
        self._client = client
        self._process = process
        self._clock = clock
        self._tell = client.register_script(_TELL)
        self._count = itertools.count(1)
        self._lock = threading.RLock()  # a part that is renewed may tell us of it
        self._followed: dict[str, _Followed] = {}
        self._is_deaf = False
        self._version = ""

    def follow(self, name: str, part: Part) -> None:
        self._followed.setdefault(name, _Followed(part))

    def accepted(self, name: str) -> None:
        try:
            with translate_redis_errors():
                known = self._client.hget(KEY, name)
            self._level(name, known or "")
        except Unavailable as error:
            self._miss(error)

    def tell(self, change: ContentChange) -> None:
        """Log and count an edit unless another process has; without Redis each process does."""
        edit = hashlib.sha256("\n".join(astuple(change)).encode("utf-8", "surrogatepass")).hexdigest()[:32]
        try:
            with translate_redis_errors():
                if not self._client.set(told(edit), self._process, nx=True, ex=KEPT_S):
                    return
        except Unavailable as error:
            self._miss(error)
        metrics.CONTENT_CHANGES.count(change.kind, change.outcome)
        if change.outcome == "updated":
            extra = {"version": change.version, "former": change.former}
            log.info("%s.updated: %s", change.kind, change.name, extra=extra)
        else:
            log.warning("%s.refused: %s: %s", change.kind, change.name, change.version)

    def catch_up(self, version: str = "") -> None:
        """Take up what any process has accepted so far; one read of Redis, or none where the version is known.

        Without Redis, or where the source gives something else, this process goes on with what it has.

        Args:
            version: of all content, as Redis said a moment ago; empty: nobody has asked.
        """
        if version and version == self._version and all(map(self._is_settled, self._followed.values())):
            return
        try:
            with translate_redis_errors():
                known = self._client.hgetall(KEY)
            for name, each in tuple(self._followed.items()):
                if known.get(name, "") != each.seen or not self._is_settled(each):
                    self._level(name, known.get(name, ""))
            self._version = version  # what was read is as new as it, or newer
            self._is_deaf = False
        except Unavailable as error:
            self._miss(error)

    def _is_settled(self, followed: _Followed) -> bool:
        return followed.part.digest() == followed.settled and self._clock() < followed.again_s

    def _level(self, name: str, known: str) -> None:
        with self._lock:
            followed = self._followed[name]
            if followed.is_busy:  # the reading in progress publishes what it finds
                return
            followed.is_busy = True
            try:
                self._settle(name, followed, known)
            finally:
                followed.is_busy = False

    def _settle(self, name: str, followed: _Followed, known: str) -> None:
        answer: str | None = known
        for _ in range(MOST_TRIES):
            if answer is not None:
                answer = self._compared(name, followed, answer)

    def _compared(self, name: str, followed: _Followed, known: str) -> str | None:
        """None if there is nothing more to do; otherwise what Redis says by now."""
        newest, _, by = known.partition(" ")
        is_news = known != followed.seen
        is_due = is_news or self._clock() >= followed.again_s
        if known and is_due and newest != followed.part.digest():
            try:
                followed.part.renew()
            except OSError as error:  # a share that went away must not cost the turn that made us look
                log.warning("%s: the version of process %s cannot be read: %s", name, by.partition(" ")[0], error)
        followed.seen, followed.again_s = known, math.inf
        digest = followed.part.digest()
        if digest is None or digest == newest:
            followed.settled = digest
            return None
        if known and digest == followed.settled:
            followed.again_s = self._clock() + APART_S
            if is_news:
                log.warning(
                    "%s: process %s uses another version than this one finds; do all machines have the same files? "
                    "This process goes on with its own",
                    name,
                    by.partition(" ")[0],
                )
            return None
        mine = f"{digest} {self._process} {next(self._count)}"
        with translate_redis_errors():
            latest: str = self._tell(keys=[KEY, CONTENT_VERSION], args=[name, known, mine, KEPT_S])
        if latest != mine:
            return latest
        followed.seen, followed.settled = mine, digest
        return None

    def _miss(self, error: Unavailable) -> None:
        if not self._is_deaf:
            log.warning("what other processes have accepted is not known: %s", error)
        self._is_deaf = True
