"""Numbers and periods in an English question, for the scripted model; no clock, today comes as an argument."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, timedelta

MONTHS = "january february march april may june july august september october november december".split()
MONTH = "|".join([*MONTHS, "jan|feb|mar|apr|jun|jul|aug|sept|sep|oct|nov|dec"])
"""Names of months, as part of a regular expression."""
SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""The first month of each, by the meteorological calendar."""
FOREVER = (date(1, 1, 1), date(9999, 12, 31))
"""Stands for an end that a period does not have."""
NUMBERS = {word: n for n, word in enumerate("two three four five six seven eight nine ten eleven twelve".split(), 2)}
NUMBERS |= {"fifteen": 15, "twenty": 20, "fifty": 50}
"""The numbers that are read as words; "one" is not among them, as it rarely counts."""
_COUNT = "|".join(["[1-9]\\d{0,2}", *NUMBERS])
_UNIT = "day|week|month|quarter|year"
_ONE_WORD = {"today": ("this", "day"), "yesterday": ("last", "day")}
_ONE_WORD |= {"year to date": ("this", "year"), "ytd": ("this", "year")}
_MONTHS_OF = {"month": 1, "quarter": 3, "season": 3, "half": 6, "year": 12}
"""How many months a unit has."""
_HOW_MANY = re.compile(rf"(?<![/.\d@p-])\b({_COUNT})\b(?!\s*(?:%|per ?cent|/|\.\d|(?:{_UNIT})s?\b))")
_YEAR = r"20\d\d"
_MARK = re.compile(r"@p(\d+)")


@dataclass(frozen=True, slots=True)
class Period:
    """Days from ``start`` up to but not including ``end``."""

    start: date
    end: date
    wording: str
    """The words of the question it was read from."""
    unit: str = ""
    """day, week, month, quarter, half, year or season if it is one of the calendar; else empty."""
    is_bare: bool = False
    """Named without its year: the latest that is over was taken."""


@dataclass(frozen=True, slots=True)
class Slots:
    """The number and the periods of a question, apart from what it is about."""

    n: int | None
    periods: tuple[Period, ...]
    marked: str
    """The question in lower case, ``@p0`` instead of its first period and so on."""
    names: tuple[tuple[str, str], ...] = ()
    """Placeholders of a pattern with the names of the database that stand for them."""

    @property
    def period(self) -> Period | None:
        """The period, if there is exactly one: two are never made into one."""
        return self.periods[0] if len(self.periods) == 1 else None


def read(question: str, today: date | None) -> Slots:
    """Read the first count and all periods of a question.

    Without today, words such as "last year" are not understood and remain in the rest.
    """
    text, found = " ".join(question.lower().replace("@", " ").split()), list[Period]()
    for pattern, meaning in _ATOMS:
        text = pattern.sub(_taker(meaning, today, found), text)
    for pattern, joined in _JOINED:
        text = pattern.sub(_joiner(joined, today, found), text)
    text = _BEFORE_MARK.sub(r"\1", text)
    order = [int(number) for number in _MARK.findall(text)]
    text = _MARK.sub(lambda mark: f"@p{order.index(int(mark[1]))}", text)
    count = _HOW_MANY.search(text)
    periods = tuple(_until_today(found[each], today) for each in order)
    return Slots(number(count[1]) if count else None, periods, text)


def _until_today(period: Period, today: date | None) -> Period:
    """A calendar unit that is still running ends with today."""
    if today is None or not period.unit or not period.start <= today < period.end:
        return period
    return replace(period, end=today + timedelta(days=1))


def number(word: str) -> int:
    """``7``, ``seven`` or ``twenty`` as a number."""
    return int(word) if word.isdigit() else NUMBERS[word]


def month_number(name: str) -> int:
    """1 to 12, of a whole name or its beginning."""
    return next(number for number, month in enumerate(MONTHS, start=1) if month.startswith(name[:3]))


