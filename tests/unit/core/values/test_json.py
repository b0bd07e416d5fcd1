"""JSON as it is stored."""

import pytest

from loom_worker.core.values.json import json_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1.5, float("nan")], "b": float("-inf")}, '{"a": [1.5, null], "b": null}'),
        ({"k\0": "\0 \ud800 x"}, '{"k\\ufffd": "\\ufffd \\ufffd x"}'),
        (["\ud83d\ude00", "\\u0000"], '["\\ud83d\\ude00", "\\\\u0000"]'),
    ],
)
def test_what_no_column_holds_is_replaced_in_stored_json(value: object, text: str) -> None:
    assert json_text(value) == text
