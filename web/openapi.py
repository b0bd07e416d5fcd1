"""The OpenAPI 3.1 document of operations, in full, with an example of each."""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from loom_worker import __version__
from loom_worker.core.values.json import Json
from web.operation import HEADERS, TOKEN_PARAMETER, Operation
from web.problems import MEDIA_TYPE, PROBLEM
from web.schemas import TEXT, Named, schema_of

EXAMPLES = {
    "agent": "support",
    "input": "How many orders came in yesterday?",
    "name": "support",
    "object": "green tea",
    "session_id": "shop-42",
    "title": "Orders of July",
    "url": "https://shop.example/hooks/loom",
    "user": "maria",
}
"""Texts by the name of a member or parameter; all others have an example by their type."""
_NO_CONTENT = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


def document(operations: Iterable[Operation]) -> Json:
    """The whole document, ready to be sent as JSON."""
    paths: Json = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    schemas: Json = {}
    paths = _resolved(paths, schemas)
    for described in (described for ways in paths.values() for described in ways.values()):
        _add_example(described, schemas)
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
        case Named("", schema):
            return _resolved(schema, schemas)
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


def _add_example(described: Json, schemas: Json) -> None:
    """An example of the body, or else of the first answer; of requests that have neither, their path shows one."""
    found = [described["requestBody"]] if "requestBody" in described else described["responses"].values()
    for content in (each.get("content", {}) for each in found):
        for media in (media for kind, media in content.items() if kind != MEDIA_TYPE and "schema" in media):
            media["example"] = _example(media["schema"], "", schemas, is_sent="requestBody" in described)
            return


def _example(schema: Json, name: str, schemas: Json, *, is_sent: bool = False) -> Any:
    """A value that the schema allows.

    Args:
        is_sent: only the members of an object that it must have, and those that EXAMPLES has.
    """
    schema = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    schema = schema["anyOf"][0] if "anyOf" in schema else schema
    if "$ref" in schema:
        return _example(schema, name, schemas)
    given = [*schema.get("examples", ()), *(schema[key] for key in ("const", "default") if key in schema)]
    if given or "enum" in schema:
        return [*given, *schema.get("enum", ())][0]
    kind = schema["type"] if isinstance(schema["type"], str) else schema["type"][0]
    match kind:
        case "object":
            known, needed = schema.get("properties", {}), schema.get("required", ())
            wanted = dict.fromkeys(
                each for each in (*known, *needed) if each in needed or (is_sent and each in EXAMPLES)
            )
            return {each: _example(known.get(each, TEXT), each, schemas, is_sent=is_sent) for each in wanted}
        case "array":
            return [_example(schema["items"], name, schemas, is_sent=is_sent)]
        case "string" if name in EXAMPLES:
            return EXAMPLES[name]
        case "string":
            return "2027-01-31T12:00:00Z" if schema.get("format") == "date-time" else f"{name.removesuffix('_id')}_1"
        case _:
            return True if kind == "boolean" else max(1, schema.get("minimum", 1))


def _described(operation: Operation) -> Json:
    in_path = re.findall(r"{(\w+)}", operation.path)
    # For a key that is no OAuth token the list holds the roles that are needed (OpenAPI 3.1, 4.8.30).
    security: list[Json] = [{"key": [operation.scope]}] if operation.scope else []
    if operation.by_session_token:
        security.append({"token": []})
    if operation.path == "/metrics":
        security = [{}, {"key": []}]
    query = operation.query.parameters() if operation.query else {}
    described: Json = {
        "operationId": re.sub(r"\W+", "_", f"{operation.method.lower()} {operation.path}").strip("_"),
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": TEXT, "example": _example(TEXT, name, {})}
                for name in in_path
            ),
            *(_parameter("query", name, schema) for name, schema in query.items()),
            *(_parameter("header", name, schema_of(HEADERS[name])) for name in operation.headers),
        ],
        "responses": _answers(operation),
        "security": security,
    }
    if operation.is_upload:
        form = {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}
        described["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": form}}}
    elif body := operation.body:
        content = {"application/json": {"schema": body.named()}}
        described["requestBody"] = {"required": not body.is_optional, "content": content}
    return described


def _parameter(place: str, name: str, schema: Json) -> Json:
    bare = {key: value for key, value in schema.items() if key != "description"}
    about = {"description": schema["description"]} if "description" in schema else {}
    return {"name": name, "in": place, "schema": bare, **about}


def _answers(operation: Operation) -> Json:
    answers: Json = {}
    for status, named in operation.by_status.items():
        answers[str(status)] = {"description": HTTPStatus(status).phrase}
        if status not in _NO_CONTENT:
            answers[str(status)]["content"] = {operation.media_type: {} if named is None else {"schema": named}}
    problem = {MEDIA_TYPE: {"schema": PROBLEM}}
    for status in operation.all_problems:
        answers[str(status)] = {"description": HTTPStatus(status).phrase, "content": problem}
    return answers
