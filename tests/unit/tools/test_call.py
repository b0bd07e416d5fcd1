import contextvars
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.errors import BadSettings, Interrupted, ToolFailed
from loom_worker.tools.call import MAX_CONTENT_BYTES, MAX_FAILURE_CHARS, Outcome, call, clean, fitted
from loom_worker.values.chat import ToolSpec
from loom_worker.values.json import Json
from loom_worker.values.tools import Tool
from tests.support.callers import CALLER

SPEC = ToolSpec("execute_sql", "Runs SQL.", {"type": "object"})


def tool(run: Callable[[Json], Any], *, is_bounded: bool = False, timeout_s: float = 30.0) -> Tool:
    return Tool(SPEC, lambda arguments, _: run(arguments), is_bounded=is_bounded, timeout_s=timeout_s)


def raising(error: BaseException) -> Callable[[Json], str]:
    def run(_: Json) -> str:
        raise error

    return run


@pytest.mark.parametrize("is_bounded", [True, False])
def test_a_tools_text_is_its_outcome(is_bounded: bool) -> None:
    given_tool = tool(lambda arguments: f"got {arguments['a']}", is_bounded=is_bounded)
    assert call(given_tool, {"a": 1}, CALLER, timeout_s=5) == Outcome("completed", "got 1")


def test_a_bounded_tool_runs_in_the_callers_thread_and_others_do_not() -> None:
    def where(_: Json) -> str:
        return str(threading.get_ident())

    here = str(threading.get_ident())
    assert call(tool(where, is_bounded=True), {}, CALLER, timeout_s=5).content == here
    assert call(tool(where), {}, CALLER, timeout_s=5).content != here


def test_a_tool_sees_the_callers_context() -> None:
    trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="none")
    trace.set("abc")
    assert call(tool(lambda _: trace.get()), {}, CALLER, timeout_s=5).content == "abc"


@pytest.mark.parametrize("is_bounded", [True, False])
@pytest.mark.parametrize(
    ("error", "content"),
    [
        (ToolFailed("no such column: revnue", "INVALID_INPUT"), "no such column: revnue [INVALID_INPUT]"),
        (ToolFailed("the disk is gone"), "the disk is gone"),
        (ToolFailed(), "failed"),
        (ValueError("/etc/secret/path"), "Tool 'execute_sql' failed: ValueError"),
        (KeyError("password"), "Tool 'execute_sql' failed: KeyError"),
        (RecursionError(), "Tool 'execute_sql' failed: RecursionError"),
        (MemoryError(), "Tool 'execute_sql' failed: MemoryError"),
        (SystemExit(3), "Tool 'execute_sql' failed: SystemExit"),
        (BadSettings("LOOM_X"), "Tool 'execute_sql' failed: BadSettings"),
        (Interrupted(), "Tool 'execute_sql' failed: Interrupted"),
    ],
)
def test_whatever_a_tool_raises_is_a_failure_that_tells_no_internals(
    error: BaseException, content: str, is_bounded: bool
) -> None:
    assert call(tool(raising(error), is_bounded=is_bounded), {}, CALLER, timeout_s=5) == Outcome("failed", content)


def test_a_failure_is_logged_whole(caplog: pytest.LogCaptureFixture) -> None:
    call(tool(raising(ValueError("the whole story"))), {}, CALLER, timeout_s=5)
    assert "the whole story" in caplog.text
    assert "Traceback" in caplog.text


def test_a_long_failure_is_cut_to_a_hundred_characters_and_keeps_its_code() -> None:
    outcome = call(tool(raising(ToolFailed("é" * 500, "DATABASE_ERROR"))), {}, CALLER, timeout_s=5)
    assert outcome.content == "é" * (MAX_FAILURE_CHARS - 1) + "… [DATABASE_ERROR]"
    long = Tool(ToolSpec("n" * 64, "", {}), raising(type("E" * 200, (Exception,), {})()))
    assert len(call(long, {}, CALLER, timeout_s=5).content) <= MAX_FAILURE_CHARS


@pytest.mark.parametrize("result", [None, 3, b"bytes", {"a": 1}])
def test_a_result_that_is_no_text_is_a_failure(result: object) -> None:
    assert call(tool(lambda _: result), {}, CALLER, timeout_s=5) == Outcome(
        "failed", "Tool 'execute_sql' failed: it returned no text"
    )


@pytest.mark.parametrize(("own_s", "process_s"), [(0.05, 30.0), (30.0, 0.05)])
def test_a_tool_that_does_not_return_times_out_by_the_shorter_limit(
    own_s: float, process_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()

    def hang(_: Json) -> str:
        release.wait(20)
        return "late"

    with caplog.at_level(logging.WARNING):
        outcome = call(tool(hang, timeout_s=own_s), {}, CALLER, timeout_s=process_s)
    assert outcome == Outcome("timeout", "Tool 'execute_sql' timed out after 0.05 s")
    [left] = [thread for thread in threading.enumerate() if thread.name == "tool execute_sql"]
    assert left.daemon
    assert str(left.ident) in caplog.text
    release.set()
    left.join(20)
    assert not left.is_alive()


def test_a_result_of_the_largest_size_is_whole_and_one_byte_more_is_cut() -> None:
    whole = "x" * MAX_CONTENT_BYTES
    assert call(tool(lambda _: whole), {}, CALLER, timeout_s=5).content == whole
    cut = call(tool(lambda _: whole + "x"), {}, CALLER, timeout_s=5).content
    assert len(cut.encode()) == MAX_CONTENT_BYTES
    assert cut.endswith("\n… [cut: this is the beginning of 16,385 characters (16,385 bytes)]")


@given(st.text(min_size=1, max_size=5), st.integers(10_000, 20_000))
def test_a_cut_never_parts_a_character_and_never_exceeds_the_size(piece: str, times: int) -> None:
    text = clean(piece) * times
    kept = fitted(text)
    assert len(kept.encode()) <= MAX_CONTENT_BYTES
    beginning = kept.partition("\n… [cut: this is the beginning")[0] if kept != text else kept
    assert text.startswith(beginning)


@given(st.text(st.characters(exclude_categories=()), max_size=50))
def test_cleaned_text_can_be_stored_and_sent(text: str) -> None:
    cleaned = clean(text)
    assert "\0" not in cleaned
    cleaned.encode()
    assert clean(cleaned) == cleaned


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [("a\0b", "ab"), ("a\ud800b", "a\ufffdb"), ("\ud83d\ude00", "\U0001f600"), ("é\n\t😀", "é\n\t😀")],
)
def test_only_what_cannot_be_sent_is_changed(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned
    assert call(tool(lambda _: text, is_bounded=True), {}, CALLER, timeout_s=5).content == cleaned
    assert call(tool(raising(ToolFailed(text)), is_bounded=True), {}, CALLER, timeout_s=5).content == cleaned
