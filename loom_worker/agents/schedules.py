"""Reading ``schedule`` of workflow and agent files, and ``schedules`` of the latter.

All raise InvalidField for a value that cannot be used.
"""

from collections.abc import Iterator, Mapping

from loom_worker.core.cron import BadPlan, CronPlan, plan_of
from loom_worker.core.fields import MISSING, Fields, InvalidField, present
from loom_worker.core.values.schedules import Schedule, ScheduleKind, SessionMode

_ONE: SessionMode = "persistent"
_SESSION_MODES: Mapping[str, SessionMode] = {"new": "new", "persistent": _ONE, "shared": _ONE, "resume": _ONE}


def schedule_of(
    fields: Fields, kind: ScheduleKind, target: str, *, entry: str = "", variables: Mapping[str, str] | None = None
) -> Schedule | None:
    """The schedule that these fields describe; None if they have no ``cron``.

    Args:
        entry: its name among several.
        variables: of a workflow's runs, already read.
    """
    zone = fields.text("timezone") or "UTC"
    known = present(
        is_enabled=fields.flag("enabled"),
        skips_if_running=fields.flag("skip_if_running"),
        max_execution_s=fields.number("max_execution_seconds"),
        session_mode=_SESSION_MODES[fields.choice("session_mode", tuple(_SESSION_MODES)) or "new"],
        workspace=fields.name("workspace") if fields.text("workspace") else None,
        variables=variables,
    )
    if fields.text("cron") is None:
        return None
    plan, asked = _plan(fields, zone), fields.required("input") if kind == "agent" else ""
    return Schedule(kind, target, plan, entry, input=asked, **known)


def schedules_of(spec: Fields, agent: str) -> tuple[Schedule, ...]:
    """All schedules of an agent's file."""
    one = schedule_of(spec.under("schedule"), "agent", agent)
    return (*((one,) if one else ()), *_listed(spec, agent))


def _listed(spec: Fields, agent: str) -> Iterator[Schedule]:
    taken = set[str]()
    for fields in spec.each("schedules"):
        fields.required("name")
        name = fields.name()
        if name in taken:
            raise InvalidField(fields.place_of("name"), f"another schedule has the name {name!r}")
        taken.add(name)
        found = schedule_of(fields, "agent", agent, entry=name)
        if found is None:
            raise InvalidField(fields.place_of("cron"), MISSING)
        yield found


def _plan(fields: Fields, zone: str) -> CronPlan:
    try:
        return plan_of(fields.required("cron"), zone)
    except BadPlan as error:
        raise InvalidField(fields.place_of(error.field), error.reason) from error
