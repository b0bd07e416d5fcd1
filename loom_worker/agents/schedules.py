"""Reading ``schedule`` of workflow and agent files, and ``schedules`` of the latter."""

import re
from collections.abc import Iterator, Mapping

from loom_worker.core.cron import BadPlan, CronPlan, plan_of
from loom_worker.core.fields import MISSING, Fields, InvalidField
from loom_worker.core.values.schedules import DEFAULT_WORKSPACE, Schedule, ScheduleKind, SessionMode

_ONE: SessionMode = "persistent"
_SESSION_MODES: Mapping[str, SessionMode] = {"new": "new", "persistent": _ONE, "shared": _ONE, "resume": _ONE}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def schedule_of(
    fields: Fields, kind: ScheduleKind, target: str, *, entry: str = "", variables: Mapping[str, str] | None = None
) -> Schedule | None:
    """The schedule that these fields describe; None if they have no ``cron``.

    Args:
        entry: its name among several.
        variables: of a workflow's runs, already read.

    Raises:
        InvalidField: a value cannot be used.
    """
    zone = fields.text("timezone") or "UTC"
    enabled, skips = fields.flag("enabled"), fields.flag("skip_if_running")
    max_execution_s = fields.number("max_execution_seconds")
    mode = fields.choice("session_mode", tuple(_SESSION_MODES)) or "new"
    workspace = fields.text("workspace") or DEFAULT_WORKSPACE
    if not _NAME.fullmatch(workspace):
        raise fields.invalid("workspace", "the name of a workspace", workspace)
    if fields.text("cron") is None:
        return None
    return Schedule(
        kind=kind,
        target=target,
        plan=_plan(fields, zone),
        entry=entry,
        is_enabled=enabled is not False,
        skips_if_running=bool(skips),
        max_execution_s=max_execution_s,
        variables=variables or {},
        input=fields.required("input") if kind == "agent" else "",
        session_mode=_SESSION_MODES[mode],
        workspace=workspace,
    )


def schedules_of(spec: Fields, agent: str) -> tuple[Schedule, ...]:
    """All schedules of an agent's file.

    Raises:
        InvalidField: a value cannot be used, or a name is missing or stands there twice.
    """
    one = schedule_of(spec.under("schedule"), "agent", agent)
    return (*((one,) if one else ()), *_listed(spec, agent))


def _listed(spec: Fields, agent: str) -> Iterator[Schedule]:
    taken = set[str]()
    for fields in spec.each("schedules"):
        name = fields.required("name")
        if not _NAME.fullmatch(name):
            raise fields.invalid("name", "a name of letters, digits, '.', '_' and '-', at most 64,", name)
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
