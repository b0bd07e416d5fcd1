"""Who may wait, and whether the process is on its way out."""

import threading
from collections import Counter

SHARE_OF_FREE = 3
"""A holder may have so many times as many slots as stay free behind it: alone it gets three quarters of them."""
ADDRESS = "address "
"""How the name of a holder begins that is a client's address."""


class ConnectionLimiter:
    """Slots for the requests that wait (long polls, event streams), and whether new work is refused.

    They hold no thread, but a connection each. No holder gets all slots: one key took all there were, and nobody else
    could wait for a turn. The share is one of what is free, so that a holder who is alone may have most of them and
    some are always left for the next.

    Args:
        slots: one at the least.
        address_slots: most of one address; fewer than it may have connections, or whoever shares the address with
            readers could not connect.
    """

    def __init__(self, *, slots: int, address_slots: int | None = None) -> None:
        self._free = max(1, slots)
        self._address_slots = self._free if address_slots is None else max(1, address_slots)
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._draining = threading.Event()

    @property
    def is_draining(self) -> bool:
        """True once the process is stopping."""
        return self._draining.is_set()

    def begin_drain(self) -> None:
        """Refuse new work and send the waiters home; cannot be undone."""
        self._draining.set()

    def enter(self, *holders: str) -> bool:
        """Take a slot if one is free and none of the holders has its share; after True, call leave.

        Args:
            holders: whom the slot is counted for, such as a workspace and an address.
        """
        with self._lock:
            if self._free == 0 or any(map(self._has_share, holders)):
                return False
            self._free -= 1
            self._held.update(holders)
            return True

    def leave(self, *holders: str) -> None:
        """Give the slot back, with the holders it was taken for."""
        with self._lock:
            self._free += 1
            self._held.subtract(holders)
            self._held += Counter()  # Drops those that hold nothing any more, or it would grow with every stranger.

    def _has_share(self, holder: str) -> bool:
        held = self._held[holder]
        if holder.startswith(ADDRESS) and held >= self._address_slots:
            return True
        return held > 0 and held + 1 > SHARE_OF_FREE * (self._free - 1)  # The first slot is everybody's.
