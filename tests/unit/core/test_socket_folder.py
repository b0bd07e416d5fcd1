"""The folder of a socket whose path in the home would be too long, and who may have put it there."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_worker.core.errors import BadSettings
from loom_worker.core.settings import from_env
from loom_worker.core.socket_folder import LINK, LONGEST_BYTES, check, discard, embedded_socket, ensure

NOBODY = 65_534


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """One that is too long."""
    home = tmp_path / ("long" * 30)
    home.mkdir(mode=0o700)
    yield home
    discard(home)


@pytest.mark.parametrize("letter", ["h", "é"])
def test_a_socket_stays_in_the_home_while_its_path_is_short_enough_in_bytes(letter: str) -> None:
    fits = (LONGEST_BYTES - len("//valkey.sock")) // len(letter.encode())
    home = Path("/" + letter * fits)
    assert embedded_socket(home) == ensure(home) == home / "valkey.sock"
    assert len(os.fsencode(embedded_socket(home))) <= LONGEST_BYTES


def test_a_long_home_gets_a_folder_for_its_user_alone_that_all_settings_agree_on(home: Path) -> None:
    socket = ensure(home)
    assert len(os.fsencode(socket)) <= LONGEST_BYTES
    assert socket.parent.stat().st_mode & 0o777 == 0o700
    settings = from_env({"LOOM_HOME": str(home), "TMPDIR": "/elsewhere"})
    assert settings.redis_url == f"unix://{socket}"
    assert settings.has_embedded_redis


def test_a_folder_is_kept_while_it_is_there_and_no_two_have_a_name_that_can_be_foreseen(home: Path) -> None:
    first = ensure(home)
    assert ensure(home) == first
    discard(home)
    assert not first.parent.exists()
    assert embedded_socket(home) == home / "valkey.sock"
    assert ensure(home) != first


def test_one_that_was_tidied_away_is_made_anew_under_another_name(home: Path) -> None:
    first = ensure(home)
    first.parent.rmdir()
    assert ensure(home) != first


def test_one_that_others_may_enter_is_refused(home: Path) -> None:
    folder = ensure(home).parent
    folder.chmod(0o755)
    refused(home, folder, "may be used by others")


def test_a_link_put_in_its_place_is_refused(home: Path, tmp_path: Path) -> None:
    folder = ensure(home).parent
    folder.rmdir()
    folder.symlink_to(tmp_path)
    try:
        refused(home, folder, "is no directory")
    finally:
        folder.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder for somebody else")
def test_one_that_another_user_made_in_its_place_is_refused(home: Path) -> None:
    folder = ensure(home).parent
    os.chown(folder, NOBODY, NOBODY)
    refused(home, folder, f"belongs to another user \\(uid {NOBODY}\\)")


def refused(home: Path, folder: Path, why: str) -> None:
    text = f"{folder}, for the socket of the embedded server, {why}; .*{home / LINK}"
    for action in (lambda: check(home), lambda: ensure(home), lambda: from_env({"LOOM_HOME": str(home)})):
        with pytest.raises(BadSettings, match=text):
            action()
    assert from_env({"LOOM_HOME": str(home), "LOOM_REDIS_URL": "redis://h"}).redis_url == "redis://h"
