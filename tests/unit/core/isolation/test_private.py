from pathlib import Path

from loom_worker.core.isolation import private
from loom_worker.core.settings import from_env


def test_what_holds_secrets_and_conversations_is_kept_from_tools_and_what_they_work_with_is_not(tmp_path: Path) -> None:
    home = tmp_path / "project" / ".loom"
    kept = set(private.paths(from_env({"LOOM_HOME": str(home)})))
    assert kept >= {home / "loom.db", home / "loom.db-wal", home / "webhook.secret", home / "logs", home / "blobs"}
    assert tmp_path / "project" / ".env" in kept
    elsewhere = from_env({"LOOM_HOME": str(home), "LOOM_DATABASE_URL": "sqlite:////srv/my%20data/x.db?timeout=9"})
    assert Path("/srv/my data/x.db-wal") in set(private.paths(elsewhere))
    assert kept.isdisjoint({home / "shop.db", home / "workspaces", tmp_path / "project", home})
