import base64
import subprocess
import sys
from pathlib import Path

import pytest

from loom_worker.core.errors import BadSettings, Conflict
from loom_worker.supervisor import home
from loom_worker.supervisor.home import State
from tests.support.until import until

STATE = State(
    pid=12,
    url="http://127.0.0.1:8001",
    flower_url="http://127.0.0.1:5555",
    started="2026-11-21T09:30:00Z",
    children={"web": 13},
)
HOLDER = "import sys; from loom_worker.supervisor import home; from pathlib import Path\n"
HOLDER += "with home.locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path) -> None:
    home.prepare(tmp_path)


def hold(directory: Path) -> subprocess.Popen[str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def end(holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.communicate()


def test_a_home_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    loose = tmp_path / "new" / "home"
    loose.mkdir(parents=True, mode=0o755)
    home.prepare(loose)
    assert loose.stat().st_mode & 0o777 == 0o700
    assert (loose / home.LOGS).stat().st_mode & 0o777 == 0o700


def test_a_home_that_cannot_be_made_is_named_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadSettings, match=r"LOOM_HOME=.*file/home cannot be used"):
        home.prepare(tmp_path / "file" / "home")


def test_a_second_supervisor_is_told_where_the_first_runs(tmp_path: Path) -> None:
    holder = hold(tmp_path)
    home.write_state(tmp_path, STATE)
    with pytest.raises(Conflict, match=r"pid 12, http://127\.0\.0\.1:8001"), home.locked(tmp_path):
        pass
    end(holder)


def test_the_state_of_a_killed_supervisor_counts_for_nothing(tmp_path: Path) -> None:
    holder = hold(tmp_path)
    home.write_state(tmp_path, STATE)
    assert home.running(tmp_path) == STATE
    end(holder)
    until(lambda: not home.is_held(tmp_path), 5, "the kernel lets go of the lock")
    assert home.read_state(tmp_path) == STATE
    assert home.running(tmp_path) is None
    with home.locked(tmp_path):
        assert home.is_held(tmp_path)


def test_the_state_of_a_killed_supervisor_is_gone_once_another_holds_the_home_and_nothing_is_left_behind(
    tmp_path: Path,
) -> None:
    home.write_state(tmp_path, STATE)
    with home.locked(tmp_path):
        assert home.running(tmp_path) is None
        home.write_state(tmp_path, STATE)
        with pytest.raises(Conflict), home.locked(tmp_path):
            pass
        assert home.running(tmp_path) == STATE
    assert home.read_state(tmp_path) is None


def test_looking_whether_the_lock_is_free_makes_no_file(tmp_path: Path) -> None:
    assert not home.is_held(tmp_path)
    assert not (tmp_path / home.LOCK).exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', '{"pid": 1, "other": 2}'])
def test_a_damaged_state_file_reads_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / home.STATE).write_text(content)
    assert home.read_state(tmp_path) is None


def test_the_webhook_secret_is_32_random_bytes_made_once_and_private(tmp_path: Path) -> None:
    secret = home.webhook_secret(tmp_path)
    assert len(base64.b64decode(secret.text.removeprefix("whsec_"), validate=True)) == 32
    assert secret.file == tmp_path / "webhook.secret"
    assert home.webhook_secret(tmp_path) == secret
    assert (tmp_path / "webhook.secret").stat().st_mode & 0o777 == 0o600
    assert home.webhook_secret(_other(tmp_path)).text != secret.text


def test_a_secret_file_left_empty_by_a_crash_is_filled(tmp_path: Path) -> None:
    (tmp_path / "flower.password").touch(mode=0o600)
    password = home.flower_password(tmp_path)
    assert len(password.text) >= 20
    assert home.flower_password(tmp_path) == password


def _other(directory: Path) -> Path:
    other = directory / "other"
    home.prepare(other)
    return other
