import os
from pathlib import Path

import pytest

from loom_worker.supervise import logs
from tests.support.disks import filled, small_disk


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "web.log"


def write(log: Path, text: str) -> None:
    handle = logs.open_log(log)
    os.write(handle, text.encode())
    os.close(handle)


def contents(log: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in log.parent.iterdir()}


def test_every_start_begins_a_new_log_and_nine_old_ones_are_kept(log: Path) -> None:
    for run in "abcdefghijkl":
        write(log, run)
    old = {f"web.log.{age}": run for age, run in enumerate("kjihgfedc", start=1)}
    assert contents(log) == {"web.log": "l", **old}


def test_the_log_of_a_crash_survives_four_restarts_of_loom_and_of_the_process(log: Path) -> None:
    write(log, "Traceback: the crash")
    for run in range(4):
        write(log, f"started {run}")
        again = logs.reopen_log(log)
        os.write(again, b" and again")
        os.close(again)
    assert contents(log)["web.log.4"] == "Traceback: the crash"


def test_a_log_that_cannot_be_copied_aside_is_kept_with_all_older_ones(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size_bytes=1 << 20) as disk:
        log = disk / "web.log"
        write(log, "old")
        write(log, "0123456789" * 1000)
        with filled(disk), pytest.raises(OSError, match="No space left"):
            logs.rotate_if_large(log, limit_bytes=9)
        assert contents(log) == {"web.log": "0123456789" * 1000, "web.log.1": "old"}


def test_an_empty_log_pushes_no_old_one_out(log: Path) -> None:
    write(log, "a")
    write(log, "")
    write(log, "b")
    assert contents(log) == {"web.log": "b", "web.log.1": "a"}


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


def test_a_restarted_process_goes_on_with_the_log_of_this_run(log: Path) -> None:
    write(log, "first")
    handle = logs.reopen_log(log)
    os.write(handle, b" second")
    os.close(handle)
    assert contents(log) == {"web.log": "first second"}


def test_the_tail_is_the_last_lines_even_of_a_log_cut_within_a_character(log: Path) -> None:
    write(log, "é" * logs.TAIL_BYTES + "\na\nb\nc\n")
    assert logs.tail(log, lines=2) == "b\nc"


def test_a_log_that_is_not_there_has_an_empty_tail_and_needs_no_rotation(log: Path) -> None:
    logs.rotate_if_large(log)
    assert logs.tail(log) == ""
