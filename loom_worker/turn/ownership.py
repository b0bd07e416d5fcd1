"""Whether a turn is still this worker's: Redis may say that it is not; where it cannot, the database decides."""

import logging
import time
from collections.abc import Callable

from loom_worker.core.errors import Unavailable
from loom_worker.lanes.lease_renewer import HeldLease

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5
"""The database is asked this often while a lease is in doubt, as often as a lease is renewed otherwise."""


class Ownership:
    """One owner's view of one turn. The database is asked only while the lease could not be renewed in time."""

    def __init__(self, hold: HeldLease, is_ours: Callable[[], bool], *, lease_s: float) -> None:
        """Begin to watch.

        Args:
            is_ours: asks the database whether the turn's fence is still that of our claim.
        """
        self._hold = hold
        self._is_ours = is_ours
        self._lease_s = lease_s
        self._look_at_s = float("-inf")

    def is_lost(self) -> bool:
        """True once another owns the turn, as far as Redis or the database can be asked."""
        if self._hold.is_in_doubt(self._lease_s) and not self._hold.lost.is_set():
            self._look()
        return self._hold.lost.is_set()

    def is_confirmed(self) -> bool:
        """Ask the database: False once another owns the turn, or its session is deleted.

        Raises:
            Unavailable: the database did not answer.
        """
        return self._is_ours()

    def _look(self) -> None:
        now_s = time.monotonic()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + LOOK_EVERY_S
        try:
            if self._is_ours():
                self._hold.confirmed_s = now_s
            else:
                self._hold.lost.set()
        except Unavailable as error:  # nobody can claim the turn either; each of our writes names the fence anyway
            log.warning("not known whether the turn is still ours: %s", error)
