"""What no tool of a user may read or change: the home, with conversations, secrets, logs, results of all sessions."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from loom_worker.core.settings_tree import Settings

_BESIDE_DATABASE = ("", "-wal", "-shm", "-journal")


def limits(settings: Settings, database: Iterable[Path]) -> dict[str, list[str]]:
    """Arguments of ``landlock.confine``: Loom's files, and what of the home is the user's own.

    Args:
        database: the files of the database.
    """
    hidden = {path.resolve() for path in (*_paths(settings), *database)}
    home = settings.home.resolve()
    looms = hidden - {home}

    def users(*paths: Path | None) -> list[str]:
        inside = (each for path in paths if path is not None and home in (each := path.resolve()).parents)
        return [str(it) for it in inside if not any(it.is_relative_to(x) or x.is_relative_to(it) for x in looms)]

    shop = (home / f"shop.db{suffix}" for suffix in _BESIDE_DATABASE)
    named = (settings.agents_dir, settings.workflows_dir, settings.patterns.folder, settings.workspaces_dir)
    return {
        "hidden": sorted(map(str, hidden)),
        "readable": users(*named, *shop),
        "writable": users(Path.cwd()),
    }


def _paths(settings: Settings) -> Iterator[Path]:
    yield from (settings.home / name for name in ("", "valkey", "logs", "crashes"))
    yield settings.home.parent / ".env"  # of a project whose home lies in it: keys may stand there
    yield settings.blobs.folder
