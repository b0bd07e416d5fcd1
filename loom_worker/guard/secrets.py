"""Finds secrets in a text: keys of known or random shape, and values that a name gives away. Linear in the text.

Found: passwords in URLs; Authorization, Cookie, Bearer and Basic credentials; keys of known shapes; random values
that a word or a prefix tells; values of names such as password, token and api_key; PEM blocks; JSON Web Tokens; AWS
secret keys near their ids.

Not found: passwords in plain prose ("the password is hunter2"), and hexadecimal values that nothing tells from hashes.
"""

import base64
import binascii
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from loom_worker.guard.vendor_keys import vendor_keys

AWS_NEAR_CHARS = 200
"""Forty characters are taken for an AWS secret key, which has no other shape, only this near to a key id."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a secret looks like: the last group that matched, or the whole match if there is none."""

    pattern: re.Pattern[str]
    is_one: Callable[[str, str], bool] = lambda _value, _rest: True
    """A further test of what was found, with what follows it."""


def secrets(text: str) -> Iterator[tuple[int, int]]:
    """Where secrets begin and end, in no order; some may overlap."""
    yield from _shaped(text, text, _SHAPES)
    # The one character that becomes two in lower case.
    yield from _shaped(text, text.replace("\u0130", "i").lower(), _NAMED)
    yield from _aws_secrets(text)
    yield from vendor_keys(text)


def _shaped(text: str, searched: str, shapes: tuple[_Shape, ...]) -> Iterator[tuple[int, int]]:
    for shape in shapes:
        for match in shape.pattern.finditer(searched):
            start, end = match.span(match.lastindex or 0)
            if shape.is_one(text[start:end], text[end : end + 2]):
                yield start, end


def _aws_secrets(text: str) -> Iterator[tuple[int, int]]:
    ids = [match.start() for match in _AWS_ID.finditer(text)]
    for match in _AWS_SECRET.finditer(text) if ids else ():
        after = bisect_left(ids, match.start() - AWS_NEAR_CHARS)
        if after < len(ids) and ids[after] <= match.end() + AWS_NEAR_CHARS:
            yield match.start(), match.end()


def _has_digit(value: str, _rest: str) -> bool:
    return any(map(str.isdigit, value))


def _is_value(value: str, rest: str) -> bool:
    """False for what stands where a secret could but is none: a placeholder, or a name in code."""
    return not _NO_VALUE.fullmatch(value) and not (_IDENTIFIER.fullmatch(value) and rest[:1] in _AFTER_NAME)


def _is_token(value: str, rest: str) -> bool:
    """False for a count of tokens."""
    return _is_value(value, rest) and not (value.isdecimal() and len(value) < 6)


def _is_pass(value: str, rest: str) -> bool:
    """False for a count, a word such as "ok", and a name: a password has other characters beside its letters."""
    return _is_value(value, rest) and len(value) >= 6 and not _PLAIN.fullmatch(value)


def _is_login(value: str, rest: str) -> bool:
    return _is_pass(value, rest) or (len(value) >= 10 and value.isalpha() and not value.islower())


def _is_list(value: str, rest: str) -> bool:
    return len(value) >= 16 and _has_digit(value, rest) and _is_value(value, rest)


def _is_credential(value: str, rest: str) -> bool:
    """False for words: "bearer authentication" is no credential."""
    return _has_digit(value, rest) or len(value) >= 20 or _is_basic(value)


def _is_header(value: str, _rest: str) -> bool:
    """False for a placeholder."""
    return value[0] not in "<{$…*"


def _is_cookie(value: str, _rest: str) -> bool:
    return "=" in value


def _is_basic(value: str) -> bool:
    try:
        return b":" in base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False


_NO_VALUE = re.compile(
    r"true|false|yes|no|null|none|nil|undefined|str(?:ing)?|bytes|int|optional|required"
    r"|[{<\[(].*|\$(?:[{(].*|[a-z_]+)|%(?:[{(].*|[a-z_]+%?)|.*(?:\.\.\.|…|[}>]`?)|(.)\1*"
    r"|(?:your|my|the|an?|some|new|old)[_-]\D*|.*(?:example|placeholder|changeme|change_me|dummy|redacted).*"
    r"|[a-z]+_(?:password|passwd|secret|token|key)|password|passwd|secret|token",
    re.IGNORECASE | re.DOTALL,
)
"""A word, ``${NAME}``, ``<password>``, ``your-key``, ``***`` and the like: where a secret belongs in documentation."""
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z_.]*")
_PLAIN = re.compile(r"\d+|[A-Za-z_]+[.,;)]?|.*[.(\[].*")
_AFTER_NAME = frozenset(",)([")
"""``connect(user, password=name, timeout=5)``: what an argument is called says nothing of its value."""
_AWS_ID = re.compile(r"(?<![A-Za-z0-9])A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}(?![A-Za-z0-9])")
_AWS_SECRET = re.compile(r"(?<![A-Za-z0-9/+])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")

