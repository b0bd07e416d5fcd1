"""The OpenAPI 3.1 document, in full. A test holds it against the routes."""

import re
from http import HTTPStatus

from loom_worker.core.values.json import Json
from web import request_schemas
from web.a2a_operations import A2A_ANSWERS, A2A_REQUESTS
from web.agent_version_schemas import AGENT_VERSION_REQUESTS
from web.answer_schemas import ANSWERS, LISTS
from web.api_operation import ApiOperation
from web.fact_schemas import FACT_REQUESTS
from web.learned_schemas import LEARNED_REQUESTS
from web.operations import OPERATIONS, TOKEN_CALLS, TOKEN_PARAMETER
from web.parameters import PARAMETERS
from web.run_schemas import RUN_REQUESTS
from web.schedule_schemas import SCHEDULE_REQUESTS
from web.schemas import TEXT, Schema, list_of, ref

VERSION = "1.0.0"
"""Of the contract, not of the package."""
SCHEMAS: dict[str, Schema] = {
    **ANSWERS,
    "NewTurn": request_schemas.NEW_TURN,
    "NewSession": request_schemas.NEW_SESSION,
    "SessionPatch": request_schemas.SESSION_PATCH,
    "WorkspacePatch": request_schemas.WORKSPACE_PATCH,
    "Recall": request_schemas.RECALL,
    "CancelTurn": request_schemas.CANCEL_TURN,
    "Decision": request_schemas.DECISION,
    "NewKey": request_schemas.NEW_KEY,
    "NewPairing": request_schemas.NEW_PAIRING,
    "RotateKey": request_schemas.ROTATE_KEY,
    "NewToken": request_schemas.NEW_TOKEN,
    "Empty": request_schemas.EMPTY,
    **RUN_REQUESTS,
    **A2A_REQUESTS,
    **A2A_ANSWERS,
    **SCHEDULE_REQUESTS,
    **LEARNED_REQUESTS,
    **FACT_REQUESTS,
    **AGENT_VERSION_REQUESTS,
    **{f"{name}List": list_of(name) for name in LISTS},
}

_OPTIONAL_BODIES = frozenset({"Empty", "CancelTurn", "CancelRun", "RotateKey", "NewToken"})
_NO_CONTENT = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


def document() -> Json:
    """The whole document, ready to be sent as JSON."""
    paths: Json = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Loom",
            "version": VERSION,
            "description": "Durable background turns for LLM agents. Errors are application/problem+json (RFC 9457); "
            "every answer carries `X-Request-Id` and `traceparent`; times are RFC 3339 in UTC.",
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "With no key configured only clients on the same machine are served, without one. "
                    "Each operation names the scope that a key needs: read, chat (which includes read) or admin (which "
                    "includes both).",
                },
                "token": {
                    "type": "apiKey",
                    "in": "query",
                    "name": TOKEN_PARAMETER,
                    "description": "A session's token; it is taken as a bearer's key, too.",
                },
            },
        },
    }


def _described(operation: ApiOperation) -> Json:
    in_path = re.findall(r"{(\w+)}", operation.path)
    # For a key that is no OAuth token the list holds the roles that are needed (OpenAPI 3.1, 4.8.30).
    security: list[Json] = [{"key": [operation.scope]}] if operation.scope else []
    if operation.call in TOKEN_CALLS:
        security.append({"token": []})
    if operation.path == "/metrics":
        security = [{}, {"key": []}]
    described: Json = {
        "operationId": re.sub(r"\W+", "_", f"{operation.method.lower()} {operation.path}").strip("_"),
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": TEXT} for name in in_path),
            *({"name": n, **PARAMETERS[n]} for n in operation.parameters),
        ],
        "responses": _answers(operation),
        "security": security,
    }
    if operation.body is not None:
        content = {"application/json": {"schema": ref(operation.body)}}
        described["requestBody"] = {"required": operation.body not in _OPTIONAL_BODIES, "content": content}
    return described


def _answers(operation: ApiOperation) -> Json:
    answers: Json = {}
    for status, name in operation.answers.items():
        answers[str(status)] = {"description": HTTPStatus(status).phrase}
        if status not in _NO_CONTENT:
            schema: Schema = {} if name is None else {"schema": ref(name)}
            answers[str(status)]["content"] = {operation.media_type: schema}
    problem = {"application/problem+json": {"schema": ref("Problem")}}
    for status in sorted({*operation.implied_problems(), *operation.problems}):
        answers[str(status)] = {"description": HTTPStatus(status).phrase, "content": problem}
    return answers
