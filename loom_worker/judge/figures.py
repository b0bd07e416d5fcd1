"""Numbers with units, number words, dates and words for directions of a text: English, and everyday German. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

import regex

MOST_DIGITS = 30
"""Longer numbers are identifiers, and compared as words."""
Reading = tuple[float, float, float]
"""A value with the least and the greatest that it may have been rounded from."""
Day = tuple[int, int, int]
"""Year, month and day, 0 for a part that is not given; or -1, hour and minute."""

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen",
    "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
)
_SMALL = {word: value for ones in _ONES for value, word in enumerate(ones.split())}
_SMALL |= {w: 10 * n for n, w in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)}
_LARGE = {"dozen": 12, "dutzend": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_ANY = "|".join(sorted((*_SMALL, *_LARGE), key=len, reverse=True))
_SPELLED = regex.compile(
    rf"(?i)\b(?:(?P<half>half )?an? (?={'|'.join(_LARGE)})|(?={'|'.join(_SMALL)}))"
    rf"(?:{_ANY})(?:(?:[ -]| and )(?:{_ANY}))*+\b"
)
_PARTS = {"half": 2, "halves": 2, "third": 3, "drittel": 3, "quarter": 4, "viertel": 4, "fifth": 5, "tenth": 10}
_FRACTION = regex.compile(
    r"(?i)\b(?:(?:(?P<n>[0-9]+)[ -]|(?:an?|one|ein) (?=\p{L}+ (?:of|less|more|lower|higher|fewer|d[aeiou]\p{L}+)\b))"
    r"(?P<part>third|quarter|fifth|tenth|drittel|viertel)s?(?! [0-9])"
    r"|(?<!(?:first|second|and a) )(?P<part>half|hälfte)(?! (?:year|an?\b))(?!-)"
    r"|(?P<n>one|[0-9][0-9,.]*) (?:in|out of) (?:every )?(?P<of>[0-9]++(?:[.,][0-9]+)*))\b"
    r"|\b(?P<times>twice|double|triple)d?\b"
)
_FAMILIES = (
    "mass mg .000001 g .001 gram .001 kg 1 kilo 1 t 1000 ton 1000 tonne 1000 lb .4536; "
    "money $ 1 usd 1 dollar 1 € 2 eur 2 "
    "euro 2 £ 3 gbp 3 pound 3 ¥ 4 jpy 4 yen 4 chf 5; length mm .001 cm .01 m 1 meter 1 metre 1 km 1000 mile 1609; time "
    "ms .001 s 1 sec 1 second 1 min 60 minute 60 h 3600 hr 3600 hour 3600 day 86400 tag 86400 week 604800; "
    "months month 1 monat 1 year 12 jahr 12; energy wh .001 kwh 1 mwh 1000 gwh 1e6; volume ml .001 l 1 litre 1 liter 1 "
    "gallon 3.785; data kb .001 mb 1 gb 1000 tb 1e6; temperature degree 0 grad 0 ° 0 °c 1 c 1 celsius 1 °f 2 f 2 "
    "fahrenheit 2; share % 1 percent 1 pct 1 prozent 1; pressure bar 1 psi .069"
)
UNITS: dict[str, tuple[str, float]] = {}
"""The family and the size of each unit; currencies and degrees, which have no fixed rate, are numbered."""
for _name, *_words in map(str.split, _FAMILIES.split("; ")):
    UNITS |= {word: (_name, float(size)) for word, size in zip(_words[::2], _words[1::2], strict=True)}
_SPACES = regex.compile(r"['\u2019\u00a0\u2009\u202f ]")
_FORMS = (
    (regex.compile(r"(?P<whole>[0-9]+|[0-9]{1,3}(?:,[0-9]{2,3})*,[0-9]{3})(?:\.(?P<fraction>[0-9]+))?"), ","),
    (
        regex.compile(
            r"(?P<whole>[0-9]{1,3}(?:\.[0-9]{2,3})*\.[0-9]{3}|[0-9]+(?=,))(?:,(?P<fraction>[0-9]{1,2}|[0-9]{4,}))?"
        ),
        ".",
    ),
)
"""Numbers with points and with commas before their fraction, each with what parts their thousands."""
_WIDER = {"about": (0.95, 1.05), "over": (1, 1.4), "under": (0.75, 1)}
"""Bounds of a share behind such a word, in shares of it."""
_SCALES = {"thousand": 3, "tausend": 3, "k": 3, "million": 6, "millionen": 6, "m": 6, "mio": 6, "billion": 9, "bn": 9}
_FIGURE = regex.compile(
    r"(?<![\p{L}\p{N}_]|\p{L}-|\p{N}[.:/])(?P<sign>(?<![\p{L}\p{N}])[-\u2212])?"
    r"(?:(?P<before>[$€£¥]|USD|EUR|GBP|CHF) ?)?"
    r"(?P<number>[0-9]++(?:[.,'\u2019\u00a0\u2009\u202f][0-9]++)*+)(?!(?:st|nd|rd|th)\b)"
    r"(?:[ \u00a0-]?(?P<scale>(?i:thousand|tausend|million(?:en)?|billion|bn|mio)\b\.?|[kKM]\b|(?<=[0-9])m\b(?!/)))?+"
    r"(?:[ \u00a0-]?(?P<unit>%|[$€£¥°]\p{L}?|\p{L}++))?+(?= ?(?P<next>\p{L}+)?)(?!_)"
)
_NEAR = regex.compile(
    r"(?i)\b(?:(?P<about>about|around|roughly|some|approximately|circa|ca\.|rund|etwa|close to)"
    r"|(?P<over>over|more than|above|at least|exceed\w*|über|mehr als|mindestens)"
    r"|(?P<under>nearly|almost|under|less than|fewer than|below|at most|(?<!(?:went|goes|is|was) )up to|within|unter"
    r"|weniger als|höchstens)) (?:[$€£] ?)?$|(?P<about>[~≈])$"
)
_MONTHS = {name: n for n, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}
_MONTHS |= {"mär": 3, "mai": 5, "okt": 10, "dez": 12}
_MONTH = (
    r"(?i:\b(?P<m>jan(?:uary?)?|feb(?:ruary?)?|mar(?:ch)?|märz|apr(?:il)?|may|mai|june?|juni|july?|juli|aug(?:ust)?|"
    r"sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?)\b\.?)"
)
_CLOCK = r"(?P<h>[012]?[0-9]):(?P<min>[0-5][0-9])(?: ?(?P<pm>[ap])\.?m\b)?"
_YEAR = r"(?P<y>(?:19|20)[0-9][0-9])"
_DATE = regex.compile(
    rf"(?<![0-9.,])(?:{_YEAR}[-/](?P<m>[0-9][0-9]?)(?:[-/](?P<d>[0-9][0-9]?))?(?:[T ]{_CLOCK}[0-9:.Z+]*)?|{_CLOCK}"
    rf"|(?P<a>[0-9][0-9]?)[./](?P<b>[0-9][0-9]?)[./]{_YEAR}"
    rf"|(?P<d>[0-9][0-9]?)(?:st|nd|rd|th|\.)?(?: of)? {_MONTH}(?:,? {_YEAR}\b)?"
    rf"|{_MONTH}(?: (?P<d>[0-9][0-9]?)(?:st|nd|rd|th)?\b(?![.,]?[0-9]))?(?:,? {_YEAR}\b)?"
    rf"|{_YEAR}(?![0-9%]|[.,][0-9]))(?![0-9])"
)


MOVE = (
    r"(?P<up>rose|risen|rises?|increase[sd]?|gr[eo]wn?|grows?|(?:went|goes|is|was|are|were) up|up (?:by|from)|gained|"
    r"climb\w*|jump\w*|stieg|gestiegen)|(?P<down>fell|fallen|falls?(?! (?:on|in|under|due)\b)|dropp?\w*|decrease[sd]?|"
    r"declin\w*|down|lost|shrank|sank|gesunken)"
)
MOVES = regex.compile(rf"(?i)\b(?:{MOVE})\b")
TREND = regex.compile(
    rf"(?i)\b(?:{MOVE}|(?P<up>higher|more|warmer|hotter|older|longer|larger|bigger|greater|heavier|taller|mehr|höher)"
    r"|(?P<down>lower|less|fewer|colder|younger|shorter|smaller|lighter|cheaper|weniger))\b"
    r"(?! than (?:[$€£]? ?[0-9]|half|an?\b))"
)
"""Words for what rose or fell, and for what is more or less than another."""
EXTREME = regex.compile(
    r"(?i)\b(?:(?P<most>highest|most|best|largest|biggest|greatest|hottest|warmest|oldest|longest|heaviest|tallest)"
    r"|lowest|least|fewest|smallest|worst|youngest|shortest|cheapest|coldest)\b(?! of)"
)
THAN = regex.compile(r"(?i)\b(?:\w+er|more|less|mehr)\b(?: \p{L}+){0,3} (?:than|als)\b")
COMPUTES = regex.compile(
    rf"(?i)%|\b(?:total|sum|together|in all|average|mean|per|each|difference|times|{MOVE}|more|less)\b"
)
NEGATED = regex.compile(r"(?i)\b(?:not|no|never|without|neither|nicht|kein\w*)\b(?! quite)|n['\u2019]t\b")


@dataclass(frozen=True, slots=True)
class Figure:
    """A number as it stands in a text."""

    written: str
    start: int
    end: int
    readings: tuple[Reading, ...]
    """Sizes, without the sign."""
    unit: str = ""
    """One of UNITS, ``x`` for a multiple, or empty."""
    noun: tuple[str, ...] = ()
    """The two words behind it, unless the first is a unit."""
    bound: str | None = None
    """The sort of word before it: ``about``, ``over`` or ``under``."""
    is_negative: bool = False

    @property
    def signed(self) -> float:
        """Its first reading, with the sign."""
        return -self.readings[0][0] if self.is_negative else self.readings[0][0]


def spelled(text: str) -> str:
    """The text with digits for number words and a sign for ``minus``; a lone "one" stays."""
    return regex.sub(r"(?i)\bminus (?=[0-9])", "-", _SPELLED.sub(_digits, text))


def _digits(found: "regex.Match[str]") -> str:
    total = part = 0
    for word in regex.split(r"[ -]", found[0].casefold()):
        size = _LARGE.get(word, 0)
        if size >= 1000:
            total, part = total + (part or 1) * size, 0
        else:
            part = (part or 1) * size if size else part + _SMALL.get(word, 0)
    return found[0] if found[0].casefold() in ("one", "ein") else str((total + part) // (2 if found["half"] else 1))


def fractions(text: str) -> Iterator[Figure]:
    """Shares in words as percentages ("2 thirds", "4 in 100"), and multiples ("twice")."""
    for found in _FRACTION.finditer(text):
        if times := found["times"]:
            value, slack = (3.0 if times[:2].casefold() == "tr" else 2.0), 0.2
        else:
            top = next(readings(regex.sub(r"\D+$|(?i:one)", "", found["n"] or "") or "1"), (1.0,))[0]
            of = (
                next(readings(found["of"].rstrip(",.")), (1.0,))[0]
                if found["of"]
                else _PARTS.get((found["part"] or "").casefold(), 2)
            )
            value, slack = 100 * top / (of or 1), max(3 * top / (of or 1), 50 / of if of > 20 else 0)
        unit, near = "x" if times else "%", _NEAR.search(text[max(0, found.start() - 20) : found.start()])
        low, high = _WIDER.get((near and near.lastgroup) or "", (1, 1))
        yield Figure(found[0], found.start(), found.end(), ((value, value * low - slack, value * high + slack),), unit)


def figures(text: str) -> Iterator[Figure]:
    """The numbers of a text in their order, years included."""
    for found in _FIGURE.finditer(text):
        near = _NEAR.search(text[max(0, found.start() - 20) : found.start()])
        behind = found["unit"] or ""
        unit = unit_of(found["before"] or "") or unit_of(behind)
        size = 10.0 ** _SCALES.get((found["scale"] or "").casefold().rstrip("."), 0)
        values = [(a * size, b * size, c * size) for a, b, c in readings(found["number"], is_about=near is not None)]
        ends = found.start("unit") if behind and not unit_of(behind) else found.end()
        written = text[found.start() : ends].strip(" .\u00a0")
        if not values:
            continue
        yield Figure(
            written=written,
            start=found.start("number"),
            end=found.end(),
            readings=tuple(values),
            unit=unit,
            noun=() if unit_of(behind) else (behind.casefold(), (found["next"] or "").casefold()),
            bound=near and near.lastgroup,
            is_negative=bool(found["sign"]),
        )


def readings(written: str, *, is_about: bool = False) -> Iterator[Reading]:
    """A number as it may be meant: 1,234 is a thousand, or one and a bit; zeros at its end may be rounded."""
    plain = _SPACES.sub("", written)
    for form, comma in _FORMS if len(plain) <= MOST_DIGITS and plain.isascii() else ():
        if found := form.fullmatch(plain):
            whole, fraction = found["whole"].replace(comma, ""), found["fraction"] or ""
            value, zeros = float(f"{whole}.{fraction or 0}"), len(whole) - len(whole.rstrip("0"))
            is_rounded = not fraction and (is_about or (zeros >= 2 and len(whole) - zeros >= 3))
            slack = 0.5 * 10.0 ** (zeros if is_rounded else -len(fraction)) + value * 1e-12
            yield value, value - slack, value + slack


def unit_of(word: str) -> str:
    """The unit that a word is, in its singular; empty: it is none."""
    folded = word.casefold()
    return next(
        (each for each in (folded, folded[:-1], folded[:-2]) if each in UNITS and (each == folded or len(each) > 2)), ""
    )


def days_in(unit: str) -> float:
    """The days of a unit of time; 0 for others."""
    family, size = UNITS.get(unit, ("", 0.0))
    return size / 86_400 if family == "time" else size * 30.44 if family == "months" else 0.0


def dates(text: str) -> Iterator[tuple[str, int, int, tuple[Day, ...]]]:
    """The dates, months and years of a text: each as it is written, with its place and the days that it may mean."""
    for found in _DATE.finditer(text):
        month, year, day = found["m"] or "", int(found["y"] or 0), int(found["d"] or 0)
        number = int(month) if month.isdigit() else _MONTHS.get(month[:3].casefold(), 0)
        days = [(year, number, day)]
        if found["a"]:
            days = [(year, int(found["b"]), int(found["a"])), (year, int(found["a"]), int(found["b"]))]
        if found["h"]:
            hour = int(found["h"]) % (12 if found["pm"] else 24) + 12 * (found["pm"] == "p")
            days = [*(days if year else ()), (-1, hour, int(found["min"]))]
        if (year or day or found["h"] or month[:1].isupper()) and found[0] not in ("May", "Mar"):
            yield (
                found[0],
                found.start(),
                found.end(),
                tuple(filter(_is_real, days)),
            )


def _is_real(day: Day) -> bool:
    try:
        return day[0] < 0 or date(day[0] or 2000, day[1] or 1, day[2] or 1) is not None
    except ValueError:
        return False


@lru_cache(maxsize=1_000)
def words_of(name: str) -> tuple[str, ...]:
    """The words of a column's name, or of a text, in small letters."""
    return tuple(regex.findall(r"[\p{L}\p{N}%°$€£]+", regex.sub(r"(?<=\p{Ll})(?=\p{Lu})", " ", name).casefold()))
