"""Public ids: a prefix and 26 characters that sort by time (Crockford base 32: 48 bits of ms, 80 of chance)."""

import secrets
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


def new_id(prefix: str) -> str:
    """Make an id now; for the shells, pure code gets its ids as arguments."""
    return sortable_id(prefix, now_ms=now_ms(), chance=secrets.randbits(80))


def now_ms() -> int:
    """Milliseconds since 1970, the unit of every time in the store."""
    return time.time_ns() // 1_000_000
