"""The number and the periods of an English question, for the scripted model; no clock, today comes as an argument."""

import re
from dataclasses import dataclass
from datetime import date, timedelta

from loom_worker.core.date_ranges import DAY, Days, date_spans, whole_months

_NUMBERS = {word: n for n, word in enumerate("two three four five six seven eight nine ten eleven twelve".split(), 2)}
_NUMBERS |= {"fifteen": 15, "twenty": 20, "fifty": 50}
"""The numbers that are read as words; "one" is not among them, as it rarely counts."""
_NUMBER = re.compile(rf"\b(?:{'|'.join(_NUMBERS)})\b")
_HOW_MANY = re.compile(
    r"(?<![/.\d@p-])\b[1-9]\d{0,2}\b(?!\s*(?:%|per ?cent|/|\.\d|(?:day|week|month|quarter|year)s?\b))"
)
_SEASON = re.compile("spring|summer|autumn|fall|winter")
_BEFORE_MARK = re.compile(r"\b(?:in|for|during|of|from|on|within|throughout|to)(?: the)? +(@p\d+)(?: so far\b)?")
"""Words in front of a period that say no more than that it is one; "to" stands there after "compared"."""


@dataclass(frozen=True, slots=True)
class Period:
    """Days from ``start`` up to but not including ``end``."""

    start: date
    end: date
    wording: str
    """The words of the question it was read from."""
    before: Days | None = None
    """The days before it, if it is a unit of the calendar: of a running one as many, of a season the year before."""

    @property
    def is_season(self) -> bool:
        """Is it spring, summer, autumn or winter? Another season stands before it than the one it compares with."""
        return _SEASON.search(self.wording) is not None


@dataclass(frozen=True, slots=True)
class Slots:
    """The number and the periods of a question, apart from what it is about."""

    n: int | None
    periods: tuple[Period, ...]
    marked: str
    """The question in lower case, numbers as digits, ``@p0`` instead of its first period and so on."""
    names: tuple[tuple[str, str], ...] = ()
    """Placeholders of a pattern with the names of the database that stand for them."""

    @property
    def period(self) -> Period | None:
        """The period, if there is exactly one: two are never made into one."""
        return self.periods[0] if len(self.periods) == 1 else None


def read(question: str, today: date | None) -> Slots:
    """Read the first count and all periods of a question; without today, no period is understood."""
    text = " ".join(question.lower().replace("@", " ").split())
    text, marked, behind = _NUMBER.sub(lambda found: str(_NUMBERS[found[0]]), text), "", 0
    periods: list[Period] = []
    for start, end, days in date_spans(text, today) if today else ():
        if today and days[0] > today and not re.search(r"\d", text[start:end]):  # next month: no row tells of it
            continue
        marked += f"{text[behind:start]}@p{len(periods)}"
        periods.append(_period(text[start:end], days, today or days[0]))
        behind = end
    marked = _BEFORE_MARK.sub(r"\1", marked + text[behind:])
    count = _HOW_MANY.search(marked)
    return Slots(int(count[0]) if count else None, tuple(periods), marked)


def _period(wording: str, days: Days, today: date) -> Period:
    """A period that is still running ends with today."""
    start, end = days
    period = Period(start, min(end, today + DAY) if start <= today else end, wording)
    if (before := _before(days, is_season=period.is_season)) and period.end < end:
        before = before[0], min(before[1], before[0] + (period.end - start))
    return Period(start, period.end, wording, before)


def _before(days: Days, *, is_season: bool) -> Days | None:
    start, end = days
    months = (end.year - start.year) * 12 + end.month - start.month
    if start.day == end.day == 1 and months in (1, 3, 6, 12):
        return whole_months(start.year, start.month - (12 if is_season else months), count=months)
    is_unit = end - start == DAY or (end - start == timedelta(days=7) and start.weekday() == 0)
    return (start - (end - start), start) if is_unit else None
