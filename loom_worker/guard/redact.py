"""Removes secrets and what identifies a person from text before it is kept or shown. Pure, and linear in the text.

Removed: passwords in URLs, Authorization, Cookie, Bearer and Basic credentials, keys of known shapes, values of
names such as password, token and api_key, PEM blocks, JSON Web Tokens, AWS secret keys near their ids; e-mail
addresses, payment cards (Luhn), IBANs (mod 97), US social security numbers, and telephone numbers with a country
code, in the North American form or behind a word such as "phone".

Not removed: names, postal addresses, IP addresses, dates of birth, national telephone numbers that look like any
other number, passwords in plain prose ("the password is hunter2"), and secrets of unknown shape.
"""

import base64
import binascii
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, product

from loom_worker.guard.vendor_keys import VENDOR_KEY

SECRET = "[redacted]"  # noqa: S105 - replaces one
EMAIL = "[redacted email]"
MARKER = re.compile(r"\[redacted(?: [a-z]{1,10})?\]")
"""Replaces anything that was removed, such as ``[redacted email]``."""
ROUNDS = 4
"""A text is searched again while its rest still matches; after that, a stretch that matches is removed as a whole."""
AWS_NEAR_CHARS = 200
"""Forty characters are taken for an AWS secret key, which has no other shape, only this near to a key id."""
_GAP = "\0"
"""Stands for a marker while the rest is searched: no pattern below matches across it."""

Span = tuple[int, int, str]
"""Begin, end, and the marker for what lies between."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Something to be removed: the last group that matched, or the whole match if there is none."""

    pattern: re.Pattern[str]
    marker: str = SECRET
    is_one: Callable[[str], bool] = lambda _: True
    """A further test of what was found."""


def redacted(text: str) -> str:
    """Replace each secret by a marker; what was redacted before does not change.

    NUL, which no store of ours can carry, becomes U+FFFD.
    """
    markers = MARKER.findall(text)
    rest = MARKER.sub(_GAP, text.replace(_GAP, "\ufffd"))
    for _ in range(ROUNDS):
        spans = _merged(rest)
        if not spans:
            return _filled(rest, markers)
        rest, markers = _taken(rest, spans, markers)
    return _filled(_GAP.join(SECRET if _merged(stretch) else stretch for stretch in rest.split(_GAP)), markers)


def _filled(rest: str, markers: list[str]) -> str:
    parts = rest.split(_GAP)
    return "".join(part for pair in zip(parts, [*markers, ""], strict=True) for part in pair)


def _taken(rest: str, spans: list[Span], markers: list[str]) -> tuple[str, list[str]]:
    """Replace spans, which contain no gaps, by gaps; also the markers of all gaps, in their order."""
    parts: list[str] = []
    kept: list[str] = []
    old = iter(markers)
    begin = 0
    for start, end, marker in spans:
        parts += [rest[begin:start], _GAP]
        kept += [next(old) for _ in range(rest.count(_GAP, begin, start))] + [marker]
        begin = end
    return "".join([*parts, rest[begin:]]), [*kept, *old]


def _merged(text: str) -> list[Span]:
    """All spans in order; those that overlap become one."""
    merged: list[Span] = []
    for start, end, marker in sorted(_found(text)):
        if not merged or start >= merged[-1][1]:
            merged.append((start, end, marker))
        elif not (
            marker == EMAIL and text.startswith("@", merged[-1][1])
        ):  # a URL's password and its host are no e-mail address
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]), merged[-1][2])
    return merged


def _found(text: str) -> Iterator[Span]:
    lower = text.replace("\u0130", "i").lower()  # the one character that becomes two
    for kind, searched in chain(product(_KINDS, [text]), product(_NAMED_KINDS, [lower])):
        for match in kind.pattern.finditer(searched):
            start, end = match.span(match.lastindex or 0)
            if kind.is_one(text[start:end]):
                yield start, end, kind.marker
    yield from _addresses(text)
    yield from _aws_secrets(text)
    yield from _ibans(text)


def _addresses(text: str) -> Iterator[Span]:
    backwards = text[::-1]
    for match in _DOMAIN.finditer(text):
        local = _LOCAL.match(backwards, len(text) - match.start())
        if local:
            yield match.start() - local.end() + local.start(), match.end(), EMAIL


def _aws_secrets(text: str) -> Iterator[Span]:
    ids = [match.start() for match in _AWS_ID.finditer(text)]
    for match in _AWS_SECRET.finditer(text) if ids else ():
        after = bisect_left(ids, match.start() - AWS_NEAR_CHARS)
        if after < len(ids) and ids[after] <= match.end() + AWS_NEAR_CHARS:
            yield match.start(), match.end(), SECRET


def _has_digit(text: str) -> bool:
    return any(char.isdigit() for char in text)


