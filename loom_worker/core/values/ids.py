"""Public ids: a prefix and 26 characters that sort by time (Crockford base 32: 48 bits of ms, 80 of chance)."""

import hashlib
import secrets
import threading
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def sortable_id(prefix: str, *, now_ms: int, chance: int) -> str:
    """Return ``prefix`` + 26 characters; ids made later sort later, to the millisecond.

    Args:
        prefix: with its underscore, such as ``turn_``.
        chance: 80 random bits.
    """
    number = (now_ms << 80) | chance
    return prefix + "".join(_ALPHABET[(number >> bits) & 31] for bits in range(125, -1, -5))


class _Moments:
    """The time and the chance of ids, which grow: turns of one millisecond are listed in the order they came in."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ms = self._chance = 0

    def next(self) -> tuple[int, int]:
        """A millisecond, and 80 bits that no other process guesses."""
        with self._lock:
            ms = now_ms()
            # One bit stays free for the steps, of 64 bits each: a millisecond has room for 32,000 ids.
            self._chance = self._chance + 1 + secrets.randbits(64) if ms == self._ms else secrets.randbits(79)
            self._ms = ms
            return ms, self._chance


_moments = _Moments()


def new_id(prefix: str) -> str:
    """Make an id now, which sorts after those that this process made before, unless its clock was set back.

    For the shells; pure code gets its ids as arguments.
    """
    ms, chance = _moments.next()
    return sortable_id(prefix, now_ms=ms, chance=chance)


def drawn(text: str) -> float:
    """A number from 0 to below 1 that follows from a text, evenly spread over texts: the same draw at every attempt."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64


def now_ms() -> int:
    """Milliseconds since 1970, the unit of every time in the store."""
    return time.time_ns() // 1_000_000


def lasted_ms(began_ms: int | None, ended_ms: int | None) -> int | None:
    """Milliseconds between two moments of the store, None while one of them is missing.

    0 where the second is the earlier one: another process may have looked at its clock for it, and then waited.
    """
    return None if began_ms is None or ended_ms is None else max(0, ended_ms - began_ms)


def now_us() -> int:
    """Microseconds since 1970, the unit of the times of spans."""
    return time.time_ns() // 1_000
