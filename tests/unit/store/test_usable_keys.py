"""Whether anybody has a key is found out from a file that may not be there yet, and that is left as it is."""

from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from loom_worker.core.errors import BadFile
from loom_worker.core.settings import Settings
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.values.api_keys import ApiKey
from loom_worker.store.api_keys import KeyRows
from loom_worker.store.database import Database
from loom_worker.store.engines.sqlite_file import database_path, usable_keys
from tests.unit.store.made import NOW_MS


def key(name: str, *, workspace: str = "default", expires_ms: int | None = None) -> ApiKey:
    return ApiKey(f"key_{name}", workspace, name, "loom_abc", ("chat",), NOW_MS, expires_ms=expires_ms)


def test_keys_count_until_they_are_revoked_or_expire(database: Database, settings: Settings) -> None:
    file, keys = database_path(settings.database_url), KeyRows(database)
    assert usable_keys(f"sqlite:///{file}", now_ms=NOW_MS) == 0
    keys.add(key("a"), "1" * 64)
    keys.add(key("b", workspace="other", expires_ms=NOW_MS + 1), "2" * 64)
    keys.add(key("c"), "3" * 64)
    assert usable_keys(f"sqlite:///{file}", now_ms=NOW_MS) == 3
    assert usable_keys(f"sqlite:///{file}", now_ms=NOW_MS + 1) == 2
    keys.revoke("default", "key_a", now_ms=NOW_MS, may_be_last=False)
    assert usable_keys(f"sqlite:///{file}", now_ms=NOW_MS + 1) == 1


def test_no_file_is_made(tmp_path: Path) -> None:
    assert usable_keys(f"sqlite:///{tmp_path}/home/loom.db", now_ms=NOW_MS) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_database_from_before_there_were_keys_has_none_and_is_not_migrated(tmp_path: Path) -> None:
    file = tmp_path / "loom.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE loom_version (version_num)")
    connection.close()
    before = file.read_bytes()
    assert usable_keys(f"sqlite:///{file}", now_ms=NOW_MS) == 0
    assert file.read_bytes() == before


def test_a_file_that_is_no_database_or_has_other_keys_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "loom.db"
    file.write_bytes(b"x" * 5000)
    with pytest.raises(BadFile, match="is no SQLite database"):
        usable_keys(f"sqlite:///{file}", now_ms=NOW_MS)
    with pytest.raises(BadFile, match="is a folder"):
        usable_keys(f"sqlite:///{tmp_path}", now_ms=NOW_MS)
    with pytest.raises(BadFile, match="File name too long"):
        usable_keys(f"sqlite:///{tmp_path}/{'x' * 300}", now_ms=NOW_MS)
    file.unlink()
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE api_keys (id)")
    connection.close()
    with pytest.raises(BadFile, match="no such column"):
        usable_keys(f"sqlite:///{file}", now_ms=NOW_MS)


@pytest.mark.parametrize("url", ["sqlite:////srv/a b%20c/loom.db", "sqlite:////srv/x.db?timeout=5&x=?", "sqlite:////é"])
def test_the_file_is_the_one_that_sqlalchemy_opens(url: str) -> None:
    assert str(database_path(url)) == make_url(url).database
