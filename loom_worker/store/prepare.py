"""Schema versions: an older file is migrated, a newer or foreign one is refused, never guessed."""

from pathlib import Path

from sqlalchemy import create_engine, inspect, text
from sqlalchemy.exc import DatabaseError

from loom_worker.errors import BadSettings
from loom_worker.settings import Settings
from loom_worker.store import schema


def version_of(url: str) -> str | None:
    """The schema version of a database, None for an empty one.

    Raises:
        BadSettings: there is no database behind the URL, or its tables are not Loom's.
    """
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            names = inspect(connection).get_table_names()
            if "loom_version" in names:
                return str(connection.execute(text("SELECT version_num FROM loom_version")).scalar())
    except DatabaseError as error:
        raise BadSettings(f"LOOM_DATABASE_URL: {url} cannot be read as a database: {error.orig}") from error
    finally:
        engine.dispose()
    if names:
        raise BadSettings(f"LOOM_DATABASE_URL: {url} holds other tables ({', '.join(sorted(names)[:3])}…) than Loom's")
    return None


def prepare(settings: Settings) -> bool:
    """Bring the database to this code's schema; True if something was changed.

    Raises:
        BadSettings: the database cannot be opened, is not Loom's, or was written by a newer Loom.
    """
    found = version_of(settings.database_url)
    if found == schema.VERSION:
        return False
    if found is not None and found > schema.VERSION:
        raise BadSettings(
            f"LOOM_DATABASE_URL: {settings.database_url} has schema {found}, written by a newer Loom; "
            f"this one knows {schema.VERSION}. Update Loom, or set LOOM_HOME to another folder."
        )
    _migrate(settings.database_url)
    return True


def _migrate(url: str) -> None:
    # Alembic costs a quarter of a second to import, so it is loaded only when there is something to do.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.attributes["url"] = url
    command.upgrade(config, schema.VERSION)
