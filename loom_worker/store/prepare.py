"""Schema versions: an older file is migrated; a newer, foreign or damaged one is refused and left as it is."""

import os
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from loom_worker.core.errors import BadFile, BadSettings, Unavailable
from loom_worker.core.settings import Settings
from loom_worker.core.variables import database_path
from loom_worker.store import schema
from loom_worker.store.file import failure_of, reading


def version_of(url: str) -> str | None:
    """The schema version of a database, None for an empty one or none at all; nothing is changed.

    Raises:
        BadSettings: what is behind the URL is no database, cannot be read, or is not Loom's.
        Unavailable: it is locked, or the disk is full.
    """
    file = database_path(url)
    try:
        return _version_in(file) if file.exists() or file.is_symlink() else None
    except BadFile as error:
        raise BadSettings(f"LOOM_DATABASE_URL: {error}") from error
    except OSError as error:
        raise BadSettings(f"LOOM_DATABASE_URL: {file}: {error.strerror}") from error


def _version_in(file: Path) -> str | None:
    with reading(file) as connection:
        names = [str(row[0]) for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        if "loom_version" in names:
            row = connection.execute("SELECT version_num FROM loom_version").fetchone()
            return str(row[0]) if row else "unknown"
    if names:
        raise BadFile(f"{file} holds other tables ({', '.join(sorted(names)[:3])}…) than Loom's; name another file")
    return None


def prepare(settings: Settings) -> bool:
    """Bring the database to this code's schema; True if something was changed.

    Raises:
        BadSettings: the database cannot be opened, is not Loom's, or was written by a newer Loom.
        Unavailable: it is locked, or the disk is full.
    """
    file = database_path(settings.database_url)
    found = version_of(settings.database_url)
    _refuse_newer(found, file)
    _refuse_unwritable(file)
    if found == schema.VERSION:
        return False
    try:
        _migrate(settings.database_url)
    except DBAPIError as error:
        failure = failure_of(error.orig, file)
        if failure is None:
            raise
        raise Unavailable(f"{file} {failure.text}; {failure.fix}", failure.slug) from error
    return True


def check(settings: Settings) -> None:
    """Refuse to start on a database that ``prepare`` would refuse, or has not prepared; nothing is changed.

    Raises:
        BadSettings: the text says what to do.
        Unavailable: it is locked, or the disk is full.
    """
    file = database_path(settings.database_url)
    found = version_of(settings.database_url)
    _refuse_newer(found, file)
    if found != schema.VERSION:
        held = f"has schema {found}, this Loom {schema.VERSION}" if found else "is not made yet"
        raise BadSettings(f"LOOM_DATABASE_URL: {file} {held}; run `loom prepare` first")
    _refuse_unwritable(file)


def _refuse_newer(found: str | None, file: Path) -> None:
    if found is not None and found > schema.VERSION:
        raise BadSettings(
            f"LOOM_DATABASE_URL: {file} has schema {found}, written by a newer Loom; this one knows {schema.VERSION}. "
            "Update Loom, or set LOOM_HOME to another folder."
        )


def _refuse_unwritable(file: Path) -> None:
    if not file.parent.is_dir():
        raise BadSettings(f"LOOM_DATABASE_URL: there is no folder {file.parent}; make it, or name another one")
    for path in (file.parent, file):
        if path.exists() and not os.access(path, os.W_OK):
            raise BadSettings(
                f"LOOM_DATABASE_URL: {path} may not be written by this user (uid {os.geteuid()}); "
                "change its owner or mode, or name another file"
            )


def _migrate(url: str) -> None:
    # Alembic costs a quarter of a second to import, so it is loaded only when there is something to do.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.attributes["url"] = url
    command.upgrade(config, schema.VERSION)


def script_of(migration: str, *, between: str = "\n\n") -> Callable[[], None]:
    """The ``upgrade`` of a migration that runs the statements of the script beside it.

    Args:
        migration: the file of the migration, whose script has the same name and ends in ``.sql``.
        between: separates the statements; not a semicolon where a trigger has semicolons inside.
    """

    def upgrade() -> None:
        from alembic import op

        for statement in filter(str.strip, Path(migration).with_suffix(".sql").read_text("utf-8").split(between)):
            op.get_bind().exec_driver_sql(statement)

    return upgrade