# What keeps each pattern linear: either a match cannot fail once its first, short part has matched, or the run of
# characters it would scan holds no other place where it could begin (the look-behind, or a character left out).
_QUOTED = (
    r"[bruf]{0,2}(?:"
    r"\\\"((?:[^\"\\\n\0]|\\\\\\\"|\\(?!\"))+)"  # inside of a string in JSON
    r"|\"((?:[^\"\\\n\0]|\\[^\n\0])+)"
    r"|'((?:[^'\\\n\0]|\\[^\n\0])+))"
)
_BARE = r"(?![bruf]{0,2}[\"'\\]{1,2}\0)([^\s\"'&;,<>\\\0]*[^\s\"'&;,<>\\\0()\[\]{}.:])"
_SET = r"\\{0,3}[\"'\]]?\]?(?: string|\s{1,20}value)?[ \t]{0,5}(?>:{0,3}=>?|:|[.?+]=)[ \t]{0,5}"
_VALUE = rf"{_SET}(?:{_QUOTED}|{_BARE})|>([^<>\n\0]{{1,4096}})</"
_NAMES = (
    r"(?:pass(?:word|wd|phrase)|pwd|secret(?:[_-]?(?:access[_-]?)?key)?(?:[_-]?base)?|credentials?"
    r"|(?:api|access|account|private|signing|encryption)[_-]?key)"
)
_SHAPES = (
    _Shape(re.compile(r"[A-Z]_PASS=([^\s\"'&;<>\\\0]{4,})"), is_one=_is_value),
    _Shape(re.compile(r"://[^\s:/@\"'<>\0]{0,256}:([^\s/\"'<>\0]{1,512})@")),
    _Shape(re.compile(r"-----BEGIN [A-Z0-9 ]{1,40}-----(?:[^-\0]|-(?!----))*+(?:-----END [^-\n\0]{0,64}-----)?")),
)
_NAMED = (
    _Shape(
        re.compile(
            r"authorization\\{0,3}[\"']?[ \t]{0,5}[:=][ \t]{0,5}\\{0,3}[\"']?"
            r"(?:[a-z]{1,20}[ \t]{1,5})?([^\s\"',;\\\0]++)(?![ \t]{0,5}\0)"
        ),
        is_one=_is_header,
    ),
    _Shape(
        re.compile(r"cookie\\{0,3}[\"']?[ \t]{0,5}[:=][ \t]{0,5}\\{0,3}[\"']?([^\r\n\"'\\\0]+)"),
        is_one=_is_cookie,
    ),
    _Shape(re.compile(r"b(?:earer|asic)[ \t]{1,5}([a-z0-9._~+/=-]{8,})"), is_one=_is_credential),
    _Shape(re.compile(rf"{_NAMES}(?:{_VALUE})"), is_one=_is_value),
    _Shape(re.compile(rf"token(?:{_VALUE})"), is_one=_is_token),
    _Shape(re.compile(rf"pass(?<![a-z]pass)(?:{_SET}(?:{_QUOTED}|{_BARE}))"), is_one=_is_pass),
    _Shape(re.compile(rf"(?:keys|tokens|secrets){_SET}[\"']?([^\s\"'&;<>\\\0()\[\]{{}}]+)"), is_one=_is_list),
    _Shape(
        re.compile(r"(?:-u|--user)(?<!\S-u)[ =]{1,3}[\"']?[^\s:\"'\0]{0,64}[\"']?:[\"']?([^\s\"'\0]+)"),
        is_one=_is_login,
    ),
    _Shape(re.compile(r"[?&]sig=([^\s\"'&;<>\\\0]{16,})")),
    _Shape(re.compile(rf"--(?<!\S--)[a-z-]{{0,30}}?(?:{_NAMES}|token)[ \t]{{1,3}}[\"']?([^\s\"'\0]+)")),
)
"""In lower case, so that each begins with letters that are searched for without looking at every place."""
