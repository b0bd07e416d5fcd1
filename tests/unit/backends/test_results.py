import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.backends.results import MAX_CELL_CHARS, TooWide, collect, encode, safe

Rows = list[tuple[object, ...]]


def fetching(rows: Rows) -> Callable[[int], Rows]:
    """A cursor's fetchmany over rows in memory."""
    left = list(rows)

    def fetchmany(count: int) -> Rows:
        taken, left[:] = left[:count], left[count:]
        return taken

    return fetchmany


@pytest.mark.cases(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (2**63 - 1, 2**63 - 1),
        (1.5, 1.5),
        (float("nan"), None),
        (float("-inf"), None),
        (Decimal("12.50"), 12.5),
        (Decimal("7"), 7),
        (Decimal("NaN"), None),
        (Decimal("1e400"), None),
        (b"abc", {"bytes": 3}),
        (memoryview(b"ab"), {"bytes": 2}),
        (date(2026, 11, 21), "2026-11-21"),
        (datetime(2026, 11, 21, 9, 30, tzinfo=UTC), "2026-11-21T09:30:00+00:00"),
        (time(9, 30), "09:30:00"),
        ([1, float("inf"), b""], [1, None, {"bytes": 0}]),
        ({"a": Decimal("1.1")}, {"a": 1.1}),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    ],
)
def test_every_value_becomes_json(value: object, expected: object) -> None:
    assert safe(value) == expected
    assert type(safe(value)) is type(expected)
    encode(safe(value))


def test_rows_up_to_the_cap_are_all_there() -> None:
    result = collect(["n"], fetching([(n,) for n in range(50)]), max_rows=50, max_bytes=10_000)
    assert result == {"columns": ["n"], "rows": [[n] for n in range(50)], "row_count": 50, "truncated": False}


def test_one_row_more_than_the_cap_is_said_to_be_missing() -> None:
    result = collect(["n"], fetching([(n,) for n in range(51)]), max_rows=50, max_bytes=10_000)
    assert (result["row_count"], len(result["rows"]), result["truncated"]) == (50, 50, True)


def test_no_more_is_fetched_than_the_caps_need() -> None:
    asked: list[int] = []

    def endless(count: int) -> Rows:
        asked.append(count)
        return [("x" * 500,)] * count

    assert collect(["x"], endless, max_rows=100, max_bytes=5_000)["truncated"]
    assert len(asked) == 1


@given(
    rows=st.lists(st.tuples(st.text(max_size=60), st.integers(), st.floats()), max_size=40),
    max_rows=st.integers(1, 30),
    max_bytes=st.integers(100, 2000),
)
def test_a_result_never_exceeds_its_bytes_and_says_when_it_is_cut(rows: Rows, max_rows: int, max_bytes: int) -> None:
    result = collect(["a", "b", "c"], fetching(rows), max_rows=max_rows, max_bytes=max_bytes)
    text = encode(result)
    assert len(text.encode()) <= max_bytes
    assert result["row_count"] == len(result["rows"]) <= max_rows
    assert result["truncated"] == (result["row_count"] < len(rows))
    assert json.loads(text) == result


def test_a_cell_that_was_cut_says_how_long_it_was() -> None:
    result = collect(["t"], fetching([("é" * 5000,)]), max_rows=1, max_bytes=16_384)
    [[cell]] = result["rows"]
    assert cell == "é" * MAX_CELL_CHARS + "… (5000 characters)"
    assert result["truncated"]


def test_names_that_leave_no_room_are_refused() -> None:
    with pytest.raises(TooWide, match="400 columns"):
        collect(["x" * 300] * 400, fetching([]), max_rows=1, max_bytes=16_384)


def test_small_rows_are_fetched_in_ever_larger_batches_and_large_ones_few_at_a_time() -> None:
    def asked(cell: str) -> list[int]:
        counts: list[int] = []

        def fetchmany(count: int) -> list[tuple[str]]:
            counts.append(count)
            return [(cell,)] * count if len(counts) < 5 else []

        collect(["a"], fetchmany, max_rows=10_000, max_bytes=100_000_000)
        return counts

    assert asked("x" * 10) == [20, 500, 500, 500, 500]
    assert asked("é" * 2000) == [20, 62, 62, 62, 62]
