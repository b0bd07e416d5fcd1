import dataclasses
import json
import math
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.tools.outcome import encoded

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@dataclasses.dataclass
class Rate:
    currency: str
    value: float


@given(JSON_VALUES.filter(lambda value: not isinstance(value, str)))
def test_any_json_value_is_encoded_and_read_back(value: Any) -> None:
    text, content_type = encoded(value)
    assert json.loads(text) == value
    assert content_type == "application/json"


@pytest.mark.cases(
    ("result", "text"),
    [
        ({"b": [1, 2], "a": "é"}, '{"b":[1,2],"a":"é"}'),
        ([math.nan, math.inf, -math.inf, 1.5], "[null,null,null,1.5]"),
        ({1: "a", ("x", 2): "b", None: math.nan}, '{"1":"a","(\'x\', 2)":"b","None":null}'),
        (
            {"at": date(2026, 1, 2), "sum": Decimal("1.10"), "raw": b"x"},
            '{"at":"2026-01-02","sum":"1.10","raw":"b\'x\'"}',
        ),
        ([Rate("EUR", 1.5), {7}, (1, 2)], '[{"currency":"EUR","value":1.5},[7],[1,2]]'),
        ([Rate("EUR", math.nan)], '[{"currency":"EUR","value":null}]'),
        (None, "null"),
        (3, "3"),
    ],
)
def test_what_is_no_json_is_said_as_near_to_it_as_can_be(result: object, text: str) -> None:
    assert encoded(result) == (text, "application/json")


def test_a_value_that_contains_itself_is_written_as_python_does() -> None:
    loop: list[object] = [1]
    loop.append(loop)
    assert encoded(loop) == ("[1, [...]]", "text/plain")


@pytest.mark.cases(
    ("text", "content_type"),
    [
        ('{"a": 1}', "application/json"),
        ("[1, 2]", "application/json"),
        ("[see below]", "text/plain"),
        ('{"a": NaN}', "text/plain"),
        ("[" * 100_000 + "]" * 100_000, "text/plain"),
        ("12", "text/plain"),
        ('"quoted"', "text/plain"),
        ("", "text/plain"),
    ],
)
def test_text_stays_word_for_word_and_is_json_only_if_it_says_so_and_is(text: str, content_type: str) -> None:
    assert encoded(text) == (text, content_type)
