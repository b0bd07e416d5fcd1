"""Dates in words, as ranges of time: ``last May``, ``on 7 May 2023``, ``two weeks ago``. Pure.

English, and in any language numeric dates whose order is certain: ``2023-05-07``, ``7.5.2023``, ``2023年5月7日``.
``05/07/2023`` is read only where one of the first two numbers cannot be a month. Days are those of UTC, weeks begin on
Monday, seasons are the northern ones by whole months. A date without a year is the latest one that has begun.
"""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta

Days = tuple[date, date]
"""The first day, and the day after the last one."""

DAY = timedelta(days=1)
LONGEST = 4_000
"""Characters of a text that are read."""

_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAY = r"(?P<weekday>monday|tuesday|wednesday|thursday|friday|saturday|sunday)\b"
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_SEASON = rf"(?P<season>{'|'.join(_SEASONS)})\b"
_DIGITS = r"(?P<year>(?:19|20)\d\d)"
_YEAR = rf"{_DIGITS}\b"
_DAY_OF_MONTH = r"\b(?P<day>[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th)?"
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_VAGUE = {"a": 1, "an": 1, "a couple": 2, "a couple of": 2, "couple of": 2, "a few": 3, "few": 3, "several": 4}
_COUNT = rf"\b(?P<count>\d{{1,3}}|{'|'.join((*reversed(_VAGUE), *_NUMBERS))})"
_UNIT = r"(?P<unit>day|week|month|quarter|year)s?\b"
_WHICH = r"\b(?P<which>last|past|previous|this|next|coming)"


def _behind(words: str) -> str:
    """A pattern for what stands directly behind one of these words, or is all there is."""
    before = (rf"(?<=\b{word} )" for word in words.split())
    return rf"(?:\A(?=\W*\w+\W*\Z)|(?<=\bmid-)|(?<=[a-z] the )|{'|'.join(before)})"


# Months, seasons and years are people's names, verbs and amounts, too: alone they count behind such a word only.
_IN = _behind("in during since until till throughout of by early mid late before after between from to and")

_EDGE = {"early": 0, "beginning": 0, "start": 0, "mid": 1, "middle": 1, "late": 2, "end": 2}
_PART = re.compile(r"\b(?:(early|mid|late)[ -]|(beginning|start|middle|end) (?:of|in) )(?:in )?(?:the )?$")
_ORDINALS = {"first": 0, "second": 1, "third": 2, "fourth": 3, "last": -1}
_WEEK_OF = re.compile(r"\b(first|second|third|fourth|last) week (?:of|in) $")
_FROM = re.compile(r"\b(since|before|after|until|till)(?: the)? $")
_BACK = re.compile(r"\b(day|week|weekend|month|year) before(?: the)? $")
_LENGTHS = {"day": 1, "week": 7, "weekend": 7, "month": 30, "year": 365}
_MONTHS_OF = {"month": 1, "quarter": 3, "year": 12}
_HAS_YEAR = re.compile(r"(?:19|20)\d\d")
# Most texts name no date, and this takes a tenth of the time to see it.
_HINT = re.compile(
    r"\d|ago\b|day\b|night|\b(?:last|past|previous|this|next|coming|jan|feb|mar|apr|may|june?|july?|aug|sep|oct|nov|dec)"
    r"|tomorrow|current|year to date|ytd|spring|summer|autumn|fall\b|winter"
)
_OPENED = re.compile(r"\b(?:from|between) (?:the )?$")
_BETWEEN = re.compile(r"[ ,]*(?:to|and|until|till|through|\.\.|[-–/])\s*(?:the )?$")


def date_range(text: str, *, now_ms: int) -> tuple[int, int] | None:
    """When a text speaks of, from the first millisecond to the one after the last (UTC); None if of no time.

    Of several dates the first counts; two with ``to``, ``and`` or a dash between them are one range. Where one of them
    has a year, the others are seen from there.

    Args:
        now_ms: what ``yesterday`` or ``last May`` start from, milliseconds since 1970.
    """
    low = text[:LONGEST].lower()
    if not _HINT.search(low):
        return None
    today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    spans = list(_spans(low, today))
    sure = next((days for start, end, days in spans if _HAS_YEAR.search(low, start, end)), None)
    if sure and len(spans) > 1:  # "last week", as it was said on 6 November 2023
        spans = list(_spans(low, sure[0]))
    if not spans:
        return None
    start, end, days = spans[0]
    if len(spans) > 1 and _BETWEEN.match(low[end : spans[1][0]]) and spans[1][2][1] > days[0]:
        days = days[0], spans[1][2][1]
    else:
        days = _bounded(low[:start], days, today)
    return _ms(days[0]), _ms(days[1])


