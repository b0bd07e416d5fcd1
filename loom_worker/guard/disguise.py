"""Shows a text as it is meant to be read: without characters that cannot be seen, and with plain digits. Pure, linear.

A key with a zero-width space in it, a card number in full-width digits, and escapes of JSON (``\\u002d``, ``\\/``, and
``\\n`` between digits) would pass a search otherwise.
"""

import re
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plain:
    """The plain form of a text, and where its characters stand there."""

    text: str
    begins: list[int]
    """Where pieces of the plain form begin, by turns one that was plain already and one that was not."""
    places: list[int]
    """Where the same pieces begin in the text itself."""
    has_unseen: bool
    """Whether characters were left out: the text itself may show what is joined to other words here."""

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Begin and end in the text itself of a stretch of the plain form; what stands for a character belongs to it."""
        first, last = bisect_right(self.begins, start) - 1, bisect_right(self.begins, end - 1) - 1
        begin = self.places[first] + (0 if first % 2 else start - self.begins[first])
        return begin, self.places[last + 1] if last % 2 else self.places[last] + end - self.begins[last]


def undisguised(text: str) -> Plain | None:
    """The plain form of a text, None if it is plain."""
    disguised = [*(_ESCAPE.finditer(text) if text.isascii() else _DISGUISED.finditer(text))]
    if not disguised:
        return None
    parts, begins, places, at, size = list[str](), list[int](), list[int](), 0, 0
    for match in disguised:
        shown = _plain(match[0])
        parts += [text[at : match.start()], shown]
        begins += [size, size + match.start() - at]
        places += [at, match.start()]
        size += match.start() - at + len(shown)
        at = match.end()
    return Plain("".join([*parts, text[at:]]), [*begins, size], [*places, at], "" in parts[1::2])


def _plain(disguised: str) -> str:
    """One character, or none."""
    if disguised.startswith("\\"):
        name = disguised.lstrip("\\")
        return chr(int(name[1:], 16)) if name[0] == "u" else {"n": "\n", "r": "\r", "t": "\t"}.get(name, name)
    if disguised[0].isdecimal():
        return str(unicodedata.decimal(disguised))
    return unicodedata.normalize("NFKC", disguised) if "\uff01" <= disguised <= "\uff5e" else _OTHERS.get(disguised, "")


_SPACES, _DASHES = "\u00a0\u2002\u2003\u2007\u2008\u2009\u200a\u202f\u3000", "\u2010\u2011\u2012\u2013\u2014\u2212"
_OTHERS = {**dict.fromkeys(_SPACES, " "), **dict.fromkeys(_DASHES, "-")}
_ESCAPE = re.compile(r"\\{1,3}(?:u00[2-7][0-9A-Fa-f]|/|(?<=\d\\|\\\\)[nrt](?=\d))")
_DISGUISED = re.compile(
    r"[\u00ad\u034f\u180e\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff]+|[\uff0b-\uff0f\uff20-\uff3a\uff3f\uff41-\uff5a]"
    rf"|(?![0-9])\d|[{_SPACES}{_DASHES}](?<=\d.)(?=[\d(])|{_ESCAPE.pattern}"
)
"""Each stands for one character, a run of unseen ones for none. Spaces and dashes count only between digits."""
