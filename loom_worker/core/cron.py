"""When a cron expression is due, in a time zone with its summer time. Pure; the one file that calls cronsim.

An hour that summer time leaves out moves what is due in it to the first moment after the gap, and an hour that comes
twice has its fixed times once, as Debian's cron has it. Expressions whose hour or minute is ``*`` follow elapsed time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsim import CronSim, CronSimError

from loom_worker.core.errors import BadFile
from loom_worker.core.text import did_you_mean

MAX_CHARS = 500
"""Longest expression; one that lists every minute, hour, day and month has some 400 characters."""
_SHORTHANDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class BadPlan(BadFile):
    """An expression or a time zone that cannot be used; made of the field's name and of what is wrong."""

    @property
    def field(self) -> str:
        """``cron`` or ``timezone``."""
        return str(self.args[0])

    @property
    def reason(self) -> str:
        """What is wrong, and what is needed."""
        return str(self.args[1])


@dataclass(frozen=True, slots=True)
class CronPlan:
    """A cron expression of five fields in a time zone; made by ``plan_of``."""

    cron: str
    timezone: str = "UTC"

    def after(self, moment_ms: int) -> Iterator[int]:
        """Due times after a moment, in ms since 1970 and rising, each once."""
        zone = _zone(self.timezone)
        last_ms = moment_ms
        for due in CronSim(_SHORTHANDS.get(self.cron, self.cron), _local(moment_ms, zone)):
            due_ms = int(due.timestamp()) * 1000
            # Several times of a gap fall on the moment after it, and it is one time then.
            if due_ms > last_ms:
                last_ms = due_ms
                yield due_ms

    def next_after(self, moment_ms: int) -> int | None:
        """The first due time after a moment; None if there is none within fifty years."""
        return next(self.after(moment_ms), None)

    def local(self, moment_ms: int) -> str:
        """A moment as clocks in the zone show it, with the offset: ``2026-03-29 03:00 +0200``."""
        return _local(moment_ms, _zone(self.timezone)).strftime("%Y-%m-%d %H:%M %z")


def plan_of(cron: str, timezone: str) -> CronPlan:
    """A plan that has been checked.

    Raises:
        BadPlan: the expression has not five fields or is never due, or there is no such time zone.
    """
    found = " ".join(cron.split())
    if found.startswith("@") and found not in _SHORTHANDS:
        raise BadPlan("cron", f"unknown shorthand {found!r}; there are {', '.join(_SHORTHANDS)}")
    expression = _SHORTHANDS.get(found, found)
    if len(expression) > MAX_CHARS or len(expression.split(" ")) != 5:
        raise BadPlan("cron", f"five fields (minute hour day month weekday) are needed, not {found[:MAX_CHARS]!r}")
    try:
        _zone(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        advice = did_you_mean(timezone, sorted(available_timezones())) or "such as Europe/Berlin is needed"
        raise BadPlan("timezone", f"unknown time zone {timezone!r}; {advice}") from error
    plan = CronPlan(found, timezone)
    try:
        is_ever_due = plan.next_after(0) is not None
    except CronSimError as error:
        raise BadPlan("cron", f"{found!r} is no cron expression: {error}") from error
    if not is_ever_due:
        raise BadPlan("cron", f"{found!r} is never due")
    return plan


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def _local(moment_ms: int, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).astimezone(zone)
