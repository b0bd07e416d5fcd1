"""Finds telephone numbers in a text. Pure, and linear in the text.

A number is one by how it is written (a country's code, the North American form, a trunk prefix in groups, the very
groups in which ``phonenumbers`` writes the numbers of a country), or by a word near it, such as "call me at".
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache

REGIONS = ("AU", "CZ", "ES", "HK", "NO", "PL", "PT", "SG")
"""Countries whose numbers are written without a trunk prefix; groups of two digits are too much like other numbers."""
NEAR_CHARS = 40
"""How far before a number a word may stand that tells what it is; CLOSE_CHARS for digits without any groups."""
CLOSE_CHARS = 24
AFTER_CHARS = 12
LEAST_DIGITS, MOST_DIGITS = 7, 15
"""Digits of a number; MOST_DIGITS by E.164. Six count right beside a word for a telephone."""
LEAST_TRUNK_DIGITS = 8
"""Digits of a number that is taken for one by its trunk prefix alone."""


MOST_RANGE = 300
"""Between the ends of a range of years or houses; two numbers further apart may be the halves of a telephone number."""


def phones(text: str) -> Iterator[tuple[int, int]]:
    """Where telephone numbers begin and end, in no order; some overlap."""
    known = set()
    yield from (found.span(1) for found in _SHORT.finditer(text) if len(set(found[1])) > 2)
    for pattern in (_INTERNATIONAL, _NORTH_AMERICAN):
        for found in pattern.finditer(text):
            number = _WITHOUT_EXTENSION.sub("", found[0])
            if _may_be_one(number.translate(_DIGITS_ALONE), number):
                known.add(found.start())
                yield found.span()
    match, last_end = _CANDIDATE.search(text), -MOST_DIGITS
    while match:
        start = match.start(1)
        end = match.end() if start in known else _end(text, match, follows=start - last_end <= 2)
        if end:
            last_end = end
            yield start, end
        match = _CANDIDATE.search(text, end or match.end())


def _end(text: str, match: re.Match[str], *, follows: bool) -> int:
    """Where the number ends with which a candidate begins; 0 if it begins with none."""
    start, end = match.span(1)
    for number in _beginnings(match[1]):
        if _is_phone(text, number, start, start + len(number), follows=follows):
            return match.end() if start + len(number) == end else start + len(number)
    return 0


def _beginnings(number: str) -> Iterator[str]:
    """The digits as they stand, then without what may be another number behind them."""
    yield number
    shorter = _TOO_LONG.match(number)
    if shorter and shorter[0] != number:
        yield shorter[0]
    if " " in number:
        yield number.rpartition(" ")[0].rstrip(" ./-(")


def _may_be_one(digits: str, number: str) -> bool:
    if not LEAST_DIGITS <= len(digits) <= MOST_DIGITS or len(set(digits)) <= 2:
        return False
    return not (_DATE.match(number) or _SSN.search(number) or _is_range(number))


def _is_range(number: str) -> bool:
    """Whether it counts from one number to another, as years and houses do."""
    ends = _RANGE.fullmatch(number)
    return ends is not None and 0 < int(ends[2]) - int(ends[1]) <= MOST_RANGE


def _is_phone(text: str, number: str, start: int, end: int, *, follows: bool) -> bool:
    """Whether it is one.

    Args:
        follows: it comes right behind another one.
    """
    digits = number.translate(_DIGITS_ALONE)
    if not _may_be_one(digits, number):
        return False
    if follows or _DIALLED_ABROAD.match(number) or (_TRUNK.match(number) and len(digits) >= LEAST_TRUNK_DIGITS):
        return True
    is_grouped = digits != number
    if is_grouped and _is_written_so_somewhere(number, digits):
        return True
    return _is_cued(text, start, is_grouped=is_grouped) or bool(_CUE_AFTER.match(text, end, end + AFTER_CHARS))


def _is_cued(text: str, start: int, *, is_grouped: bool) -> bool:
    """Whether a word before a number tells that it is one."""
    before = text[max(0, start - (NEAR_CHARS if is_grouped else CLOSE_CHARS)) : start]
    # No other number stands between, nor the gap (NUL) of one that was taken out: the word told of that one. Most
    # numbers in a table end here, without a search.
    words = before[max(map(before.rfind, "0123456789\0")) + 1 :]
    return len(words) > 2 and bool((_CUE if is_grouped else _SURE_CUE).search(words))


def _is_written_so_somewhere(number: str, digits: str) -> bool:
    groups = tuple(map(len, _GROUP.findall(number)))
    return any(leading.match(digits) for leading in _written().get(groups, ()))


@cache
def _written() -> Mapping[tuple[int, ...], tuple[re.Pattern[str], ...]]:
    """By lengths of groups, the beginnings of numbers that are written so in one of REGIONS."""
    # Imported with the first number that needs it: 20 ms that other processes never spend.
    from phonenumbers.phonemetadata import PhoneMetadata

    written: dict[tuple[int, ...], list[re.Pattern[str]]] = {}
    for region in REGIONS:
        metadata = PhoneMetadata.metadata_for_region(region)
        for form in metadata.number_format if metadata else ():
            lengths = tuple(map(int, re.findall(r"\\d\{(\d+)\}", form.pattern or "")))
            if form.national_prefix_formatting_rule is None and len(lengths) > 1 and max(lengths) > 2:
                leading = form.leading_digits_pattern
                written.setdefault(lengths, []).append(re.compile(leading[-1] if leading else ""))
    return {lengths: tuple(found) for lengths, found in written.items()}


_DIGITS_ALONE = str.maketrans("", "", " ()./-+xet")
_GROUP = re.compile(r"\d+", re.ASCII)
_WITHOUT_EXTENSION = re.compile(r" ?(?:x|ext).*")
_EXTENSION = r"(?: ?(?:x|ext\.? ?)\d{1,6})?"
_INTERNATIONAL = re.compile(r"\+(?<![\w.+-]\+)(?!0)[\d ().-]{6,22}\d" + _EXTENSION, re.ASCII)
_NORTH_AMERICAN = re.compile(
    r"(?<![\w.-])(?:1[ .-])?(?:\([2-9]\d\d\) ?[2-9]\d\d[.-]|[2-9]\d\d([.-])[2-9]\d\d\1)\d{4}(?![.-]?\d)" + _EXTENSION,
    re.ASCII,
)
_CANDIDATE = re.compile(
    r"(?<![\w@#$€£./+(-])(?<!\d[,:])(\(?\d(?:[ ./-]{0,2}\(?\d\)?){6,20})" + _EXTENSION + r"(?!\w)", re.ASCII
)
_TOO_LONG = re.compile(r"(?:\D{0,2}\d){7,15}(?!\d)", re.ASCII)
_TRUNK = re.compile(r"(?:\(0?[1-9]\d{0,4}\)|0[1-9]\d{0,3}[ ./-])[\d ./-]+(?<=\d\d)$", re.ASCII)
_DIALLED_ABROAD = re.compile(r"00[1-9](?:\D{0,2}\d){7}", re.ASCII)
_DATE = re.compile(r"\+?(?:(?:19|20)\d\d[-./][01]?\d[-./][0-3]?\d|[0-3]?\d[-./][01]?\d[-./](?:19|20)\d\d)", re.ASCII)
_SURE = (
    r"tel(?:ephone|efon)?\.?|(?:tele)?phone|mobile|cell|fax|whatsapp|sms|desk|hotline|dial(?:led|ing)?|handy"
    r"|call (?:me|us|him|her|them)|answering at|my registered|(?:messages?|calls?|texts?) (?:to|at|from)"
    r"|reach(?:ed)? (?:me |us |him |her |them )?(?:at|on|under)|text (?:me|us|him|her|them)"
)
_CUE = re.compile(
    rf"\b(?:{_SURE}|call(?:ed|ing)?|answering|messages?|text(?:ed|ing)?|registered|reach(?:ed)?|contact|ring)\b"
    r"[^\d\n]{0,30}\n?[^\d\n]{0,10}$",
    re.IGNORECASE,
)
_SURE_CUE = re.compile(rf"\b(?:{_SURE})\b[^\d\n]{{0,20}}\n?[^\d\n]{{0,4}}$", re.IGNORECASE)
_SHORT = re.compile(
    r"(?<![\w-])(?:tel(?:ephone|efon)?|(?:tele)?phone|mobile|cell|fax|whatsapp|hotline|dial|call(?: (?:me|us))?)"
    r"(?: (?:number|no|nr|line))?[ .:#]{0,2}(?:(?:is|at|on|under|to)[ :]{1,2})?(\d{6})(?![\w-]|[.,/:]\d)",
    re.ASCII | re.IGNORECASE,
)
_SSN = re.compile(r"(?<!\d)\d{3}-\d\d-\d{4}(?!\d)|\A\d{3}([ .])\d\d\1\d{4}\Z", re.ASCII)
_RANGE = re.compile(r"(\d{3,5})[ ./-]{1,2}(\d{3,5})", re.ASCII)
_CUE_AFTER = re.compile(r"[ \t,-]{0,3}\(?(?:office|fax|mobile|home|cell|work|desk|phone)\b", re.IGNORECASE)
