"""Operations of agents' versions."""

from web.api_operation import PAGE, ApiOperation

_PATH = "/v1/agents/{name}"

AGENT_VERSION_OPERATIONS: tuple[ApiOperation, ...] = (
    ApiOperation(
        "GET",
        f"{_PATH}/versions",
        "List the versions of an agent, the newest first",
        "agents",
        {200: "AgentVersionList"},
        (404, 422),
        parameters=PAGE,
        scope="read",
    ),
    ApiOperation(
        "GET",
        f"{_PATH}/versions/{{version}}",
        "Look at a version of an agent, with its document",
        "agents",
        {200: "AgentVersionDocument"},
        (404,),
        scope="admin",
    ),
    ApiOperation(
        "GET",
        f"{_PATH}/versions/{{version}}/diff",
        "Compare two versions of an agent",
        "agents",
        {200: "AgentDiff"},
        (404, 422),
        parameters=("from",),
        scope="admin",
    ),
    ApiOperation(
        "POST",
        f"{_PATH}/activate",
        "Let sessions of the workspace have a version of an agent",
        "agents",
        {200: "AgentActivated"},
        (403, 404, 409, 413, 415, 422),
        "AgentActivation",
        scope="admin",
    ),
)
