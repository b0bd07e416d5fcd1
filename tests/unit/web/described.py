"""Answers held against the OpenAPI document."""

import re
from typing import Any

from flask.testing import FlaskClient
from jsonschema import Draft202012Validator
from werkzeug.test import TestResponse

from web.app import OPERATIONS
from web.openapi import document

DOCUMENT = document(OPERATIONS)
_PATHS = {re.compile(re.sub(r"{\w+}", "[^/]+", path)): path for path in DOCUMENT["paths"]}


def schema_of(path: str, method: str, status: int, media_type: str) -> Draft202012Validator:
    """What the document says of the answers of an operation."""
    answers = DOCUMENT["paths"][path][method.lower()]["responses"]
    schema = answers[str(status)]["content"][media_type]["schema"]
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})


class DescribedClient(FlaskClient):
    """A client each of whose answers must be as the document describes it."""

    def open(self, *args: Any, **options: Any) -> TestResponse:
        answer = super().open(*args, **options)
        if answer.mimetype.endswith("json"):
            method = answer.request.method
            path = next(path for pattern, path in _PATHS.items() if pattern.fullmatch(answer.request.path))
            schema_of(path, method, answer.status_code, answer.mimetype).validate(answer.get_json())
        return answer
