"""JSON Schemas of schedules."""

from typing import get_args

from loom_worker.core.values.schedules import ScheduleKind
from web.request_schemas import object_of
from web.schemas import FLAG, NUMBER, TEXT, TIME, WHOLE, Schema, answer, described, list_of, or_null, ref

SCHEDULE_PATCH = object_of(
    {"enabled": {"type": ["boolean", "null"], "description": "null: as the file says."}},
    required=("enabled",),
    description="An operator's word, which survives restarts and edits of the file.",
)

_SCHEDULE = answer(
    {
        "name": described(TEXT, "`workflow:NAME`, `agent:NAME` or `agent:NAME:ENTRY`."),
        "object": {"const": "schedule"},
        "kind": {"type": "string", "enum": list(get_args(ScheduleKind))},
        "target": described(TEXT, "The workflow or agent."),
        "workspace": TEXT,
        "cron": TEXT,
        "timezone": TEXT,
        "enabled": FLAG,
        "enabled_by": {"type": "string", "enum": ["file", "operator"]},
        "session_mode": {"type": "string", "enum": ["new", "persistent"]},
        "skip_if_running": FLAG,
        "max_execution_seconds": or_null(NUMBER),
        "next_at": described(or_null(TIME), "When it is due next; null while it is disabled."),
        "last_at": described(or_null(TIME), "The due time that was last begun."),
        "last_id": described(or_null(TEXT), "The run or turn that was last begun, also beside the plan."),
        "last_status": described(or_null(TEXT), "Its status; null if it was deleted."),
        "last_error": described(or_null(TEXT), "Why the last start was refused; null if it was not."),
        "last_error_at": or_null(TIME),
        "skipped": described(WHOLE, "Due times skipped because the last run had not ended."),
        "missed": described(WHOLE, "Due times that came while no worker ran."),
    },
    description="When a workflow or an agent is started without a client.",
)

SCHEDULE_REQUESTS: dict[str, Schema] = {"SchedulePatch": SCHEDULE_PATCH}
SCHEDULE_ANSWERS: dict[str, Schema] = {
    "Schedule": _SCHEDULE,
    "ScheduleList": list_of("Schedule"),
    "ScheduleStart": {"anyOf": [ref("Run"), ref("Turn")], "description": "A workflow's Run, or an agent's Turn."},
}
