"""Operations of schedules."""

from web.api_operation import PAGE, ApiOperation

SCHEDULE_OPERATIONS: tuple[ApiOperation, ...] = (
    ApiOperation(
        "GET",
        "/v1/schedules",
        "List schedules: when each is due next, and what came of the last time",
        "workflows",
        {200: "ScheduleList"},
        parameters=PAGE,
        scope="read",
    ),
    ApiOperation(
        "PATCH",
        "/v1/schedules/{name}",
        "Enable or disable a schedule, whatever its file says; null: the file's word counts again",
        "workflows",
        {200: "Schedule"},
        (404, 413, 415, 422),
        "SchedulePatch",
        scope="admin",
    ),
    ApiOperation(
        "POST",
        "/v1/schedules/{name}/run",
        "Start what a schedule starts now, beside its plan",
        "workflows",
        {202: "ScheduleStart"},
        (403, 404, 409, 413, 415, 422, 429),
        "Empty",
        scope="admin",
    ),
)
