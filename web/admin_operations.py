"""Operations of administrators: keys, pairings, users and the audit."""

from web.api_operation import PAGE, ApiOperation

ADMIN_OPERATIONS: tuple[ApiOperation, ...] = (
    ApiOperation(
        "GET", "/v1/keys", "List API keys, ended ones too", "keys", {200: "KeyList"}, parameters=PAGE, scope="admin"
    ),
    ApiOperation(
        "POST",
        "/v1/keys",
        "Make an API key; its secret is shown in this answer only",
        "keys",
        {201: "MadeKey"},
        (413, 415, 422),
        "NewKey",
        scope="admin",
    ),
    ApiOperation("DELETE", "/v1/keys/{key_id}", "Revoke an API key", "keys", {204: None}, (404, 409), scope="admin"),
    ApiOperation(
        "POST",
        "/v1/keys/{key_id}/rotate",
        "Replace an API key by a new one, whose secret is shown in this answer only",
        "keys",
        {200: "MadeKey"},
        (404, 409, 413, 415, 422),
        "RotateKey",
        scope="admin",
    ),
    ApiOperation(
        "GET",
        "/v1/pairings",
        "List who of which channel is which user",
        "users",
        {200: "PairingList"},
        parameters=PAGE,
        scope="admin",
    ),
    ApiOperation(
        "POST",
        "/v1/pairings",
        "Say who somebody of a channel is; again, it changes nothing",
        "users",
        {201: "Pairing"},
        (409, 413, 415, 422),
        "NewPairing",
        scope="admin",
    ),
    ApiOperation(
        "DELETE",
        "/v1/pairings/{pairing_id}",
        "Forget who somebody of a channel is",
        "users",
        {204: None},
        (404,),
        scope="admin",
    ),
    ApiOperation(
        "GET",
        "/v1/audit",
        "List who did what, the newest first",
        "audit",
        {200: "AuditRowList"},
        (422,),
        parameters=("kind_of_act", "user", "of_agent", "session", "turn", "since", "until", *PAGE),
        scope="admin",
    ),
    ApiOperation(
        "DELETE",
        "/v1/users/{user}",
        "Delete a user's sessions with all in them, and revoke the user's keys; running turns are stopped",
        "audit",
        {200: "DeletedUser"},
        (404,),
        scope="admin",
    ),
)
