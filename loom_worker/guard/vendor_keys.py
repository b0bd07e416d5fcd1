"""Finds the keys that vendors issue, bare in a text: known shapes, and values that look drawn at random. Linear.

Shapes are in ``vendor_keys.txt``, one a line, with their sources; words that tell of a value in ``key_words.txt``.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

BARE_CHANGES, TOLD_CHANGES = 0.3, 0.15
"""The least changes among the characters of a random value: of one that nothing tells, and of one that a word tells."""
CUE_CHARS = 64
"""How far before a random value a word may stand that tells what it is."""
AGAIN_CHARS = 12
"""How far behind a key its repetition may begin."""
LEAST_CHARS, MOST_CHARS = 15, 200
"""Length of a random value; a longer one is a file, a picture or a document."""
LEAST_GIVEN_CHARS, LEAST_BARE_CHARS = 20, 24
"""The same where no word tells, behind a prefix such as ``acme_``, a quote or an equals sign, and elsewhere."""


def vendor_keys(text: str) -> Iterator[tuple[int, int]]:
    """Where keys of known shapes begin and end, then values that look random and are no hash or id; some overlap."""
    yield from (match.span() for match in _shapes().finditer(text))
    for match in _VALUE.finditer(text):
        value = match[0].lstrip("=").rstrip(".-/~+")
        name, _, rest = value.partition("=")
        if rest.strip("=") and not _is_random(name):
            value = rest.lstrip("=")
        start = match.start() + match[0].index(value)
        end = start + len(value)
        if len(value) <= MOST_CHARS and _is_key(value, text[max(0, start - CUE_CHARS) : start]):
            yield start, end
            # Once more right behind it, such as "'x' | 'x'".
            again = text.find(value, end, end + AGAIN_CHARS + len(value))
            if again >= 0 and "\0" not in text[end:again]:
                yield again, again + len(value)


@cache
def vendors() -> Mapping[str, str]:
    """Each vendor's shape, a regular expression."""
    lines = Path(__file__).with_name("vendor_keys.txt").read_text("utf-8").splitlines()
    return dict(line.split("  ", 1) for line in lines if not line.startswith("#"))


@cache
def _shapes() -> re.Pattern[str]:
    # Shapes are tried only where a boundary is followed by as many characters as the shortest key has.
    begins = r"(?:(?<![\w-])|(?<=\\[nrt]))(?=[\w.:~+/=$|!@-]{10})"
    return re.compile(rf"{begins}(?:{'|'.join(vendors().values())})", re.ASCII)


@cache
def _words() -> Mapping[str, frozenset[str]]:
    sections = re.split(r"\[(.+)\]\n", Path(__file__).with_name("key_words.txt").read_text("utf-8"))[1:]
    return {name: frozenset(words.split()) for name, words in zip(sections[::2], sections[1::2], strict=True)}


def _is_key(value: str, before: str) -> bool:
    _, gap, before = before.rpartition("\0")
    prefix = _PREFIX.match(value)
    prefix = prefix if prefix and 2 * prefix.end() < len(value) else None
    body = value[prefix.end() :] if prefix else value
    words = re.findall("[a-z]+", prefix[0].lower()) if prefix else ()
    is_id = _ID.fullmatch(body) or _ID.fullmatch(value) or _words()["prefixes of ids"].intersection(words)
    if is_id or not _is_random(body, least_changes=TOLD_CHANGES):
        return False
    told = _told(f"{before}{prefix[0] if prefix else ''}")
    if told is not None or gap:  # a word that tells of it may have stood where the gap is
        return bool(told)
    is_given = prefix is not None or before.rstrip().endswith(("=", ":", "'", '"', "`"))
    least = LEAST_GIVEN_CHARS if is_given else LEAST_BARE_CHARS
    is_value = len(body) >= least and _is_random(body) and not _HEX_OR_PATH.fullmatch(body)
    return is_value and not before.endswith(("base64,", "/", "#", "list=", "bh=", " b=", 'W/"'))


def _told(before: str) -> bool | None:
    """Whether the words before a value tell of a key; the nearest that tells counts, and None says nothing."""
    words, names = _words(), [word.lower() for word in _WORD.findall(before)]
    keys = words["services"] | words["keys"]
    for leading, name in reversed([*zip(["", *names], names, strict=False)]):
        if name == "id" and leading in ("client", "app"):
            return True
        if name in words["no keys"] or (
            name in ("key", "token") and leading in words["kinds of keys that are no secrets"]
        ):
            return False
        if any(name[:size] in keys for size in range(min(len(name), 4), min(len(name), 16) + 1)):
            return True
    return None


def _is_random(value: str, *, least_changes: float = BARE_CHANGES) -> bool:
    """Whether letters and digits change as they do in drawn characters, not as in words, names and numbers.

    Args:
        least_changes: from a letter to a digit and back, and half of those of the case, for each character.
    """
    size, changes = len(value), len(_DIGIT_CHANGE.findall(value))
    is_mixed = not (value.islower() or value.isupper())
    if size < LEAST_CHARS or changes < (1 if is_mixed else 2) or len(set(value)) < min(8, size // 2):
        return False
    if changes + len(_CASE_CHANGE.findall(value)) / 2 < size * (least_changes if is_mixed else least_changes / 2):
        return False
    words = (_WORD_IN_MIXED if is_mixed or "." in value else _WHOLE_WORD).findall(value)
    return sum(len(word) for word in words if not _NO_WORD.search(word)) < 0.45 * size


_VALUE = re.compile(
    rf"(?:(?<![\w+/.~%=\0\\-])|(?<=\\[nrt]))(?=[\w+/.~%=-]*\d)[\w+/.~%=-]{{{LEAST_CHARS},}}+(?!\0)", re.ASCII
)
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9]{0,11}(?:[_-][A-Za-z][A-Za-z0-9]{0,9}){0,2}[_-](?=[A-Za-z0-9])")
_WORD = re.compile(r"[A-Z]?[a-z]+(?:\d+(?![A-Za-z]))?|[A-Z]+(?:\d+(?![A-Za-z]))?")
_HEX_OR_PATH = re.compile(r"0x[0-9A-Fa-f]+|[0-9a-f-]+|[0-9A-F-]+|.*[/.].*")
_ID = re.compile(
    r"[0-7][0-9a-hjkmnp-tv-z]{25}|[0-7][0-9A-HJKMNP-TV-Z]{25}|0x[0-9A-Fa-f]{40}|pk_(?:live|test)_\w+"
    r"|(?:bc|tb|ltc|addr|stake|cosmos|osmo|npub)1[02-9ac-hj-np-z]{25,}|Qm[1-9A-HJ-NP-Za-km-z]{44}|baf[a-z2-7]{50,}"
)
"""Sortable ids, as Loom makes them, publishable keys, addresses on blockchains and of contents."""
_DIGIT_CHANGE = re.compile(r"(?<=\d)[A-Za-z]|(?<=[A-Za-z])\d", re.ASCII)
_CASE_CHANGE = re.compile(r"(?<=[a-z])[A-Z]|(?<=[A-Z])[a-z]")
_WORD_IN_MIXED = re.compile(r"[A-Z][a-z]{2,}|[a-z]{3,}|[A-Z]{4,}")
_WHOLE_WORD = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{3,}(?![A-Za-z0-9])")
_NO_WORD = re.compile(r"[^aeiouy]{4}|\A[^aeiouy]+\Z", re.IGNORECASE)
"""Letters that nobody could say: four consonants in a row, or no vowel at all."""