def date_spans(text: str, today: date) -> Iterator[tuple[int, int, Days]]:
    """Every date that a question about figures names, with its place in the text, in the text's order.

    A year alone is a date here, and a quarter or a compared month without a year. ``since``, ``before`` and the like
    belong to their date, and ``from … to`` makes one of two; no other two dates are joined.
    """
    low = text[:LONGEST].lower()
    spans = list(_spans(low, today, _RULES + _ALONE))
    while spans:
        start, end, days = spans.pop(0)
        before = low[:start]
        opened = _OPENED.search(before)
        if opened and spans and _BETWEEN.match(low[end : spans[0][0]]):
            if not _HAS_YEAR.search(low, start, end):  # from March to May 2025
                days = next((each for at, _, each in _spans(low, spans[0][2][0]) if at == start), days)
            _, end, last = spans.pop(0)
            start, days = opened.start(), (days[0], last[1])
        elif bound := _BACK.search(before) or _FROM.search(before):
            start, days = bound.start(), _bounded(before, days, today)
        if days[0] < days[1]:
            yield start, end, days


def _ms(day: date) -> int:
    return int(datetime.combine(day, time(), UTC).timestamp()) * 1000


def _spans(low: str, today: date, rules: "_Rules | None" = None) -> Iterator[tuple[int, int, Days]]:
    """Each date with its place, in the text's order; of those that overlap the first one, or else the longest."""
    matches = ((found, read) for pattern, read in rules or _RULES for found in pattern.finditer(low))
    behind = 0
    for found, read in sorted(matches, key=lambda match: (match[0].start(), -match[0].end())):
        days = _readable(read, found, today) if found.start() >= behind else None
        if days:
            behind = found.end()
            yield found.start(), found.end(), _part(low[: found.start()], days)


def _readable(read: Callable[[re.Match[str], date], Days], found: re.Match[str], today: date) -> Days | None:
    try:
        return read(found, today)
    except (ValueError, OverflowError):  # 31 June, or a year that no calendar has
        return None


def _part(before: str, days: Days) -> Days:
    """The part of a longer range that the words before it name: ``late``, ``the second week of``."""
    if week := _WEEK_OF.search(before):
        at = _ORDINALS[week[1]]
        first = days[1] - 7 * DAY if at < 0 else days[0] + 7 * at * DAY
        return first, first + 7 * DAY
    part = _PART.search(before)
    third = (days[1] - days[0]) // 3
    if not part or third < 2 * DAY:
        return days
    at = _EDGE[part[1] or part[2]]
    return days[0] + at * third, days[1] if at == 2 else days[0] + (at + 1) * third


def _bounded(before: str, days: Days, today: date) -> Days:
    """From a date on, or up to it, where the word before it says so."""
    if back := _BACK.search(before):
        return days[0] - _LENGTHS[back[1]] * DAY, days[0]
    word = _FROM.search(before)
    match word[1] if word else "":
        case "since":
            return days[0], max(days[1], today + DAY)
        case "after":
            return days[1], max(days[1], today) + DAY
        case "before":
            return date.min, days[0]
        case "until" | "till":
            return date.min, days[1]
    return days


def _of_day(day: date) -> Days:
    return day, day + DAY