def _is_value(value: str) -> bool:
    """False for a word that stands where a secret could but is none."""
    return value.lower() not in {"true", "false", "yes", "no", "null", "none", "nil", "undefined"}


def _is_token(value: str) -> bool:
    """False for a count of tokens."""
    return _is_value(value) and not (value.isdecimal() and len(value) < 6)


def _is_credential(value: str) -> bool:
    """False for words: "bearer authentication" is no credential."""
    return _has_digit(value) or len(value) >= 20 or _is_basic(value)


def _is_basic(value: str) -> bool:
    try:
        return b":" in base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False


def _is_card(text: str) -> bool:
    digits = text.replace(" ", "").replace("-", "")
    checked = digits[-1::-2] + digits[-2::-2].translate(_DOUBLED)
    return sum(map(int, checked)) % 10 == 0 and _ISSUED.fullmatch(digits) is not None


def _is_ssn(text: str) -> bool:
    area, group, number = text.split("-")
    return area not in {"000", "666"} and area < "900" and group != "00" and number != "0000"


def _ibans(text: str) -> Iterator[Span]:
    for match in _IBAN.finditer(text):
        code = match[0].replace(" ", "").upper()[: _IBAN_CHARS.get(match[0][:2].upper(), 0)]
        end = match.start()
        for _ in code:  # what follows may look like more of it
            end += 1 + (text[end] == " ")
        if code and not text[end : end + 1].isalnum() and _is_valid_iban(code):
            yield match.start(), end, "[redacted iban]"


def _is_valid_iban(code: str) -> bool:
    return int("".join(str(int(char, 36)) for char in code[4:] + code[:4])) % 97 == 1


def _is_phone(text: str) -> bool:
    digits = sum(char.isdigit() for char in text)
    return 7 <= digits <= 15 and not re.match(r"\+?(?:19|20)\d\d-[01]\d-[0-3]\d", text)


_AWS_ID = re.compile(r"(?<![A-Za-z0-9])A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}(?![A-Za-z0-9])")
_AWS_SECRET = re.compile(r"(?<![A-Za-z0-9/+])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")
_DOMAIN = re.compile(r"@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w-])")
_LOCAL = re.compile(r"[\w.%+-]{1,64}")
_DOUBLED = str.maketrans("0123456789", "0246813579")
"""Twice a digit, and the sum of that one's digits (Luhn)."""
_ISSUED = re.compile(
    r"4\d{12}(?:\d{3}){0,2}|5[1-5]\d{14}|2(?:2[2-9]|[3-6]\d|7[0-2])\d{13}|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11}|35\d{14}"
    r"|(?:2131|1800)\d{11}|(?:50|5[6-9]|6\d)\d{10,17}"
)
"""Visa, Mastercard, American Express, Diners, JCB, and Maestro with Discover and UnionPay."""
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}\d\d(?: ?[A-Za-z0-9]){11,30}")
_IBAN_CHARS = {
    country: chars
    for chars, countries in {
        15: "NO",
        16: "BE",
        18: "DK FI FO GL NL SD",
        19: "MK SI",
        20: "AT BA EE KZ LT LU MN XK",
        21: "CH HR LI LV",
        22: "BG BH CR DE GB GE IE ME RS VA",
        23: "AE GI IL IQ OM TL",
        24: "AD CZ ES MD PK RO SA SE SK TN VG",
        25: "LY PT ST",
        26: "IS TR",
        27: "BI DJ FR GR IT MC MR SM",
        28: "AL AZ BY CY DO GT HU LB NI PL SV",
        29: "BR EG PS QA UA",
        30: "JO KW MU",
        31: "MT SC",
        32: "LC",
        33: "RU",
    }.items()
    for country in countries.split()
}
"""Length by country, from the registry of SWIFT (ISO 13616)."""

# What keeps each pattern linear: either a match cannot fail once its first, short part has matched, or the run of
# characters it would scan holds no other place where it could begin (the look-behind, or a character left out).
_QUOTED = (
    r"[bruf]{0,2}(?:"
    r"\\\"((?:[^\"\\\n\0]|\\\\\\\"|\\(?!\"))+)"  # inside of a string in JSON
    r"|\"((?:[^\"\\\n\0]|\\[^\n\0])+)"
    r"|'((?:[^'\\\n\0]|\\[^\n\0])+))"
)
_BARE = r"(?![bruf]{0,2}[\"'\\]{1,2}\0)([^\s\"'&;,<>\\\0]*[^\s\"'&;,<>\\\0()\[\]{}.:])"
_SET = r"\\{0,3}[\"'\]]?\]?[ \t]{0,5}(?::=|=>|[:=])[ \t]{0,5}"
_VALUE = rf"{_SET}(?:{_QUOTED}|{_BARE})|>([^<>\n\0]{{1,4096}})</"
_NAMES = (
    r"(?:pass(?:word|wd|phrase)|pwd|secret(?:[_-]?(?:access[_-]?)?key)?|credentials?"
    r"|(?:api|access|account|private|signing|encryption)[_-]?key)"
)
_PHONE = r"[\d(][\d ().-]{5,22}\d"
_EXTENSION = r"(?: ?(?:x|ext\.? ?)\d{1,6})?"

