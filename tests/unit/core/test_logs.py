import json
import logging
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core import log_context
from loom_worker.core.logs import IDS, MOST_ID_CHARS, Console, JsonLines, escaped, set_up
from loom_worker.core.settings_tree import LogSettings
from loom_worker.guard.findings import redacted
from tests.support.log_lines import logging_as_it_was, records

FORGED = [
    ("\n2027-01-15 08:00:00 INFO    all is well", "\\n2027-01-15 08:00:00 INFO    all is well"),
    ("\r\nx", "\\r\\nx"),
    ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
    ("\x9b31m\x85", "\\x9b31m\\x85"),
    ("a\u2028b\u2029c", "a\\u2028b\\u2029c"),
    ("\u202egnp.exe\u2066\u200f", "\\u202egnp.exe\\u2066\\u200f"),
    ("\v\f\x1c\0\x7f\t", "\\x0b\\x0c\\x1c\\x00\\x7f\\t"),
    ("\ufeff\u200b\U000e0041", "\\ufeff\\u200b\\U000e0041"),
    ("half \ud83d", "half \\ud83d"),
]
"""What somebody would have logged, and how a person's line shows it."""
DANGEROUS = re.compile("[\0-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    with logging_as_it_was():
        log_context.begin({})
        yield


def record(message: str = "said %s", *args: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("loom.x", logging.WARNING, __file__, 1, message, args, None)
    made.created, made.msecs = 1_800_000_000.25, 250.0
    made.__dict__.update(extra)
    return made


def test_a_line_is_one_json_object_with_its_time_in_utc() -> None:
    line = JsonLines().format(record("said %s\nand é", "this"))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2027-01-15T08:00:00.250Z",
        "level": "WARNING",
        "logger": "loom.x",
        "message": "said this\nand é",
    }


@pytest.mark.cases("name", IDS)
def test_every_id_is_written(name: str) -> None:
    assert json.loads(JsonLines().format(record("x", **{name: "v1"})))[name] == "v1"
    assert Console().format(record("x", **{name: "v1"})).endswith(f"x  {name}=v1")


@pytest.mark.cases("text, shown", FORGED)
def test_nobody_can_forge_a_line_or_move_a_cursor(text: str, shown: str) -> None:
    forged = record("said %s", text, session=text)
    line = JsonLines().format(forged)
    assert DANGEROUS.search(line) is None
    assert (json.loads(line)["message"], json.loads(line)["session"]) == (f"said {text}", text)
    line = Console().format(forged)
    assert DANGEROUS.search(line) is None
    assert f"said {shown}  session=" in line


@given(st.text(st.characters(codec=None)))
def test_no_text_breaks_a_line(text: str) -> None:
    line = JsonLines().format(record("%s", text))
    assert DANGEROUS.search(line) is None
    assert len(line.splitlines()) == 1
    assert json.loads(line)["message"] == text
    assert len(f"x{escaped(text)}".splitlines()) == 1
    assert DANGEROUS.search(escaped(text)) is None


def test_no_id_passes_for_another_one() -> None:
    line = Console().format(record("x", session='s turn="turn_2"', turn="turn_1"))
    assert line.endswith(r'x  session="s turn=\"turn_2\"" turn=turn_1')


def test_of_a_long_id_the_beginning_is_written() -> None:
    told = json.loads(JsonLines().format(record("x", session="s" * 10_000)))["session"]
    assert told == "s" * (MOST_ID_CHARS - 1) + "…"


def test_a_secret_in_a_message_or_a_traceback_is_not_written() -> None:
    try:
        raise ValueError("refused: password=hunter2")
    except ValueError:
        failed = record("sent %s", "password=hunter3")
        failed.exc_info = sys.exc_info()
    for formatter in (JsonLines(redacted), Console(redacted)):
        line = formatter.format(failed)
        assert "password=[redacted]" in line
        assert "hunter" not in line


def test_what_a_user_wrote_is_not_written_though_a_record_has_it() -> None:
    extra = {"input": "hidden", "text": "hidden", "arguments": {"a": "hidden"}, "turn": "turn_1"}
    for formatter in (JsonLines(), Console()):
        line = formatter.format(record("x", **extra))
        assert "turn_1" in line
        assert "hidden" not in line


def test_an_exception_stays_in_its_line() -> None:
    made = record("failed")
    try:
        raise ValueError("why")
    except ValueError:
        made.exc_info = sys.exc_info()
    line = JsonLines().format(made)
    assert "\n" not in line
    assert json.loads(line)["exception"].endswith("ValueError: why")


def test_an_id_that_is_no_json_is_written_as_text() -> None:
    assert json.loads(JsonLines().format(record("x", turn=b"raw")))["turn"] == "b'raw'"


def test_a_person_s_line_without_ids_ends_with_its_message() -> None:
    assert Console().format(record("done")).endswith("WARNING done")


def test_a_person_s_traceback_is_indented_so_that_none_of_its_lines_passes_for_one_of_the_log() -> None:
    made = record("failed")
    try:
        raise ValueError("why\n2027-01-15 08:00:00 INFO    all is well\x1b[2J\rgone")
    except ValueError:
        made.exc_info = sys.exc_info()
    first, *others = Console().format(made).split("\n")
    assert first.endswith("WARNING failed")
    assert [line for line in others if not line.startswith("    | ")] == []
    assert others[-2:] == ["    | ValueError: why", r"    | 2027-01-15 08:00:00 INFO    all is well\x1b[2J\rgone"]


def test_where_a_record_was_made_stays_in_its_line() -> None:
    made = record("here")
    made.stack_info = "Stack (most recent call last):\n  somewhere"
    assert json.loads(JsonLines().format(made))["exception"] == made.stack_info


def test_a_line_has_the_ids_of_what_its_thread_works_on_unless_it_names_others() -> None:
    with logging_as_it_was():
        log_context.begin({"lane": "l1", "turn": "turn_1", "secret": "no id of logs", "call": None})
        told = json.loads(JsonLines().format(record("x", turn="turn_2")))
        with log_context.about({"call": "c1"}):
            inner = json.loads(JsonLines().format(record("x")))
        log_context.begin({"lane": "l2"})
        after = json.loads(JsonLines().format(record("x")))
    assert {name: told[name] for name in told if name in IDS} == {"lane": "l1", "turn": "turn_2"}
    assert {name: inner[name] for name in inner if name in IDS} == {"lane": "l1", "turn": "turn_1", "call": "c1"}
    assert {name: after[name] for name in after if name in IDS} == {"lane": "l2"}


def logged(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    out, err = capsys.readouterr()
    assert out == ""
    return records(err)


def test_all_logs_go_to_standard_error_in_the_chosen_form(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        set_up(LogSettings(level="INFO", format="json"))
    logging.getLogger("loom.y").info("seen", extra={"turn": "turn_1"})
    logging.getLogger("loom.y").debug("unseen")
    logging.getLogger("celery.app.trace").info("unseen")
    assert [(line["message"], line["turn"]) for line in logged(capsys)] == [("seen", "turn_1")]


def test_only_loom_itself_logs_below_info(capsys: pytest.CaptureFixture[str]) -> None:
    set_up(LogSettings(level="DEBUG", format="json"))
    for name in (
        "loom_worker.turn.run",
        "loom.web",
        "web.app",
        "anthropic._base_client",
        "kombu",
        "celery",
        "botocore",
    ):
        logging.getLogger(name).debug("Request options: %s", name)
    assert [line["logger"] for line in logged(capsys)] == ["loom_worker.turn.run", "loom.web", "web.app"]


def test_a_higher_level_holds_for_libraries_too(capsys: pytest.CaptureFixture[str]) -> None:
    set_up(LogSettings(level="ERROR", format="json"))
    for name in ("loom_worker.turn.run", "celery.worker", "urllib3"):
        logging.getLogger(name).warning("unseen")
    assert logged(capsys) == []


def ends_a_thread() -> None:
    thread = threading.Thread(target=lambda: 1 // 0, name="of a library")
    thread.start()
    thread.join()


def ends_the_process() -> None:
    try:
        ends = 1 // 0
    except ZeroDivisionError as error:
        sys.excepthook(type(error), error, error.__traceback__)
    else:
        raise AssertionError(ends)


class Unlucky:
    def __del__(self) -> None:
        raise ZeroDivisionError


def is_collected() -> None:
    Unlucky()


def cannot_be_said() -> None:
    logging.getLogger("loom.x").info("%d apples", "hidden words")


def warns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning("a\nb", DeprecationWarning, "lib.py", 7)


@pytest.mark.cases(
    "action, message, error",
    [
        (ends_a_thread, "thread of a library ended by an error that nothing caught", "ZeroDivisionError"),
        (ends_the_process, "ended by an error that nothing caught", "ZeroDivisionError"),
        (is_collected, "an error where none can be raised", "ZeroDivisionError"),
        (cannot_be_said, "test_logs.py:", ""),
        (warns, "lib.py:7: DeprecationWarning: a\nb", ""),
    ],
)
def test_what_nothing_catches_is_a_line_like_any_other(
    capsys: pytest.CaptureFixture[str], action: Callable[[], None], message: str, error: str
) -> None:
    set_up(LogSettings(level="INFO", format="json"))
    action()
    [line] = logged(capsys)
    assert message in str(line["message"])
    assert error in str(line.get("exception", ""))
    assert "hidden words" not in str(line)
