from pathlib import Path

from loom_worker.core.isolation.home_secrets import embedded_with_password, kept
from loom_worker.core.settings import embedded_socket, from_env
from tests.support.at_once import at_once


def test_all_who_ask_at_once_get_the_same_secret(tmp_path: Path) -> None:
    found = at_once(lambda n: kept(tmp_path / "secret", f"mine-{n}").text, range(8))
    assert set(found) == {(tmp_path / "secret").read_text().strip()}


def test_the_embedded_servers_password_is_made_once_and_read_with_the_settings_but_not_shown(tmp_path: Path) -> None:
    own = {"LOOM_HOME": str(tmp_path)}
    url = embedded_with_password(tmp_path)
    password = url.removeprefix("unix://:").partition("@")[0]
    assert (len(password) >= 32, embedded_with_password(tmp_path)) == (True, url)
    named = {**own, "LOOM_REDIS_URL": f"unix://{embedded_socket(tmp_path)}"}
    assert {from_env(own).redis_url, from_env(named).redis_url} == {url}
    assert from_env(own).has_embedded_redis
    assert password not in repr(from_env(own))
