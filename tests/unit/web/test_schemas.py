from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic import Field

from loom_worker.core.values.chat import Usage
from loom_worker.core.values.json import Json
from web.check import ABSENT, Model
from web.schemas import FLAG, FREE, NUMBER, TEXT, TIME, USAGE, WHOLE, array, of_type, record, schema_of_model


@pytest.mark.cases(
    ("hint", "schema"),
    [
        (str, TEXT),
        (int, WHOLE),
        (float, NUMBER),
        (bool, FLAG),
        (Json, FREE),
        (tuple[str, ...], array(TEXT)),
        (tuple[Json, ...], array(FREE)),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a"] | None, {"type": ["string", "null"], "enum": ["a", None]}),
        (int | None, {"type": ["integer", "null"], "minimum": 0}),
        (tuple[str, ...] | None, {"type": ["array", "null"], "items": TEXT}),
        (Usage, USAGE),
        (Usage | None, {"anyOf": [USAGE, {"type": "null"}]}),
    ],
)
def test_a_type_says_what_its_values_look_like(hint: Any, schema: Any) -> None:
    assert of_type(hint) == schema


@dataclass
class Parcel:
    id: str
    made_ms: int
    sent_ms: int | None = None
    secret: str = ""


def test_the_members_are_those_that_are_named_in_their_order() -> None:
    found = record(
        "", "A parcel.", "object=parcel made_at id sent_at tags:text[] weight", Parcel, weight="number? In kg."
    )
    assert list(found.schema["properties"]) == ["object", "made_at", "id", "sent_at", "tags", "weight"]
    assert found.schema["properties"] == {
        "object": {"const": "parcel"},
        "made_at": TIME,
        "id": TEXT,
        "sent_at": {"type": ["string", "null"], "format": "date-time"},
        "tags": array(TEXT),
        "weight": {"type": ["number", "null"], "description": "In kg."},
    }


def test_a_member_that_no_field_describes_must_be_given() -> None:
    with pytest.raises(KeyError, match="weight"):
        record("", "A parcel.", "id weight", Parcel)


def test_what_an_object_has_now_and_then_is_not_required() -> None:
    schema = record("", "A parcel.", "id:text", also={"note": "text?"}).schema
    assert (schema["required"], list(schema["properties"])) == (["id"], ["id", "note"])


class Inner(Model):
    """What is
    inside."""

    count: int = Field(ABSENT, ge=1)


class Outer(Model):
    title: str | None = Field(None, max_length=5, description="For people.")
    inner: Inner = ABSENT
    word: Literal["one"] = "one"


def test_a_model_is_described_without_references_titles_and_null_defaults() -> None:
    assert schema_of_model(Outer)["properties"] == {
        "title": {"type": ["string", "null"], "maxLength": 5, "description": "For people."},
        "inner": {
            "type": "object",
            "description": "What is inside.",
            "properties": {"count": {"type": "integer", "minimum": 1}},
            "additionalProperties": False,
        },
        "word": {"type": "string", "enum": ["one"], "default": "one"},
    }
