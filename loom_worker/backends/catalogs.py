"""Keeps what is known of a database's tables for a while: reflecting a server's takes tens of milliseconds and more."""

import threading
import time
from collections.abc import Callable

from loom_worker.backends.scope import Catalog

TTL_S = 60.0


class Catalogs:
    """The catalog of one database, read when first asked for and again once it is old or was found wrong."""

    def __init__(
        self, read: Callable[[], Catalog], *, ttl_s: float = TTL_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._ttl_s = ttl_s
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: Catalog | None = None
        self._read_at = 0.0

    def get(self) -> Catalog:
        """The catalog, at most ``ttl_s`` old; threads that ask at once wait for one reading."""
        with self._lock:
            if self._kept is None or self._clock() - self._read_at > self._ttl_s:
                self._kept, self._read_at = self._read(), self._clock()
            return self._kept

    def drop(self) -> None:
        """Forget it: the database says that it is wrong, or a statement names what is not in it."""
        with self._lock:
            self._kept = None
