"""Months, quarters and seasons as days, for what the scripted model reads of a question."""

from datetime import date, timedelta

MONTHS = "january february march april may june july august september october november december".split()
MONTH = "|".join([*MONTHS, "jan|feb|mar|apr|jun|jul|aug|sept|sep|oct|nov|dec"])
"""Names of months, as a part of a regular expression."""
SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""The first month of each, by the meteorologists' calendar."""
FOREVER = (date(1, 1, 1), date(9999, 12, 31))
"""What stands for an end that a period does not have."""


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
    return months_on(first, count * {"month": 1, "quarter": 3, "season": 12, "year": 12}[unit])
