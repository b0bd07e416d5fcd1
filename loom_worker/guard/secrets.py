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
    text = _PUBLIC_BLOCK.sub(lambda block: " " * len(block[0]), text)
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
    is_name = _IDENTIFIER.fullmatch(value) and rest[:1] in _AFTER_NAME
    return not (_NO_VALUE.fullmatch(value) or is_name or (rest[:1] not in ("'", '"') and _CODE.fullmatch(value)))


def _value_but(never: str) -> Callable[[str, str], bool]:
    """A test that is also false for values that match in whole."""
    pattern = re.compile(never)
    return lambda value, rest: not pattern.fullmatch(value) and _is_value(value, rest)


def _is_credential(value: str, rest: str) -> bool:
    """False for words: "bearer authentication" is no credential."""
    return _has_digit(value, rest) or len(value) >= 20 or _is_basic(value)


def _is_basic(value: str) -> bool:
    try:
        return b":" in base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False


_NO_VALUE = re.compile(
    r"true|false|yes|no|null|none|nil|undefined|str(?:ing)?|bytes|int|optional|required"
    r"|[{<\[(].*|\$(?:[{(].*|[a-z_]+)|%(?:[{(].*|[a-z_]+%?)|.*(?:\.\.\.|…|[}>]`?)|(.)\1*"
    r"|(?:your|my|the|an?|some|new|old)[_-]\D*|.*(?:example|placeholder|changeme|change_me|dummy|redacted).*"
    r"|[a-z]+_(?:password|passwd|secret|token|key)|password|passwd|secret|token|0x[0-9a-f]{40}"
    r"|(?-i:[.~]{0,2}(?:/[a-z0-9_.-]+){2,})",
    re.IGNORECASE | re.DOTALL,
)
"""A word, ``${NAME}``, ``<password>``, ``your-key``, ``***`` and the like: where a secret belongs in documentation."""
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z_.]*")
_CODE = re.compile(
    r"await|new|(?:self|this|cls|settings|config|cfg|conf|process|os|env|args|opts|options|req|request|res|response"
    r"|app|ctx|context|params|props|user|data|state|session|client)\??\.[\w.?]+|[a-z_][A-Za-z_.]*[(\[].*"
)
_PLAIN = r".{0,5}|\d+|[A-Za-z_]+[.,;)]?|.*[.(\[].*|[A-Z]*\d+(?:[/-][A-Z0-9]+)+"
"""A count, a word such as "ok", a name or a seat: a password has other characters beside its letters."""
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
_PUBLIC = r"[A-Z0-9 ]{0,30}(?:CERTIFICATE|PUBLIC|SIGNATURE|SIGNED|PARAMETERS|CRL)"
_PUBLIC_BLOCK = re.compile(rf"-----BEGIN {_PUBLIC}[A-Z0-9 ]{{0,10}}-----[^-\0]{{0,20000}}+-----END ")
_PAGING = "".join(
    f"(?<!{name}{gap}token)" for name in "next page continuation input sync".split() for gap in ("", "_", "-")
)
_PASS = _value_but(_PLAIN)
_SHAPES = (
    _Shape(re.compile(r"[A-Z]_PASS=([^\s\"'&;<>\\\0]{4,})"), is_one=_is_value),
    _Shape(re.compile(r"://[^\s:/@\"'<>\0]{0,256}:([^\s/\"'<>\0]{1,512})@")),
    _Shape(
        re.compile(
            rf"-----BEGIN (?!{_PUBLIC})[A-Z0-9 ]{{1,40}}-----(?:[^-\0]|-(?!----))*+(?:-----END [^-\n\0]{{0,64}}-----)?"
        )
    ),
)
_NAMED = (
    _Shape(
        re.compile(
            r"authorization\\{0,3}[\"']?[ \t]{0,5}[:=][ \t]{0,5}\\{0,3}[\"']?"
            r"(?:[a-z]{1,20}[ \t]{1,5})?([^\s\"',;\\\0]++)(?![ \t]{0,5}\0)"
        ),
        is_one=lambda value, _rest: value[0] not in "<{$…*",
    ),
    _Shape(
        re.compile(r"cookie\\{0,3}[\"']?[ \t]{0,5}[:=][ \t]{0,5}\\{0,3}[\"']?([^\r\n\"'\\\0]+)"),
        is_one=lambda value, _rest: "=" in value,
    ),
    _Shape(re.compile(r"b(?:earer|asic)[ \t]{1,5}([a-z0-9._~+/=-]{8,})"), is_one=_is_credential),
    _Shape(re.compile(rf"{_NAMES}(?:{_VALUE})"), is_one=_is_value),
    _Shape(re.compile(rf"token{_PAGING}(?:{_VALUE})"), is_one=_value_but(r"\d{1,5}")),
    _Shape(
        re.compile(
            rf"(?:pass(?<![a-z]pass)|passwort|kennwort|wachtwoord|mot de passe|contraseña|senha|пароль)"
            rf"(?:{_SET}(?:{_QUOTED}|{_BARE}))"
        ),
        is_one=_PASS,
    ),
    _Shape(
        re.compile(r"(?:login\s{1,9}[^\s\0]{1,99}\s{1,9}password\s|mysql[^\n\0]{0,99}?\s-p)([^\s'\"\0]+)"), is_one=_PASS
    ),
    _Shape(
        re.compile(
            r"(?:convertto-securestring (?:-string )?"
            r"|define\(\s?['\"][a-z_]{0,40}(?:password|key|salt|secret)['\"],\s{0,9})"
            r"(?:'([^'\n\0]+)|\"([^\"\n\0]+))"
        ),
        is_one=_is_value,
    ),
    _Shape(
        re.compile(rf"(?:keys|tokens|secrets){_SET}[\"']?([^\s\"'&;<>\\\0()\[\]{{}}]+)"),
        is_one=_value_but(r".{0,15}|\D*"),
    ),
    _Shape(
        re.compile(r"push -u \S+|(?:-u|--user)(?<!\S-u)[ =]{1,3}[\"']?[^\s:\"'\0]{0,64}[\"']?:[\"']?([^\s\"'\0]+)"),
        is_one=_value_but(rf"(?=[a-z]|.{{0,9}}$)(?:{_PLAIN})|push .*"),
    ),
    _Shape(re.compile(r"[?&]sig=([^\s\"'&;<>\\\0]{16,})")),
    _Shape(re.compile(rf"--(?<!\S--)[a-z-]{{0,30}}?(?:{_NAMES}|token)[ \t]{{1,3}}[\"']?([^\s\"'\0]+)")),
)
"""In lower case, so that each begins with letters that are searched for without looking at every place."""
