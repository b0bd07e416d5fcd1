"""Operations of learned layers."""

from web.api_operation import PAGE, ApiOperation

_PATH = "/v1/agents/{name}/learned"

LEARNED_OPERATIONS: tuple[ApiOperation, ...] = (
    ApiOperation(
        "GET",
        _PATH,
        "List the versions of an agent's learned layer, the newest first, with what came of each",
        "catalog",
        {200: "LearnedVersionList"},
        (404,),
        parameters=PAGE,
        scope="read",
    ),
    ApiOperation(
        "POST",
        _PATH,
        "Import what DSPy or TextGrad has saved as the next version; 200 if it is there already",
        "catalog",
        {200: "LearnedVersion", 201: "LearnedVersion"},
        (404, 409, 413, 415, 422),
        "NewLearned",
        scope="admin",
    ),
    ApiOperation(
        "GET",
        f"{_PATH}/{{version}}",
        "Look at one version and its layer",
        "catalog",
        {200: "LearnedVersion"},
        (404,),
        scope="read",
    ),
    ApiOperation(
        "DELETE",
        f"{_PATH}/{{version}}",
        "Remove what a version holds; its number and its scores stay",
        "catalog",
        {204: None},
        (404, 409),
        scope="admin",
    ),
    ApiOperation(
        "POST",
        f"{_PATH}/activate",
        "Give a version to the sessions that begin, or to a share of them",
        "catalog",
        {200: "LearnedActivation"},
        (404, 413, 415, 422),
        "ActivateLearned",
        scope="admin",
    ),
    ApiOperation(
        "POST",
        f"{_PATH}/rollback",
        "Take the last activation back: the version before it is active again",
        "catalog",
        {200: "LearnedActivation"},
        (404, 409, 413, 415, 422),
        "Empty",
        scope="admin",
    ),
)
