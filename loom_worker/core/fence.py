"""Fences text of tools as data, so that nothing in it can pass for an instruction. Pure."""

import hashlib
import re

_LETTERS = "bcdfghjklmnpqrstvwxz"
"""Of a fence's key. Without vowels and digits it spells no word and is no number, so breaking it up harms no data."""
KEY_CHARS = 6


def fence_key(turn_id: str) -> str:
    """KEY_CHARS letters, the same for a whole turn: its text stays byte-stable, and the provider's cache holds."""
    number = int.from_bytes(hashlib.sha256(turn_id.encode()).digest(), "big")
    return "".join(_LETTERS[number // len(_LETTERS) ** place % len(_LETTERS)] for place in range(KEY_CHARS))


def fenced(text: str, key: str) -> str:
    """Put text between ``<data KEY>`` and ``</data KEY>``; the key inside it, in any case, is broken by a middle dot.

    So text cannot close its fence, whether or not its author has seen the key. Costs at most 20 tokens of cl100k.
    Tags because models are trained to read them as bounds; a key of its own because text may hold any fixed tag.
    """
    half = KEY_CHARS // 2
    # Looking ahead finds occurrences that overlap: each begins at a match or has a dot inside.
    pattern = f"({re.escape(key[:half])})(?={re.escape(key[half:])})"
    harmless = re.sub(pattern, "\\1·", text, flags=re.IGNORECASE)
    return f"<data {key}>\n{harmless}\n</data {key}>"


def fence(turn_id: str, text: str) -> str:
    """Text of a tool, fenced by the key of the turn it was called in."""
    return fenced(text, fence_key(turn_id))