def months_on(day: date, months: int) -> date:
    """The first day of the month that lies so many months from a day's own."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, 1)


def first_day(unit: str, day: date) -> date:
    """The first day of the week, month, quarter or year that a day lies in."""
    if unit == "year":
        return date(day.year, 1, 1)
    if unit == "quarter":
        return date(day.year, 3 * ((day.month - 1) // 3) + 1, 1)
    if unit == "month":
        return day.replace(day=1)
    return day - timedelta(days=day.weekday()) if unit == "week" else day


def later(unit: str, first: date, count: int) -> date:
    """So many units on, or back if negative; of months and longer units the first day."""
    if unit in ("day", "week"):
        return first + timedelta(days=count * (7 if unit == "week" else 1))
    return months_on(first, count * (_MONTHS_OF | {"season": 12})[unit])


_Meaning = Callable[[re.Match[str], date | None], Period | None]
_Joined = Callable[[list[Period], date | None], Period | None]


def _taker(meaning: _Meaning, today: date | None, found: list[Period]) -> Callable[[re.Match[str]], str]:
    """Note the period that a match means and replace the match by a mark; a match without a meaning stays."""

    def take(match: re.Match[str]) -> str:
        try:
            period = meaning(match, today)
        except (ValueError, OverflowError):
            return match[0]
        if period is None:
            return match[0]
        ahead = match.groupdict().get("ahead") or ""
        found.append(replace(period, wording=" ".join(match[0].removeprefix(ahead).split())))
        return f"{ahead}@p{len(found) - 1}"

    return take


def _joiner(joined: _Joined, today: date | None, found: list[Period]) -> Callable[[re.Match[str]], str]:
    """Make one period of a preposition and the marks behind it: since, before, from … to."""

    def take(match: re.Match[str]) -> str:
        parts = [found[int(each)] for each in _MARK.findall(match[0])]
        period = joined(parts, today)
        if period is None:
            return match[0]
        wording = _MARK.sub(lambda mark: found[int(mark[1])].wording, match[0])
        found.append(replace(period, wording=" ".join(wording.split())))
        return f"@p{len(found) - 1}"

    return take


def _one_unit(match: re.Match[str], today: date | None) -> Period | None:
    """This, last and the like: a calendar unit, the current one up to and including today."""
    if today is None:
        return None
    which, unit = _ONE_WORD.get(match[0]) or (match["which"], match["unit"])
    first = first_day(unit, today)
    if which in ("this", "current"):
        return Period(first, today + timedelta(days=1), "", unit)
    return Period(later(unit, first, -1), first, "", unit)


def _several_units(match: re.Match[str], today: date | None) -> Period | None:
    """The last n units, counted back from today's date, and today."""
    if today is None:
        return None
    unit, count = match["unit"], number(match["count"])
    if unit in ("day", "week"):
        first = later(unit, today, -count)
    else:
        month = later(unit, today, -count)
        first = min(month.replace(day=1) + timedelta(days=today.day - 1), months_on(month, 1) - timedelta(days=1))
    return Period(first, today + timedelta(days=1), "")


def _one_day(day: date) -> Period:
    return Period(day, day + timedelta(days=1), "", "day")


def _written_day(match: re.Match[str], _: date | None) -> Period:
    return _one_day(date(int(match["year"]), month_number(match["month"]), int(match["day"])))


def _named(match: re.Match[str], today: date | None) -> Period | None:
    """A month, quarter, season, half or whole year: of the year that is named, or the latest one that is over."""
    said = {name: text for name, text in match.groupdict().items() if text}
    unit = next(unit for unit in _MONTHS_OF if unit in said)
    month, length = _first_month(unit, said[unit]), _MONTHS_OF[unit]
    if "year" in said:
        first = date(int(said["year"]), month, 1)
        return Period(first, months_on(first, length), "", unit)
    if today is None:
        return None
    first = date(today.year - (said.get("which") == "last"), month, 1)
    while "which" not in said and months_on(first, length) > today:
        first = months_on(first, -12)
    return Period(first, months_on(first, length), "", unit, is_bare="which" not in said)


def _first_month(unit: str, name: str) -> int:
    if unit == "month":
        return int(name) if name.isdigit() else month_number(name)
    if unit == "quarter":
        return 3 * int(name) - 2
    return SEASONS[name] if unit == "season" else 7 if name in ("2", "second") else 1


def _since(parts: list[Period], today: date | None) -> Period | None:
    """Up to and including today; of a month without a year, since the latest that has begun."""
    if today is None:
        return None
    start = parts[0].start
    if parts[0].is_bare and (again := months_on(start, 12)) <= today:
        start = again
    return Period(start, today + timedelta(days=1), "")


