"""Finds what identifies a person in a text, telephone numbers aside. Pure, and linear in the text."""

import re
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address, IPv6Address

Place = tuple[int, int]
"""Begin and end."""


def emails(text: str) -> Iterator[Place]:
    """E-mail addresses."""
    backwards = text[::-1]
    for match in _DOMAIN.finditer(text):
        local = _LOCAL.match(backwards, len(text) - match.start())
        if local:
            yield match.start() - local.end() + local.start(), match.end()


def cards(text: str) -> Iterator[Place]:
    """Numbers of payment cards, bare or in groups: of an issuer's range, and right by Luhn's check."""
    for pattern in (_CARD, _GROUPED_CARD):
        for match in pattern.finditer(text):
            place = match.span(match.lastindex or 0)
            if _is_card("".join(filter(str.isdecimal, text[slice(*place)]))):
                yield place


def ssns(text: str) -> Iterator[Place]:
    """Social security numbers of the USA; written without hyphens only behind a word for one."""
    return (match.span(1) for pattern in (_SSN, _NAMED_SSN) for match in pattern.finditer(text) if _is_ssn(match[1]))


def ibans(text: str) -> Iterator[Place]:
    """International bank account numbers, right by their check (mod 97)."""
    for match in _IBAN.finditer(text):
        code = match[0].replace(" ", "").upper()[: _IBAN_CHARS.get(match[0][:2].upper(), 0)]
        end = match.start()
        for _ in code:  # what follows may look like more of it
            end += 1 + (text[end] == " ")
        if code and not text[end : end + 1].isalnum() and _is_valid_iban(code):
            yield match.start(), end


def ips(text: str) -> Iterator[Place]:
    """Addresses of the Internet Protocol; not those of this host itself, nor what is said to be a version."""
    for match in _IPV4.finditer(text):
        if not _VERSION.search(text, max(0, match.start() - _VERSION_CHARS), match.start()) and _is_ipv4(match[0]):
            yield match.span()
    for match in _IPV6.finditer(text):
        if _is_ipv6(match[0]):
            yield match.span()


def _is_ipv4(text: str) -> bool:
    try:
        address = IPv4Address(text)
    except AddressValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


def _is_ipv6(text: str) -> bool:
    try:
        address = IPv6Address(text)
    except AddressValueError:
        return False
    # "a::b" is an address, too, and in code the name of something.
    return not (address.is_loopback or address.is_unspecified) and any(map(str.isdigit, text)) and len(text) > 5


def _is_card(digits: str) -> bool:
    checked = digits[-1::-2] + digits[-2::-2].translate(_DOUBLED)
    return sum(map(int, checked)) % 10 == 0 and _ISSUED.fullmatch(digits) is not None


def _is_ssn(text: str) -> bool:
    digits = "".join(filter(str.isdecimal, text))
    area, group, number = digits[:3], digits[3:5], digits[5:]
    return area not in {"000", "666"} and area < "900" and group != "00" and number != "0000"


def _is_valid_iban(code: str) -> bool:
    return int("".join(str(int(char, 36)) for char in code[4:] + code[:4])) % 97 == 1


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
    country: int(chars)
    for chars, *countries in map(
        str.split,
        "15 NO|16 BE|18 DK FI FO GL NL SD|19 MK SI|20 AT BA EE KZ LT LU MN XK|21 CH HR LI LV|22 BG BH CR DE GB GE IE ME"
        " RS VA|23 AE GI IL IQ OM TL|24 AD CZ ES MD PK RO SA SE SK TN VG|25 LY PT ST|26 IS TR|27 BI DJ FR GR IT MC MR"
        " SM|28 AL AZ BY CY DO GT HU LB NI PL SV|29 BR EG PS QA UA|30 JO KW MU|31 MT SC|32 LC|33 RU".split("|"),
    )
    for country in countries
}
"""Length by country, from the registry of SWIFT (ISO 13616)."""

_CARD = re.compile(r"\d{12}(?<![\w.]\d{12})\d{0,7}(?!\w|\.\d)")
_BETWEEN = r"(?:[ \t]?[-./*|_]{1,2}[ \t]?|\r?\n[ \t]?|[ \t]{1,2}(?:\r?\n)?)"
_GROUPED_CARD = re.compile(
    rf"(?=(\d{{4}}(?<![\w.]\d{{4}}){_BETWEEN}(?:\d{{4}}{_BETWEEN}\d{{4}}{_BETWEEN}\d{{4}}(?:{_BETWEEN}\d{{3}})?"
    rf"|\d{{6}}{_BETWEEN}\d{{4,5}})(?!\w|[.-]\d)))\d",
    re.ASCII,
)
_SSN = re.compile(r"(\d{3}-(?<![\w-]\d{3}-)\d\d-\d{4})(?![\w-])", re.ASCII)
_NAMED_SSN = re.compile(
    r"(?:ssn|social security)[^\d\n]{0,20}(?<!\d)(\d{3}[ .]?\d\d[ .]?\d{4})(?![\w-])", re.ASCII | re.IGNORECASE
)
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d)", re.ASCII)
_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])", re.ASCII)
_VERSION = re.compile(r"(?:version|release|ver\.?|==|>=|<=|~=)[\s:\"'=]{0,3}$", re.IGNORECASE)
_VERSION_CHARS = 12
