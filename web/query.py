"""Query parameters: a model for each set of them; what breaks it raises Refused, 400."""

import re
from functools import cache
from typing import Annotated, Self

from flask import request
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from web.check import Given, flawed, flaws_of, moment_ms
from web.problems import malformed
from web.schemas import TIME, Schema, schema_of_model

MAX_LIMIT = 500
_WHOLE = re.compile(r"[0-9]{1,15}")


def whole_number(raw: str, name: str) -> int:
    """The number in a header.

    Raises:
        Refused: 400 for anything but digits.
    """
    if not _WHOLE.fullmatch(raw):
        raise malformed(f"{name} must be a whole number of 15 digits at most")
    return int(raw)


def _digits(raw: str) -> int:
    """Digits alone, at most 15; ``int`` would take signs, spaces and underscores too."""
    if not _WHOLE.fullmatch(raw):
        raise flawed("must be a whole number of 15 digits at most")
    return int(raw)


def _printable(raw: str) -> str:
    if not raw.isprintable():
        raise flawed("must have printable characters only")
    return raw


Whole = Annotated[int, Field(ge=0), BeforeValidator(_digits)]
Count = Annotated[int, Field(ge=1), BeforeValidator(_digits)]
PRINTABLE = AfterValidator(_printable)
Text = Annotated[str, Field(max_length=128), PRINTABLE]
# The plus sign of an offset may have become a space, as it does in a URL where nobody escaped it.
Time = Annotated[int, Given(Annotated[str, WithJsonSchema(TIME)], lambda raw: moment_ms(raw.replace(" ", "+")))]


class Query(BaseModel):
    """The query parameters of an operation; an empty one counts as absent, unless it is a number."""

    model_config = ConfigDict(frozen=True)

    @classmethod
    def read(cls) -> Self:
        """Those of the current request; of a repeated one the first.

        Raises:
            Refused: 400, naming the first that is wrong.
        """
        schemas = cls.parameters()
        given = {
            name: raw
            for name, raw in request.args.items()
            if name in schemas and (raw or schemas[name]["type"] == "integer")
        }
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            [flaw, *_] = flaws_of(error, {"properties": schemas})
            raise malformed(f"{flaw.pointer[1:]} {flaw.detail.replace('expected', 'must be', 1)}") from error

    @classmethod
    @cache
    def parameters(cls) -> dict[str, Schema]:
        """The schema of each parameter, with its description; its own come before those of pages."""
        found = schema_of_model(cls)["properties"]
        return {name: _not_null(found[name]) for name in sorted(found, key=lambda name: name in PageQuery.model_fields)}


def _not_null(schema: Schema) -> Schema:
    if not isinstance(schema["type"], list):
        return schema
    words = {"enum": [each for each in schema["enum"] if each is not None]} if "enum" in schema else {}
    return schema | {"type": schema["type"][0]} | words


class PageQuery(Query):
    """Which page of a list."""

    limit: Annotated[Count, AfterValidator(lambda limit: min(limit, MAX_LIMIT))] = Field(
        50, description="Most items of a page; more than 500 counts as 500."
    )
    after: Annotated[str, Field(max_length=512), PRINTABLE] | None = Field(
        None, description="The `next` of the page before; else 422."
    )


class PeriodQuery(PageQuery):
    """Which page of a list of what happened in a period."""

    since: Time | None = Field(None, description="The first moment that counts.")
    until: Time | None = Field(None, description="The first moment that is too late.")