_KINDS = (
    _Kind(re.compile(r"://[^\s:/@\"'<>\0]{0,256}:([^\s/\"'<>\0]{1,512})@")),
    _Kind(re.compile(r"-----BEGIN [A-Z0-9 ]{1,40}-----(?:[^-\0]|-(?!----))*+(?:-----END [^-\n\0]{0,64}-----)?")),
    _Kind(VENDOR_KEY),
    _Kind(re.compile(r"sk-(?<![A-Za-z0-9_-]sk-)[A-Za-z0-9_-]{16,}"), is_one=_has_digit),
    _Kind(
        re.compile(
            r"[Aeghlnrswxy](?:(?<![A-Za-z0-9_-].)|(?<=\\[nrt].))(?:(?<=A)(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}(?![A-Za-z0-9])"
            r"|(?<=g)(?:h[pousr]_[A-Za-z0-9]{20,}|ithub_pat_[A-Za-z0-9_]{20,}|lpat-[A-Za-z0-9_-]{20,})"
            r"|(?<=x)(?:ox[a-z]|app)-[A-Za-z0-9-]{10,}|(?<=A)Iza[A-Za-z0-9_-]{30,}|(?<=y)a29\.[A-Za-z0-9_-]{20,}"
            r"|(?<=[rs])k_(?:live|test)_[A-Za-z0-9]{16,}|(?<=w)hsec_[A-Za-z0-9+/=]{20,}|(?<=l)oom_[0-9A-Za-z]{43}"
            r"|(?:(?<=h)f|(?<=n)pm)_[A-Za-z0-9]{30,}|(?<=e)yJ[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*){2,4})"
        )
    ),
    _Kind(re.compile(r"\d{12}(?<![\w.]\d{12})\d{0,7}(?!\w|\.\d)"), "[redacted card]", _is_card),
    _Kind(
        re.compile(
            r"(?=(\d{4}(?<![\w.]\d{4})([ -])(?:\d{4}\2\d{4}\2\d{4}(?:\2\d{3})?|\d{6}\2\d{4,5})(?!\w|[.-]\d)))\d",
            re.ASCII,
        ),
        "[redacted card]",
        _is_card,
    ),
    _Kind(re.compile(r"\d{3}-(?<![\w-]\d{3}-)\d\d-\d{4}(?![\w-])", re.ASCII), "[redacted ssn]", _is_ssn),
    _Kind(re.compile(r"\+(?<![\w.+-]\+)(?!0)[\d ().-]{7,22}\d" + _EXTENSION), "[redacted phone]", _is_phone),
    _Kind(
        re.compile(
            r"(?<![\w.-])((?:1[ .-])?(?:\([2-9]\d\d\) ?[2-9]\d\d[.-]|[2-9]\d\d([.-])[2-9]\d\d\2)\d{4}(?![.-]?\d)"
            + _EXTENSION
            + ")"
        ),
        "[redacted phone]",
    ),
)
_NAMED_KINDS = (
    _Kind(
        re.compile(
            r"authorization\\{0,3}[\"']?[ \t]{0,5}[:=][ \t]{0,5}\\{0,3}[\"']?"
            r"(?:[a-z]{1,20}[ \t]{1,5})?([^\s\"',;\\\0]++)(?![ \t]{0,5}\0)"
        )
    ),
    _Kind(
        re.compile(r"cookie\\{0,3}[\"']?[ \t]{0,5}[:=][ \t]{0,5}\\{0,3}[\"']?([^\r\n\"'\\\0]+)"),
        is_one=lambda value: "=" in value,
    ),
    _Kind(re.compile(r"b(?:earer|asic)[ \t]{1,5}([a-z0-9._~+/=-]{8,})"), is_one=_is_credential),
    _Kind(re.compile(rf"{_NAMES}(?:{_VALUE})"), is_one=_is_value),
    _Kind(re.compile(rf"token(?:{_VALUE})"), is_one=_is_token),
    _Kind(re.compile(rf"--(?<!\S--)[a-z-]{{0,30}}?(?:{_NAMES}|token)[ \t]{{1,3}}[\"']?([^\s\"'\0]+)")),
    _Kind(
        re.compile(rf"(?:phone|mobile|fax)\b[^\d\n+(\0]{{0,20}}(\+?{_PHONE}{_EXTENSION})(?!\w)"),
        "[redacted phone]",
        _is_phone,
    ),
)
"""In lower case, so that each begins with letters that are searched for without looking at every place."""
