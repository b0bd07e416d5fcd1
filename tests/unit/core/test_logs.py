import json
import logging
import sys
from collections.abc import Iterator

import pytest

from loom_worker.core.logs import IDS, Console, JsonLines, set_up
from loom_worker.core.settings import LogSettings
from loom_worker.guard.redact import redacted


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


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, put back afterwards."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def test_all_logs_go_to_standard_error_in_the_chosen_form(
    root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        set_up(LogSettings(level="INFO", format="json"))
    logging.getLogger("loom.y").info("seen", extra={"turn": "turn_1"})
    logging.getLogger("loom.y").debug("unseen")
    logging.getLogger("celery.app.trace").info("unseen")
    out, err = capsys.readouterr()
    assert out == ""
    assert [(line["message"], line["turn"]) for line in map(json.loads, err.splitlines())] == [("seen", "turn_1")]
