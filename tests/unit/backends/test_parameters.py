import json
from typing import Any

import pytest

from loom_worker.backends.parameters import checked
from loom_worker.core.errors import ToolFailed

KINDS = ("sqlite", "postgresql", "mysql", "mariadb", "duckdb")


@pytest.mark.cases("kind", KINDS)
@pytest.mark.cases("value", [json.loads("9" * 400), float("inf"), float("nan"), "\ud800"])
def test_what_no_driver_takes_is_invalid_input_on_every_database(kind: str, value: Any) -> None:
    for parameters in ({"x": value}, ["fine", value]):
        with pytest.raises(ToolFailed, match=r"parameter '(x|2)'") as caught:
            checked(parameters, kind)
        assert caught.value.code == "INVALID_INPUT"


@pytest.mark.cases("kind", KINDS)
@pytest.mark.cases("value", [None, True, 0, -(2**63), 2**63 - 1, 1.5, "", "\0", "é", "9" * 400])
def test_what_drivers_take_passes(kind: str, value: Any) -> None:
    assert checked([value], kind) == [value]
    assert checked({"x": value}, kind) == {"x": value}
    assert checked(None, kind) is None


def test_numbers_beyond_64_bits_are_for_databases_that_have_wider_ones() -> None:
    assert checked([10**37], "postgresql") == [10**37]
    with pytest.raises(ToolFailed):
        checked([10**38], "postgresql")
    with pytest.raises(ToolFailed):
        checked([2**63], "sqlite")
