from dataclasses import dataclass
from typing import Any, Literal

import pytest

from loom_worker.core.values.chat import Usage
from loom_worker.core.values.json import Json
from web.schemas import FLAG, FREE, NUMBER, TEXT, TIME, USAGE, WHOLE, array, members, of_type


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
    found = members(Parcel, "object=parcel made_at id sent_at weight", weight=NUMBER)
    assert list(found) == ["object", "made_at", "id", "sent_at", "weight"]
    sent = {"type": ["string", "null"], "format": "date-time"}
    assert found == {"object": {"const": "parcel"}, "made_at": TIME, "id": TEXT, "sent_at": sent, "weight": NUMBER}


def test_a_member_that_no_field_describes_must_be_given() -> None:
    with pytest.raises(KeyError, match="weight"):
        members(Parcel, "id weight")
