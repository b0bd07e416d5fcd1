r"""Shows a text as it is meant to be read: without characters that cannot be seen, and with plain digits. Linear.

A key with a zero-width space in it, a card number in full-width digits, and escapes of JSON (``\u002d``, ``\/``, and
``\n`` between digits) would pass a search otherwise.
"""

import re
import unicodedata


def undisguised(text: str) -> tuple[str, list[int]]:
    """The plain form, and for each of its characters, and its end, where that begins in the text itself.

    If both forms have the same length, so do all places, and the list is empty.
    """
    parts, places, at = list[str](), list[int](), 0
    for match in (_ESCAPE if text.isascii() else _DISGUISED).finditer(text):
        shown = _plain(match[0])
        parts += [text[at : match.start()], shown]
        places += [*range(at, match.start()), *[match.start()] * len(shown)]
        at = match.end()
    plain = "".join([*parts, text[at:]])
    return plain, [] if len(plain) == len(text) else [*places, *range(at, len(text) + 1)]


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
