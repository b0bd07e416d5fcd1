"""Numbers and periods said in an English question, for the scripted model; no clock, today comes as an argument."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial

_MONTHS = "january february march april may june july august september october november december".split()
_NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve".split()
_MONTH = "|".join(_MONTHS)
_COUNT = "|".join(["[1-9]\\d{0,2}", *_NUMBERS[2:], "fifteen", "twenty", "fifty"])
_OTHER_NUMBERS = {"fifteen": 15, "twenty": 20, "fifty": 50}
_UNIT = "day|week|month|quarter|year"
_HOW_MANY = re.compile(rf"(?<![/.\d-])\b({_COUNT})\b(?!\s*(?:%|per ?cent|/|\.\d|(?:{_UNIT})s?\b))")


@dataclass(frozen=True, slots=True)
class Period:
    """Days from ``start`` up to but not including ``end``."""

    start: date
    end: date
    said: str
    """The words of the question it was read from."""


@dataclass(frozen=True, slots=True)
class Slots:
    """What a question says beside what it is about."""

    n: int | None
    period: Period | None
    rest: str
    """The question in lower case without its periods."""


def read(question: str, today: date | None) -> Slots:
    """Read the first count and the period of a question.

    Several periods (compare 2024 and 2025) become one from the first day of the earliest to the last of the
    latest. Without today, words such as "last year" are not understood and stay in the rest.
    """
    rest = question
    found: list[Period] = []
    for pattern, meaning in _RULES:
        rest = pattern.sub(partial(_take, meaning=meaning, today=today, found=found), rest)
    rest = rest.lower()
    count = _HOW_MANY.search(rest)
    return Slots(_number(count[1]) if count else None, _span(found) if found else None, rest)


_Meaning = Callable[[re.Match[str], date | None], tuple[date, date] | None]


def _take(match: re.Match[str], *, meaning: _Meaning, today: date | None, found: list[Period]) -> str:
    """Note the period a match stands for and leave a gap in its place; what has no meaning stays."""
    lowered = match.re.fullmatch(match[0].lower())
    try:
        days = meaning(lowered or match, today)
    except ValueError:
        return match[0]
    if days is None:
        return match[0]
    found.append(Period(*days, said=" ".join(match[0].split())))
    return " "


def _span(found: list[Period]) -> Period:
    first, last = min(found, key=lambda one: one.start), max(found, key=lambda one: one.end)
    said = first.said if first.said == last.said else f"{first.said} to {last.said}"
    return Period(first.start, last.end, said)


def _number(word: str) -> int:
    if word.isdigit():
        return int(word)
    return _OTHER_NUMBERS[word] if word in _OTHER_NUMBERS else _NUMBERS.index(word)


def _months_on(day: date, months: int) -> date:
    """The first day of the month that lies so many months from a day's own."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, 1)


