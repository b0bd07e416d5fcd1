"""The OpenAPI 3.1 document of operations, in full, with an example of each."""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from loom_worker import __version__
from loom_worker.core.values.json import Json
from web.operation import HEADERS, TOKEN_PARAMETER, Operation
from web.problems import PROBLEM
from web.schemas import TEXT, Named

_NO_CONTENT = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


def document(operations: Iterable[Operation]) -> Json:
    """The whole document, ready to be sent as JSON."""
    paths: Json = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    schemas: Json = {}
    paths = _resolved(paths, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Loom",
            "version": __version__,
            "description": "Durable background turns for LLM agents. Errors are application/problem+json (RFC 9457); "
            "every answer carries `X-Request-Id` and `traceparent`; times are RFC 3339 in UTC.",
        },
        "servers": [{"url": "/", "description": "The server that sent this document."}],
        "paths": paths,
        "components": {
            "schemas": schemas,
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


def _resolved(value: Any, schemas: Json) -> Any:
    """The value with references in the places of named schemas, which are collected."""
    match value:
        case Named(name, schema):
            if name not in schemas:
                schemas[name] = {}  # so that it comes before those in it
                schemas[name] = _resolved(schema, schemas)
            return {"$ref": f"#/components/schemas/{name}"}
        case dict():
            return {key: _resolved(each, schemas) for key, each in value.items()}
        case list() | tuple():
            return [_resolved(each, schemas) for each in value]
        case _:
            return value


def _described(operation: Operation) -> Json:
    in_path = re.findall(r"{(\w+)}", operation.path)
    # For a key that is no OAuth token the list holds the roles that are needed (OpenAPI 3.1, 4.8.30).
    security: list[Json] = [{"key": [operation.scope]}] if operation.scope else []
    if operation.takes_token:
        security.append({"token": []})
    if operation.path == "/metrics":
        security = [{}, {"key": []}]
    query = operation.query.parameters() if operation.query else {}
    described: Json = {
        "operationId": re.sub(r"\W+", "_", f"{operation.method.lower()} {operation.path}").strip("_"),
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": TEXT} for name in in_path),
            *(_parameter(name, schema) for name, schema in query.items()),
            *({"name": name, "in": "header", **HEADERS[name]} for name in operation.headers),
        ],
        "responses": _answers(operation),
        "security": security,
    }
    if body := operation.body:
        content = {"application/json": {"schema": body.named(), "example": None}}
        described["requestBody"] = {"required": not body.is_optional, "content": content}
    return described


def _parameter(name: str, schema: Json) -> Json:
    bare = {key: value for key, value in schema.items() if key != "description"}
    about = {"description": schema["description"]} if "description" in schema else {}
    return {"name": name, "in": "query", "schema": bare, **about}


def _answers(operation: Operation) -> Json:
    answers: Json = {}
    for status, named in operation.by_status.items():
        answers[str(status)] = {"description": HTTPStatus(status).phrase}
        if status not in _NO_CONTENT:
            answers[str(status)]["content"] = {operation.media_type: {} if named is None else {"schema": named}}
    problem = {"application/problem+json": {"schema": PROBLEM}}
    for status in operation.all_problems:
        answers[str(status)] = {"description": HTTPStatus(status).phrase, "content": problem}
    return answers
