"""Text without what nobody sees, short text on one line, and text of tools fenced as data. Pure."""

import hashlib
import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches

NAME_CHARS = 200
"""Characters of a name that is shown to a model or in a log."""

_CONTROLS = [number for number in (*range(0x20), 0x7F) if chr(number) not in "\t\n\r"]
_ASCII = dict.fromkeys(_CONTROLS)
# C0 and C1 but tab and line ends, soft hyphen, grapheme joiner, Arabic letter mark, Hangul fillers, Mongolian
# selectors, zero width, bidi, deprecated format characters, variation selectors, byte order mark, interlinear
# annotation, musical format, and the plane of tags.
_INVISIBLE = re.compile(
    "[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
_EMOJI = "\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_IDLE_SELECTOR = re.compile(f"(?<![0-9#*{_EMOJI}])\ufe0f")
"""Behind anything but the first half of an emoji it shows nothing."""
# Arabic to Thaana, Indic to Sinhala, Tibetan, Myanmar, Khmer, Mongolian, and Arabic's presentation forms.
_JOINED = "\u0600-\u07bf\u0840-\u0dff\u0f00-\u109f\u1780-\u18af\ufb50-\ufdff\ufe70-\ufefc"
_IDLE_JOINER = re.compile(
    f"(?<![{_JOINED}{_EMOJI}\ufe0f])[\u200c\u200d]|[\u200c\u200d](?![{_JOINED}{_EMOJI}])"
    f"|(?<=[{_JOINED}])[\u200c\u200d](?=[{_EMOJI}])|(?<=[{_EMOJI}\ufe0f])[\u200c\u200d](?=[{_JOINED}])"
    f"|(?<=[{_EMOJI}\ufe0f])\u200c"
)
_BLOCK_TAG = re.compile(r"<(?=\s*[/\\]?\s*(?:available_)?(?:pattern|skill)s?\b)", re.IGNORECASE)
REPLACEMENT = "\ufffd"
_BREAK = re.compile("[\t\n\r\u2028\u2029]")


def clean(text: str) -> str:
    """Take out what nobody sees; a lone surrogate becomes U+FFFD, a pair one character.

    Joiners stay between letters of scripts that are written with them and inside emoji, and so does the selector
    behind an emoji. Cleaning twice changes nothing more. 10 MB of ASCII take 20 ms, of other text 0.3 s.
    """
    if text.isascii():
        return text.translate(_ASCII)
    text = _INVISIBLE.sub("", encodable(text))
    if "\ufe0f" in text:  # before the joiners: one that follows a selector stays only if the selector does
        text = _IDLE_SELECTOR.sub("", text)
    return _IDLE_JOINER.sub("", text) if "\u200c" in text or "\u200d" in text else text


def defused(text: str) -> str:
    """The same text, but it neither opens nor ends a block of a pattern or a skill, nor what a model takes for one."""
    return _BLOCK_TAG.sub("&lt;", text)


def short(text: str, most_chars: int) -> str:
    """The text; of a longer one the beginning and an ellipsis."""
    return text if len(text) <= most_chars else text[: most_chars - 1] + "…"


def one_line(text: str, most_chars: int = NAME_CHARS) -> str:
    """Text cleaned, its white space made single spaces; of a longer one the beginning and an ellipsis."""
    return short(" ".join(clean(text).split()), most_chars)


def without_middle(text: str, most_chars: int) -> str:
    """The text; of a longer one the beginning and the end, and how many characters are left out between them."""
    if len(text) <= most_chars:
        return text
    head = most_chars * 2 // 3
    return f"{text[:head]} [… {len(text) - most_chars} characters …] {text[len(text) - (most_chars - head) :]}"


def is_plain(name: str) -> bool:
    """True for a name that can be shown just as it is: nothing invisible, no tab or line end, and not too long."""
    return len(name) <= NAME_CHARS and not _BREAK.search(name) and clean(name) == name


def encodable(text: str) -> str:
    """The same text with split surrogate pairs joined and lone ones replaced, so that UTF-8 can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def storable(text: str) -> str:
    """The same text as every store and every request can hold it: U+FFFD stands for NUL and for lone surrogates."""
    if text.isascii():
        return text.replace("\0", REPLACEMENT) if "\0" in text else text
    return encodable(text).replace("\0", REPLACEMENT)


KEY_LETTERS = "bcdfghjklmnpqrstvwxz"
"""Letters of a fence's key. Without vowels and digits it spells no word and is no number, so breaking it up harms no
data."""
KEY_CHARS = 6


def fence_key(turn_id: str) -> str:
    """KEY_CHARS letters, the same for a whole turn: its text stays byte-stable, and the provider's cache holds."""
    number = int.from_bytes(hashlib.sha256(turn_id.encode()).digest(), "big")
    return "".join(KEY_LETTERS[number // len(KEY_LETTERS) ** place % len(KEY_LETTERS)] for place in range(KEY_CHARS))


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


def longest(most: int, fits: Callable[[int], bool]) -> int:
    """Find the largest number up to ``most`` that fits, by halving; 0 if none does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def closest(name: str, known: Iterable[str], *, least: float = 0.6) -> str:
    """The known name that resembles one most; empty if none does.

    Args:
        least: how alike they must be (0-1), as ``difflib`` says it.
    """
    return next(iter(get_close_matches(name, known, n=1, cutoff=least)), "")


def did_you_mean(name: str, known: Iterable[str], *, most: int = 1, least: float = 0.6) -> str:
    """Advise up to ``most`` of the known names that resemble one, as ``closest`` finds them; empty if none does."""
    near = get_close_matches(name, known, most, least)
    return f"did you mean {', '.join(near)}?" if near else ""
