"""Says when Redis does not answer, and when it does again: once each, not with every look."""

from collections.abc import Callable
from urllib.parse import urlsplit

from loom_worker.core.errors import Unavailable
from loom_worker.lanes.readiness import Readiness

TOLD_AFTER_LOOKS = 2
"""The first look comes before an embedded server is up, and a single one may be lost."""


class Telling:
    """A way to look at Redis that says when it begins to fail, and when it is over."""

    def __init__(self, look: Callable[[], Readiness], *, server: str, say: Callable[[str], None]) -> None:
        """Args: server: what is looked at, in words."""
        self._look = look
        self._server = server
        self._say = say
        self._failed = 0

    def __call__(self) -> Readiness:
        """Look.

        Raises:
            Unavailable: as the look itself.
        """
        try:
            seen = self._look()
        except Unavailable as error:
            self._failed += 1
            if self._failed == TOLD_AFTER_LOOKS:
                self._say(f"{self._server} does not answer ({error.__cause__ or error}); still trying")
            raise
        if self._failed >= TOLD_AFTER_LOOKS:
            self._say(f"{self._server} answers again")
        self._failed = 0
        return seen


def server(redis_url: str, *, is_embedded: bool) -> str:
    """A Redis in words: whose it is, and where, without user and password."""
    parts = urlsplit(redis_url)
    where = parts.path if parts.scheme == "unix" else f"{parts.hostname or 'localhost'}:{parts.port or 6379}"
    return f"the embedded server at {where}" if is_embedded else f"the Redis of LOOM_REDIS_URL at {where}"
