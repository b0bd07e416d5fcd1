from pathlib import Path

import pytest

from loom_worker.core.isolation import private
from loom_worker.core.settings import from_env
from loom_worker.store.database import engine_of


def test_the_home_and_whatever_holds_secrets_is_kept_from_tools(tmp_path: Path) -> None:
    home = tmp_path / "project" / ".loom"
    assert {str(home), str(tmp_path / "project" / ".env")} <= set(hidden(home))
    assert "/srv/my data/x.db-wal" in hidden(home, LOOM_DATABASE_URL="sqlite:////srv/my%20data/x.db?timeout=9")
    assert "/srv/blobs" in hidden(home, LOOM_BLOB_DIR="/srv/blobs")


def test_a_tool_can_read_the_users_own_folders_in_the_home_and_change_the_one_it_works_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("agents", "logs", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    limits = private.limits(from_env({"LOOM_HOME": str(tmp_path), "LOOM_AGENTS_DIR": str(tmp_path / "agents")}), ())
    assert {str(tmp_path / name) for name in ("agents", "workspaces", "shop.db")} <= set(limits["readable"])
    assert limits["writable"] == [str(tmp_path / "work")]
    for folder in (tmp_path, tmp_path / "logs"):
        monkeypatch.chdir(folder)
        assert private.limits(from_env({"LOOM_HOME": str(tmp_path)}), ())["writable"] == []


def hidden(home: Path, **environ: str) -> list[str]:
    settings = from_env({"LOOM_HOME": str(home), **environ})
    return private.limits(settings, engine_of(settings.database_url).files)["hidden"]
