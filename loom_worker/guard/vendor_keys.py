"""Finds the keys that vendors issue, bare in a text: known shapes, and values that look drawn at random. Linear.

Shapes are in ``vendor_keys.txt``, one a line, with their sources; names of services in ``vendor_names.txt``.
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
LEAST_BARE_CHARS = 20
"""Length of a random value behind a prefix, such as ``acme_``, and of one that is known by nothing but its letters."""


def vendor_keys(text: str) -> Iterator[tuple[int, int]]:
    """Where keys of known shapes begin and end, then values that look random and are no hash or id; some overlap."""
    for match in _shapes().finditer(text):
        yield match.span()
    for match in _VALUE.finditer(text):
        value, start = match[0].rstrip(".-/~+"), match.start()
        name, _, rest = value.partition("=")
        if rest.strip("=") and not _is_random(name):
            value, start = rest, start + len(name) + 1
        if len(value) <= MOST_CHARS and _is_key(value, text, start):
            yield start, start + len(value)
            # The same value once more right behind it, such as "'x' | 'x'".
            again = text.find(value, start + len(value), start + 2 * len(value) + AGAIN_CHARS)
            if again > 0 and "\0" not in text[start:again]:
                yield again, again + len(value)


@cache
def vendors() -> Mapping[str, str]:
    """Each vendor's shape, a regular expression."""
    lines = Path(__file__).with_name("vendor_keys.txt").read_text("utf-8").splitlines()
    return dict(line.split("  ", 1) for line in lines if not line.startswith("#"))


@cache
def _shapes() -> re.Pattern[str]:
    # Shapes are tried only where a boundary is followed by as many characters as the shortest key has.
    begins = r"(?:(?<![\w-])|(?<=\\[nrt]))(?=[\w.:~+/=$|!@-]{15})"
    return re.compile(rf"{begins}(?:{'|'.join(vendors().values())})", re.ASCII)


@cache
def _cues() -> frozenset[str]:
    lines = Path(__file__).with_name("vendor_names.txt").read_text("utf-8").splitlines()
    return _CUES.union(*(line.split() for line in lines if not line.startswith("#")))


def _is_key(value: str, text: str, start: int) -> bool:
    before = text[max(0, start - CUE_CHARS) : start].rpartition("\0")[2]
    prefix = _PREFIX.match(value)
    body = value[prefix.end() :] if prefix and 2 * prefix.end() < len(value) else value
    if not _is_random(body, least_changes=TOLD_CHANGES) or _ULID.fullmatch(body):
        return False
    told = _told(f"{before}{prefix[0] if prefix else ''}")
    if told is not None:
        return told
    is_given = prefix is not None or before.rstrip().endswith(("=", ":", "'", '"', "`"))
    return _is_bare_key(body, is_given=is_given) and not before.endswith(("base64,", "/", "#"))


def _is_bare_key(body: str, *, is_given: bool) -> bool:
    """Whether nothing else is so written: more than hexadecimal, no path, and long unless a name or a prefix gives it."""
    least = LEAST_BARE_CHARS if is_given else LEAST_BARE_CHARS + 4
    return len(body) >= least and _is_random(body) and not _HEX.fullmatch(body) and not {*"/."}.intersection(body)


def _told(before: str) -> bool | None:
    """What the words before a value say of it: a key, none, or nothing. The nearest that says anything counts."""
    words = [word.lower() for word in _WORD.findall(before)]
    for index in range(len(words) - 1, -1, -1):
        word, leading = words[index], words[index - 1] if index else ""
        if word == "key" and leading in _NO_SECRET_KEYS:
            return False
        if word == "id" and leading in ("client", "app"):
            return True
        if word in _NO_CUES:
            return False
        if word in _cues() or any(word[:size] in _cues() for size in range(4, min(len(word), 16))):
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
    rf"(?:(?<![\w+/.~%\0\\-])|(?<=\\[nrt]))(?=[\w+/.~%=-]*\d)[\w+/.~%-][\w+/.~%=-]{{{LEAST_CHARS - 1},}}(?!\0)", re.ASCII
)
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9]{0,11}(?:[_-][A-Za-z][A-Za-z0-9]{0,9}){0,2}[_-](?=[A-Za-z0-9])")
_WORD = re.compile(r"[A-Z]?[a-z]+(?:\d+(?![A-Za-z]))?|[A-Z]+(?:\d+(?![A-Za-z]))?")
_HEX = re.compile(r"[0-9a-f-]+|[0-9A-F-]+")
_ULID = re.compile(r"[0-7][0-9a-hjkmnp-tv-z]{25}|[0-7][0-9A-HJKMNP-TV-Z]{25}")
"""Sortable ids, as Loom makes them."""
_DIGIT_CHANGE = re.compile(r"(?<=\d)[A-Za-z]|(?<=[A-Za-z])\d", re.ASCII)
_CASE_CHANGE = re.compile(r"(?<=[a-z])[A-Z]|(?<=[A-Z])[a-z]")
_WORD_IN_MIXED = re.compile(r"[A-Z][a-z]{2,}|[a-z]{3,}|[A-Z]{4,}")
_WHOLE_WORD = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{3,}(?![A-Za-z0-9])")
_NO_WORD = re.compile(r"[^aeiouy]{4}|\A[^aeiouy]+\Z", re.IGNORECASE)
"""Letters that nobody could say: four consonants in a row, or no vowel at all."""
_CUES = frozenset(
    "secret secrets token tokens key keys apikey api auth oauth authorization authtoken bearer access password passwd pass"
    " pwd passphrase credential credentials creds private sid hmac salt pat psk licence license webhook".split()
)
_NO_SECRET_KEYS = frozenset("public idempotency cache primary foreign partition sort object storage lookup row".split())
_NO_CUES = frozenset(
    "sha sha1 sha224 sha256 sha384 sha512 md5 blake2b hash hashes hashed digest checksum integrity commit commits rev"
    " revision etag uuid guid ulid id ids fingerprint thumbprint blob tree ref version build base64 image png jpeg gif"
    " svg woff font src href url path file trace span request cursor idempotency nonce session turn run toolu msg call"
    " chatcmpl resp req evt css in ami snap vol subnet cus pi ch sub price prod asst thread batch item".split()
)
