from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.errors import BadSettings, Interrupted, ToolFailed
from loom_worker.core.values.chat import ToolSpec
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import Outcome, Tool
from loom_worker.tools.outcome import cut, run, timed_out
from tests.support.callers import CALLER

MOST = 10_000


def outcome(function: Callable[[Json], Any], max_bytes: int = MOST) -> Outcome:
    tool = Tool(ToolSpec("execute_sql", "Runs SQL.", {"type": "object"}), lambda arguments, _: function(arguments))
    return run(tool, {"a": 1}, CALLER, max_bytes=max_bytes)


def raising(error: BaseException) -> Callable[[Json], str]:
    def function(_: Json) -> str:
        raise error

    return function


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Odd:
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_a_result_is_the_outcome_with_its_type() -> None:
    assert outcome(lambda arguments: f"got {arguments['a']}") == Outcome("completed", "got 1")
    assert outcome(lambda arguments: arguments) == Outcome("completed", '{"a":1}', "application/json")


def test_results_and_failures_are_cleaned() -> None:
    assert outcome(lambda _: ["a\u202eb\ud800"]).content == '["ab\ufffd"]'
    assert outcome(raising(ToolFailed("x\0\u200by"))).content == "xy"
    assert "\u200b" not in outcome(raising(ValueError("x\u200by"))).detail


@pytest.mark.cases(
    ("code", "is_fault"),
    [
        ("INVALID_INPUT", False),
        ("ERROR_NOT_FOUND", False),
        (None, False),
        ("DATABASE_ERROR", False),
        ("UNAVAILABLE", True),
    ],
)
def test_a_failure_is_a_fault_where_its_code_says_that_something_is_broken(code: str | None, is_fault: bool) -> None:
    found = outcome(
        raising(ToolFailed("no such column: revnue", code) if code else ToolFailed("no such column: revnue"))
    )
    assert (found.status, found.content, found.code) == ("failed", "no such column: revnue", code)
    assert found.is_fault is is_fault


@pytest.mark.cases("code", ["A", "SQL_ERROR", "E404", "X" * 40])
def test_a_word_of_capitals_is_a_code(code: str) -> None:
    found = outcome(raising(ToolFailed("no such order", code)))
    assert (found.content, found.code) == ("no such order", code)


@pytest.mark.cases("code", ["", "two\nlines", "lower", "X" * 41, "A-B", "CODE\n", 404, ["A"], "É"])
def test_what_is_no_code_stands_behind_the_text(code: Any) -> None:
    found = outcome(raising(ToolFailed("no such order", code)))
    assert (found.content.splitlines()[0], found.code) == ("no such order", None)
    assert str(code).strip() in found.content


@pytest.mark.cases(
    ("error", "content"),
    [
        (ValueError("not so"), "ValueError: not so"),
        (KeyError("password"), "KeyError: 'password'"),
        (RecursionError(), "RecursionError"),
        (MemoryError(), "MemoryError"),
        (SystemExit(3), "SystemExit: 3"),
        (BadSettings("LOOM_X"), "BadSettings: LOOM_X"),
        (Interrupted(), "Interrupted"),
        (Unspeakable(), "Unspeakable: <exception str() failed>"),
    ],
)
def test_whatever_else_a_tool_raises_is_a_fault_with_its_traceback(error: BaseException, content: str) -> None:
    found = outcome(raising(error))
    assert (found.status, found.content, found.code, found.is_fault) == ("failed", content, None, True)
    assert "Traceback" in found.detail
    assert "in function" in found.detail


def test_a_result_that_cannot_be_written_is_a_fault() -> None:
    found = outcome(lambda _: [Odd()])
    assert (found.status, found.content, found.is_fault) == ("failed", "RuntimeError: no words", True)


def test_a_long_failure_is_whole() -> None:
    assert outcome(raising(ToolFailed("é" * 3000))).content == "é" * 3000


def test_a_failure_without_words_is_one_all_the_same() -> None:
    assert outcome(raising(ToolFailed())).content == "failed"


def test_a_timeout_is_a_fault_that_says_how_long() -> None:
    assert timed_out(0.5) == Outcome("timeout", "timed out after 0.5 s", is_fault=True)


def test_a_result_of_the_largest_size_is_whole_and_one_byte_more_is_cut_and_says_so() -> None:
    whole = "x" * MOST
    assert outcome(lambda _: whole).content == whole
    found = outcome(lambda _: whole + "x")
    assert len(found.content.encode()) == MOST
    assert found.content.endswith(
        "\n… [cut: this is the beginning of 10,001 bytes, a result may have 10,000; ask for less, or for it in parts]"
    )


def test_json_that_was_cut_is_called_json_no_more() -> None:
    assert outcome(lambda _: ["x" * MOST]).content_type == "text/plain"


@given(st.text(min_size=1, max_size=5), st.integers(200, 3_000))
def test_a_cut_never_parts_a_character_and_never_exceeds_the_size(piece: str, times: int) -> None:
    text = piece.encode("utf-8", "replace").decode() * times
    kept = cut(text, 2_000)
    assert len(kept.encode()) <= 2_000
    assert text.startswith(kept.partition("\n… [cut: this is the beginning")[0])
    assert (kept == text) == (len(text.encode()) <= 2_000)
