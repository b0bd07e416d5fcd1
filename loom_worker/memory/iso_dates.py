"""A range of dates as a tool is given it: ``2024``, ``2024-05``, ``2024-05-17`` or two of them, ``a..b``. Pure.

Dates in words are for ``core.date_ranges``.
"""

import re
from datetime import UTC, datetime

_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?", re.ASCII)
_TIME_BEHIND = re.compile(r"T[\d:.]+(?:Z|[+-]\d\d:?\d\d)?", re.ASCII)
_BETWEEN = re.compile(r"\s*(?:\.\.\.?|/|\bto\b|\buntil\b|–|—)\s*")
FORMS = "a year, month or day as 2024, 2024-05 or 2024-05-17, or two of them as 2024-05-01..2024-05-31"
FIRST_MS, LAST_MS = 0, 253_402_300_800_000
"""From 1970 to the end of 9999."""


def iso_range(text: str) -> tuple[int, int] | None:
    """The first moment of a range, and the first one behind it (ms, UTC); None if the text is no such range.

    A range may be open at one end: ``2024-05..`` and ``..2024-05``. Ends that are the wrong way round are exchanged.
    """
    ends = _BETWEEN.split(text.strip().strip("[]()").strip())
    if len(ends) == 1:
        return moments(ends[0])
    if len(ends) != 2 or not any(ends):
        return None
    first, last = (moments(end) if end else (FIRST_MS, LAST_MS) for end in ends)
    if first is None or last is None:
        return None
    if all(ends) and last[0] < first[0]:
        first, last = last, first
    return first[0], last[1]


def moments(text: str) -> tuple[int, int] | None:
    """When a year, month or day begins and when the next one does (ms, UTC); None if the text is none of them."""
    found = _DATE.fullmatch(_TIME_BEHIND.sub("", text.strip()))
    if found is None:
        return None
    year, month, day = (None if part is None else int(part) for part in found.groups())
    try:
        begin = datetime(year or 0, month or 1, day or 1, tzinfo=UTC)
    except ValueError:
        return None
    begin_ms = int(begin.timestamp() * 1000)
    if day is not None:
        return begin_ms, begin_ms + 24 * 3600 * 1000
    following = (begin.year + 1, 1) if month is None or month == 12 else (begin.year, begin.month + 1)
    is_last = following[0] > 9999
    end_ms = LAST_MS if is_last else int(datetime(following[0], following[1], 1, tzinfo=UTC).timestamp() * 1000)
    return begin_ms, end_ms
