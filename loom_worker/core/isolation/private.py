"""The files that no tool of a user has to read: conversations, secrets, logs, results of all sessions."""

from collections.abc import Iterator
from pathlib import Path

from loom_worker.core.settings_tree import Settings
from loom_worker.core.variables import database_path

_IN_HOME = ("webhook.secret", "flower.password", "valkey", "logs", "crashes")
_BESIDE_DATABASE = ("", "-wal", "-shm", "-journal")


def paths(settings: Settings) -> Iterator[Path]:
    """All of them, whether they exist yet or not. Agents, skills, documents and sample data are not among them."""
    yield from (settings.home / name for name in _IN_HOME)
    yield settings.home.parent / ".env"  # of a project whose home lies in it: keys may stand there
    yield settings.blobs.folder
    database = database_path(settings.database_url)
    yield from (Path(f"{database}{suffix}") for suffix in _BESIDE_DATABASE)
