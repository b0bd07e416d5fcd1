import errno
import json
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from loom_worker.supervisor import logs

AT = datetime(2026, 11, 22, 3, 0, 5, 250_000, tzinfo=UTC)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "web.log"


def write(log: Path, text: str) -> None:
    handle = logs.open_log(log)
    os.write(handle, text.encode())
    os.close(handle)


def contents(log: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in log.parent.iterdir()}


@contextmanager
def full_disk(room_bytes: int) -> Iterator[None]:
    """Writing a file beyond so many bytes fails, as it does without room."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_start_goes_on_with_the_log_of_all_starts_before(log: Path) -> None:
    for run in "abcde":
        write(log, run)
    assert contents(log) == {"web.log": "abcde"}


def test_a_note_is_a_line_of_its_own_behind_one_that_was_cut_off(log: Path) -> None:
    write(log, "killed in the mid")
    logs.note(log, "web starts", moment=AT.astimezone(timezone(timedelta(hours=2))), as_json=False)
    assert contents(log) == {"web.log": "killed in the mid\n--- 2026-11-22T03:00:05Z web starts\n"}


def test_a_note_among_json_lines_is_one(log: Path) -> None:
    logs.note(log, "web ended (SIGKILL)", moment=AT, as_json=True)
    [line] = log.read_text().splitlines()
    assert json.loads(line) == {
        "time": "2026-11-22T03:00:05Z",
        "level": "INFO",
        "logger": "loom_worker.supervisor.logs",
        "message": "web ended (SIGKILL)",
    }


def test_a_full_disk_costs_a_note_and_nothing_else(log: Path) -> None:
    write(log, "a")
    with full_disk(1):
        logs.note(log, "web starts", moment=AT, as_json=False)
    assert contents(log) == {"web.log": "a"}


def test_no_older_log_is_lost_to_a_rotation_that_finds_no_room(log: Path) -> None:
    kept = {"web.log": "0123456789", "web.log.1": "b", "web.log.2": "c", "web.log.3": "the crash"}
    for name, text in kept.items():
        log.with_name(name).write_text(text)
    with full_disk(5):
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            log.with_name("probe").write_text("0123456789")
        logs.rotate_if_large(log, limit_bytes=9)
    log.with_name("probe").unlink()
    assert contents(log) == kept


def test_rotations_keep_three_older_files_and_so_many_bytes(log: Path) -> None:
    for run in "abcde":
        write(log, run * 10)
        logs.rotate_if_large(log, limit_bytes=9)
    assert contents(log) == {"web.log": "", "web.log.1": "e" * 10, "web.log.2": "d" * 10, "web.log.3": "c" * 10}
    assert {file.stat().st_mode & 0o777 for file in log.parent.iterdir()} == {0o600}


def test_a_log_is_readable_by_its_owner_alone(log: Path) -> None:
    write(log, "a")
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_writer_goes_on_at_the_start_of_a_log_that_was_rotated_under_it(log: Path) -> None:
    handle = logs.open_log(log)
    os.write(handle, b"0123456789")
    logs.rotate_if_large(log, limit_bytes=9)
    os.write(handle, b"next")
    os.close(handle)
    assert contents(log) == {"web.log": "next", "web.log.1": "0123456789"}


def test_a_log_at_its_limit_stays(log: Path) -> None:
    write(log, "0123456789")
    logs.rotate_if_large(log, limit_bytes=10)
    assert contents(log) == {"web.log": "0123456789"}


def test_the_tail_is_the_last_lines_even_of_a_log_cut_within_a_character(log: Path) -> None:
    write(log, "é" * logs.TAIL_BYTES + "\na\nb\nc\n")
    assert logs.tail(log, lines=2) == "b\nc"


def test_a_log_that_is_not_there_has_an_empty_tail_and_needs_no_rotation(log: Path) -> None:
    logs.rotate_if_large(log)
    assert logs.tail(log) == ""