def _from_to(parts: list[Period], _: date | None) -> Period | None:
    """Both ends included; a month without a year lies in the year that ends with the other."""
    first, last = parts
    start = first.start
    if first.is_bare and first.unit in ("month", "quarter"):
        start = start.replace(year=last.start.year - (start.month > last.start.month))
    return Period(start, last.end, "") if start < last.end else None


_AHEAD = r"in|of|for|during|from|to|until|till|through|since|before|after|between|and|vs|versus|than|with|or|against"
_NO_AMOUNT = "".join(f"(?<!{word} )" for word in ("over", "than", "least", "most", "above", "below", "under"))
_SEASON = "|".join(SEASONS)
_ATOMS: tuple[tuple[re.Pattern[str], _Meaning], ...] = tuple(
    (re.compile(pattern), meaning)
    for pattern, meaning in (
        (rf"\b{_YEAR}-\d\d-\d\d\b", lambda found, _: _one_day(date.fromisoformat(found[0]))),
        (rf"\b(?P<day>\d\d?)(?:st|nd|rd|th)? (?:of )?(?P<month>{MONTH}),? (?P<year>{_YEAR})\b", _written_day),
        (rf"\b(?P<month>{MONTH}) (?P<day>\d\d?)(?:st|nd|rd|th)?,? (?P<year>{_YEAR})\b", _written_day),
        (rf"(?<![-\w])(?P<year>{_YEAR})-(?P<month>\d\d)(?![-\w])", _named),
        (rf"\b(?P<month>{MONTH}) (?:of )?(?P<which>last|this) year\b", _named),
        (rf"\b(?:the )?(?:last|past|previous) (?P<count>{_COUNT}) (?P<unit>{_UNIT})s\b", _several_units),
        (rf"\b(?P<which>this|current|last|past|previous) (?P<unit>{_UNIT})\b", _one_unit),
        (r"\b(?:year to date|ytd|today|yesterday)\b", _one_unit),
        (rf"\bq(?P<quarter>[1-4])(?:,? (?:of |in )?(?P<year>{_YEAR}))?\b", _named),
        (rf"\bh(?P<half>[12]),? (?:of |in )?(?P<year>{_YEAR})\b", _named),
        (rf"\b(?:the )?(?P<half>first|second) half (?:of |in )?(?P<year>{_YEAR})\b", _named),
        (rf"\b(?P<season>{_SEASON}) (?:of |in )?(?P<year>{_YEAR})\b", _named),
        (rf"\blast (?P<season>{_SEASON})\b", _named),
        (rf"\b(?P<month>{MONTH}),? (?:of |in )?(?P<year>{_YEAR})\b", _named),
        (rf"\b(?P<ahead>(?:{_AHEAD}) )(?P<month>{MONTH})\b(?! (?:week|\d))", _named),
        (rf"\b(?P<month>{MONTH})(?= (?:vs|versus|compared|and @p|or @p)\b)", _named),
        (rf"(?<![-\w@]){_NO_AMOUNT}(?P<year>{_YEAR})(?![-\w])", _named),
    )
)
"""Tried in this order, each on what the ones before left over."""
_P = r"(?:the )?(?:(?:year|month|quarter) (?:of )?)?@p\d+"
_JOINED: tuple[tuple[re.Pattern[str], _Joined], ...] = tuple(
    (re.compile(rf"\b{pattern}\b"), joined)
    for pattern, joined in (
        (rf"(?:from|between) +{_P} +(?:to|and|until|till|through) +{_P}", _from_to),
        (rf"since +(?:the (?:start|beginning) of +)?{_P}", _since),
        (rf"before +{_P}", lambda parts, _: Period(FOREVER[0], parts[0].start, "")),
        (rf"(?:after|later than) +(?:the end of +)?{_P}", lambda parts, _: Period(parts[0].end, FOREVER[1], "")),
        (
            rf"(?:until|till|up to|through) +(?:the end of +)?{_P}",
            lambda parts, _: Period(FOREVER[0], parts[0].end, ""),
        ),
    )
)
"""Words in front of periods that are one period with them."""
_BEFORE_MARK = re.compile(r"\b(?:in|for|during|of|from|on|within|throughout|to)(?: the)? +(@p\d+)(?: so far\b)?")
"""Words in front of a period that say no more than that it is one; "to" stands there after "compared"."""
