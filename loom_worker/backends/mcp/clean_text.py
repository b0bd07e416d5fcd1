"""Texts of strangers: nothing invisible stays in them, and none is longer than it may be."""

import unicodedata

_KEPT = "\n\t"
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_VARIATIONS = frozenset([*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0), 0x034F, 0x115F, 0x1160, 0x3164, 0xFFA0])
"""Selectors and fillers: no category of their own, nothing to see, and enough of them to carry hidden text."""


def visible(text: str) -> str:
    """The text without characters that a person cannot see but a model reads."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char for char in text if char in _KEPT or not _is_hidden(char))


def short(text: str, limit: int) -> str:
    """The text, its end replaced by an ellipsis if it is longer than ``limit`` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def plain(text: str, limit: int) -> str:
    """Visible, in one line and short: fit for a log or an error."""
    return short(" ".join(visible(text[: 4 * limit]).split()), limit)


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in _INVISIBLE or ord(char) in _VARIATIONS
