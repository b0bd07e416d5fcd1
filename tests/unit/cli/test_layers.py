from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.cli.layers import ASCII, BLOCKS, WIDEST, Strokes, bar, drawn, strokes_of

SHARES = st.floats(0, 2)


def context(share: float, tokens: int = 10, messages: int = 3) -> dict[str, Any]:
    layers = {"tools": {"tokens": tokens, "share": share}, "recalled": {"tokens": tokens, "share": share}}
    layers["recalled"]["messages"] = messages
    return {"layers": layers, "input_budget_tokens": 1000, "used_tokens": 2 * tokens}


@pytest.mark.parametrize("strokes", [BLOCKS, ASCII])
@given(less=SHARES, more=SHARES)
def test_a_larger_share_never_has_a_shorter_bar(strokes: Strokes, less: float, more: float) -> None:
    filled = [len(bar(share, strokes).rstrip(strokes.empty)) for share in sorted((less, more))]
    assert filled == sorted(filled)


@pytest.mark.parametrize("strokes", [BLOCKS, ASCII])
@given(share=SHARES)
def test_a_bar_has_one_width_and_is_empty_only_for_nothing(strokes: Strokes, share: float) -> None:
    drawing = bar(share, strokes)
    assert len(drawing) == len(bar(1.0, strokes))
    assert (drawing == strokes.empty * len(drawing)) is (share == 0)
    assert (strokes.empty not in drawing) or share < 1


def test_eighths_of_a_cell_can_be_told_apart() -> None:
    assert len({bar(share / 176, BLOCKS) for share in range(177)}) == 177


@given(share=SHARES, tokens=st.integers(0, 10_000_000), messages=st.integers(0, 9999))
def test_no_line_is_wider_than_allowed(share: float, tokens: int, messages: int) -> None:
    lines = list(drawn(context(share, tokens, messages), BLOCKS))
    assert max(map(len, lines)) <= WIDEST
    assert [line.split()[0] for line in lines[:2]] == ["tools", "recalled"]


def test_the_last_line_sums_up() -> None:
    assert list(drawn(context(0.1, 250), ASCII))[-1] == "500 of 1,000 tokens used (50.0%)"


@pytest.mark.cases(
    ("encoding", "strokes"),
    [("utf-8", BLOCKS), ("cp437", ASCII), ("ascii", ASCII), ("latin-1", ASCII), (None, ASCII), ("no such", ASCII)],
)
def test_blocks_are_drawn_only_where_they_can_be_shown(encoding: str | None, strokes: Strokes) -> None:
    assert strokes_of(encoding) is strokes