def whole_months(year: int, month: int, *, count: int = 1) -> Days:
    """As many months from a month on, which may be outside 1 to 12."""
    first, last = year * 12 + month - 1, year * 12 + month - 1 + count
    return date(first // 12, first % 12 + 1, 1), date(last // 12, last % 12 + 1, 1)


def _numeric(found: re.Match[str], _: date) -> Days:
    year, month, day = (found.groupdict().get(name) for name in ("year", "month", "day"))
    if day is None:
        return whole_months(int(year or 0), _month_number(month or "0"))
    return _of_day(date(int(year or 0), _month_number(month or "0"), int(day)))


def _month_number(name: str) -> int:
    number = int(name) if name.isdigit() else _MONTHS.index(name[:3]) + 1
    if not 1 <= number <= 12:
        raise ValueError(name)
    return number


def _slashed(found: re.Match[str], _: date) -> Days:
    one, other, year = (int(each) for each in found.groups())
    if one <= 12 and other <= 12 and one != other:
        raise ValueError(found[0])
    return _of_day(date(year, min(one, other), max(one, other)))


def _day_of_month(found: re.Match[str], today: date) -> Days:
    month, day = _month_number(found["month"]), int(found["day"])
    year = found["year"]
    if year:
        return _of_day(date(int(year), month, day))
    years = (today.year - back for back in range(9))  # 29 February may be eight years ago
    return _of_day(next(at for each in years if (at := _valid(each, month, day)) and at <= today))


def _valid(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        if day > 29 or month != 2:
            raise
        return None


def _month_named(found: re.Match[str], today: date) -> Days:
    month, which = _month_number(found["month"]), found.groupdict().get("which")
    year = today.year
    if found.groupdict().get("whole_year"):
        year -= which == "last"
    elif which == "next" or which == "coming":
        year += month <= today.month
    elif which != "this":
        year -= month > today.month or (which is not None and month == today.month)
    return whole_months(year, month)


def _season_named(found: re.Match[str], today: date) -> Days:
    named = found.groupdict()
    first, which = _SEASONS[found["season"]], named.get("which")
    if named.get("year"):
        return whole_months(int(found["year"]), first, count=3)
    begun = [each for each in range(today.year - 2, today.year + 1) if date(each, first, 1) <= today]
    latest = whole_months(begun[-1], first, count=3)
    if which in ("next", "coming"):
        return whole_months(begun[-1] + 1, first, count=3)
    if which in ("last", "past", "previous") and latest[1] > today:
        return whole_months(begun[-1] - 1, first, count=3)
    return latest


def _weekday_named(found: re.Match[str], today: date) -> Days:
    ahead = (_WEEKDAYS.index(found["weekday"]) - today.weekday()) % 7
    if found["which"] in ("next", "coming"):
        return _of_day(today + (ahead or 7) * DAY)
    if found["which"] == "this":
        return _of_day(today + ahead * DAY)
    return _of_day(today + (ahead - 7) * DAY)


def _quarter(found: re.Match[str], today: date) -> Days:
    name, year = found["quarter"], found.groupdict().get("year")
    number = int(name) if name.isdigit() else _ORDINALS[name] + 1
    latest = today.year - (number * 3 - 2 > today.month)
    return whole_months(int(year or latest), number * 3 - 2, count=3)


def _half(found: re.Match[str], _: date) -> Days:
    return whole_months(int(found["year"]), 1 if (found["half"] or found["number"]) in ("first", "1") else 7, count=6)


def _near_day(found: re.Match[str], today: date) -> Days:
    word = found[0].removeprefix("the ")
    days = {"day before yesterday": -2, "yesterday": -1, "last night": -1, "day after tomorrow": 2, "tomorrow": 1}
    return _of_day(today + days.get(word, 0) * DAY)


def _number(word: str) -> int:
    return int(word) if word.isdigit() else _VAGUE.get(word) or _NUMBERS.index(word) + 1


def _ago(found: re.Match[str], today: date) -> Days:
    """The day, the seven days around it, the month or the year that is so long ago."""
    count = _number(found["count"])
    match found["unit"]:
        case "day":
            return _of_day(today - count * DAY)
        case "week":
            return today - (7 * count + 3) * DAY, today - (7 * count - 4) * DAY
        case unit:
            return _calendar_unit(unit, today, -count)


def _calendar_unit(unit: str, today: date, step: int) -> Days:
    """The month, quarter or year of a day, or the one so many units later."""
    count = _MONTHS_OF[unit]
    return whole_months(today.year, (today.month - 1) // count * count + 1 + step * count, count=count)


def _latest(found: re.Match[str], today: date) -> Days:
    """As many days, weeks, months or years up to today, counted back from its date."""
    unit, count = found["unit"], _number(found["count"])
    if unit not in _MONTHS_OF:
        return today - _LENGTHS[unit] * count * DAY, today + DAY
    month = whole_months(today.year, today.month - _MONTHS_OF[unit] * count)
    return min(month[0] + (today.day - 1) * DAY, month[1] - DAY), today + DAY


def _relative(found: re.Match[str], today: date) -> Days:
    step = {"this": 0, "current": 0, "next": 1, "coming": 1}.get(found["which"], -1)
    monday = today - today.weekday() * DAY + 7 * step * DAY
    match found["unit"]:
        case "week":
            return monday, monday + 7 * DAY
        case "weekend":
            return monday + 5 * DAY, monday + 7 * DAY
        case unit:
            return _calendar_unit(unit, today, step)


def _year_alone(found: re.Match[str], _: date) -> Days:
    return whole_months(int(found["year"]), 1, count=12)


_Rules = tuple[tuple[re.Pattern[str], Callable[[re.Match[str], date], Days]], ...]
_RULES: _Rules = tuple(
    (re.compile(pattern), read)
    for pattern, read in (
        (rf"\b{_DIGITS}([-/.])(?P<month>[01]?\d)\2(?P<day>[0-3]?\d)(?!\d)", _numeric),
        (rf"\b{_DIGITS}-(?P<month>[01]\d)(?![-\d])", _numeric),
        (rf"{_DIGITS}年(?P<month>1?\d)月(?:(?P<day>[123]?\d)日)?", _numeric),
        (rf"\b(?P<day>[0-3]?\d)\.\s?(?P<month>[01]?\d)\.\s?{_YEAR}", _numeric),
        (r"\b(\d\d?)/(\d\d?)/((?:19|20)\d\d)\b", _slashed),
        (rf"{_DAY_OF_MONTH} (?:of )?{_MONTH}(?:,? (?:of )?{_YEAR})?", _day_of_month),
        (rf"\b{_MONTH} {_DAY_OF_MONTH}\b(?:,? (?:of )?{_YEAR})?", _day_of_month),
        (rf"\b{_MONTH},? (?:of )?{_YEAR}", _numeric),
        (rf"{_WHICH} {_MONTH}", _month_named),
        (rf"\b{_MONTH} (?:of )?(?P<which>last|this) (?P<whole_year>year)\b", _month_named),
        (rf"{_IN}{_MONTH}(?! week)", _month_named),
        (rf"{_WHICH} {_SEASON}", _season_named),
        (rf"\b{_SEASON},? (?:of )?{_YEAR}", _season_named),
        (rf"{_IN}{_SEASON}", _season_named),
        (rf"(?:{_WHICH} )?\b{_WEEKDAY}", _weekday_named),
        (rf"\bq(?P<quarter>[1-4]) (?:of )?{_YEAR}", _quarter),
        (rf"\b(?P<quarter>first|second|third|fourth) quarter (?:of |in )?{_YEAR}", _quarter),
        (rf"\b(?:the )?(?:(?P<half>first|second) half|h(?P<number>[12])),? (?:of |in )?{_YEAR}", _half),
        (r"\b(?:year to date|ytd)\b", lambda _, today: (date(today.year, 1, 1), today + DAY)),
        (r"\b(?:the day before yesterday|the day after tomorrow|yesterday|tomorrow|last night)\b", _near_day),
        (r"\b(?:today|tonight|this (?:morning|afternoon|evening))\b", _near_day),
        (rf"{_COUNT} {_UNIT} ago\b", _ago),
        (rf"\b(?:last|past|previous) {_COUNT} {_UNIT}", _latest),
        (rf"{_WHICH[:-1]}|current) (?P<unit>weekend|week|month|quarter|year)\b(?! of\b)", _relative),
        (rf"{_IN}{_YEAR}(?![-/.]\d)", _year_alone),
    )
)
_NO_AMOUNT = "".join(f"(?<!{word} )" for word in ("over", "than", "least", "most", "above", "below", "under"))
_ALONE: _Rules = (
    (re.compile(rf"(?<![-\w@/.]){_NO_AMOUNT}{_YEAR}(?![-/.]?\d)"), _year_alone),
    (re.compile(r"\bq(?P<quarter>[1-4])\b"), _quarter),
    (re.compile(rf"{_behind('for with than vs versus or against')}{_MONTH}(?! week)"), _month_named),
    (re.compile(rf"\b{_MONTH}(?= (?:vs|versus|compared|and|or)\b)"), _month_named),
)
"""More dates, in texts that are questions about figures."""