def _first_day(unit: str, day: date) -> date:
    if unit == "year":
        return date(day.year, 1, 1)
    if unit == "quarter":
        return date(day.year, 3 * ((day.month - 1) // 3) + 1, 1)
    if unit == "month":
        return day.replace(day=1)
    return day - timedelta(days=day.weekday()) if unit == "week" else day


def _on(unit: str, first: date, count: int) -> date:
    if unit in ("day", "week"):
        return first + timedelta(days=count * (7 if unit == "week" else 1))
    return _months_on(first, count * {"month": 1, "quarter": 3, "year": 12}[unit])


def _one_unit(match: re.Match[str], today: date | None) -> tuple[date, date] | None:
    """This, last and the like: a calendar unit, the current one up to and including today."""
    if today is None:
        return None
    unit = match["unit"]
    first = _first_day(unit, today)
    if match["which"] in ("this", "current"):
        return first, today + timedelta(days=1)
    return _on(unit, first, -1), first


def _several_units(match: re.Match[str], today: date | None) -> tuple[date, date] | None:
    """The last n units, up to and including today."""
    if today is None:
        return None
    unit, tomorrow = match["unit"], today + timedelta(days=1)
    count = -_number(match["count"])
    if unit in ("day", "week"):
        return _on(unit, tomorrow, count), tomorrow
    first = _on(unit, today, count)
    return first.replace(day=min(today.day, 28)) + timedelta(days=1), tomorrow


def _since(match: re.Match[str], today: date | None) -> tuple[date, date] | None:
    if today is None:
        return None
    named = _month(match, today) if match["month"] else _year(match, today)
    return named and (named[0], today + timedelta(days=1))


def _named_day(match: re.Match[str], today: date | None) -> tuple[date, date] | None:
    if today is None:
        return None
    first = today - timedelta(days=match[0] == "yesterday")
    return first, first + timedelta(days=1)


def _iso_day(match: re.Match[str], _: date | None) -> tuple[date, date]:
    first = date.fromisoformat(match[0])
    return first, first + timedelta(days=1)


def _iso_month(match: re.Match[str], _: date | None) -> tuple[date, date]:
    first = date(int(match["year"]), int(match["month"]), 1)
    return first, _months_on(first, 1)


def _quarter(match: re.Match[str], today: date | None) -> tuple[date, date] | None:
    """A quarter of a named year, or the latest that has begun."""
    return _latest(match["year"], 3 * int(match["quarter"]) - 2, 3, today)


def _month(match: re.Match[str], today: date | None) -> tuple[date, date] | None:
    """A month of a named year, or the latest that has begun."""
    return _latest(match["year"], _MONTHS.index(match["month"]) + 1, 1, today)


def _months(match: re.Match[str], today: date | None) -> tuple[date, date] | None:
    """From one month to another of the same year."""
    last = _month(match, today)
    return last and (last[0].replace(month=_MONTHS.index(match["first"]) + 1), last[1])


def _latest(year: str | None, month: int, months: int, today: date | None) -> tuple[date, date] | None:
    if year is None:
        if today is None:
            return None
        year = str(today.year - (month > today.month))
    first = date(int(year), month, 1)
    return first, _months_on(first, months)


def _year(match: re.Match[str], _: date | None) -> tuple[date, date]:
    year = int(match["year"])
    return date(year, 1, 1), date(year + 1, 1, 1)


_RULES: tuple[tuple[re.Pattern[str], _Meaning], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), meaning)
    for pattern, meaning in (
        (r"\b20\d\d-\d\d-\d\d\b", _iso_day),
        (r"\b(?P<year>20\d\d)-(?P<month>\d\d)\b", _iso_month),
        (rf"\bsince (?:the )?(?:(?P<month>{_MONTH}) ?)?(?P<year>20\d\d)\b", _since),
        (rf"\bsince (?P<month>{_MONTH})(?P<year>(?!))?\b", _since),
        (rf"\b(?:the )?(?:last|past|previous) (?P<count>{_COUNT}) (?P<unit>{_UNIT})s\b", _several_units),
        (rf"\b(?P<which>this|current|last|past|previous) (?P<unit>{_UNIT})\b", _one_unit),
        (r"\b(?:today|yesterday)\b", _named_day),
        (r"\bq(?P<quarter>[1-4])(?: (?:of )?(?P<year>20\d\d))?\b", _quarter),
        (rf"\b(?:from|between) (?P<first>{_MONTH}) (?:to|and) (?P<month>{_MONTH})(?: (?P<year>20\d\d))?\b", _months),
        (rf"\b(?P<month>{_MONTH}) (?:of )?(?P<year>20\d\d)\b", _month),
        (rf"\b(?:in|of|for|during|from|to|until) (?P<month>{_MONTH})(?P<year>(?!))?\b", _month),
        (r"\b(?P<year>20\d\d)\b", _year),
    )
)
"""Tried in this order, each on what the ones before left over."""
