"""Schema versions: an older database is migrated; a foreign or damaged one is refused and left as it is.

So is a newer one, unless the code that migrated it said that this code works on it, too.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from loom_worker.core.errors import BadSettings
from loom_worker.core.settings import Settings
from loom_worker.store import schema
from loom_worker.store.database import engine_of
from loom_worker.store.engines.engine import Engine


@dataclass(frozen=True, slots=True)
class MoveMark:
    """What stands in the place of the version in a database that is moved from or to; see ``move``."""

    state: str
    """moving or moved: of the old database; filling: of the new one."""
    version: str
    """The schema's."""
    move: str
    """An id that both databases have."""
    other: str
    """The other database, without its password."""

    def __str__(self) -> str:
        return f"{self.state} {self.version} {self.move} {self.other}"

    @classmethod
    def of(cls, version: str | None) -> "MoveMark | None":
        """The mark that was read as the version; None if it is a plain one."""
        parts = (version or "").split(" ", 3)
        return cls(*parts) if len(parts) == 4 else None

    @property
    def refusal(self) -> str:
        """Why Loom does not use the database, and what to do; a clause with the database as its subject."""
        return {
            "moving": f"is being moved to {self.other}; go on with `loom move --to`, or give up by `loom move --undo`",
            "moved": f"has moved to {self.other}; set LOOM_DATABASE_URL to that",
        }.get(self.state, f"is being filled from {self.other}; go on with `loom move --to` there")


def version_of(url: str) -> str | None:
    """The schema version of a database, None for an empty one or none at all; nothing is changed.

    Raises:
        BadSettings: what is behind the URL is no database, cannot be read, or is not Loom's.
        Unavailable: it is locked, or the disk is full.
    """
    with closing(engine_of(url)) as engine:
        return engine.version()


def prepare(settings: Settings) -> bool:
    """Bring the database to this code's schema; True if something was changed.

    Raises:
        BadSettings: the database cannot be opened, is not Loom's, or was written by a newer Loom that this one cannot
            work beside.
        Unavailable: it is locked, or the disk is full.
    """
    with closing(engine_of(settings.database_url)) as engine:
        found = engine.version()
        _refuse_unfit(found, engine)
        engine.require_writable()
        if is_older := found is None or found < schema.VERSION:
            engine.migrate()
        return engine.extend() or is_older


def check(settings: Settings) -> None:
    """Refuse to start on a database that ``prepare`` would refuse, or has not prepared; nothing is changed.

    Raises:
        BadSettings: the text says what to do.
        Unavailable: it is locked, or the disk is full.
    """
    with closing(engine_of(settings.database_url)) as engine:
        found = engine.version()
        _refuse_unfit(found, engine)
        if found is None or found < schema.VERSION:
            held = f"has schema {found}, this Loom {schema.VERSION}" if found else "is not made yet"
            raise BadSettings(f"LOOM_DATABASE_URL: {engine.where} {held}; run `loom prepare` first")
        engine.require_writable()


def is_usable(found: str, engine: Engine) -> bool:
    """True if this code works on a database of that version, once it is migrated if it is an older one."""
    return found <= schema.VERSION or (found.isdigit() and (engine.usable_from() or found) <= schema.VERSION)


def _refuse_unfit(found: str | None, engine: Engine) -> None:
    if (mark := MoveMark.of(found)) is not None:
        raise BadSettings(f"LOOM_DATABASE_URL: {engine.where} {mark.refusal}")
    if found is not None and not is_usable(found, engine):
        raise BadSettings(
            f"LOOM_DATABASE_URL: {engine.where} has schema {found}, written by a newer Loom; this one knows "
            f"{schema.VERSION}. Update Loom, or set LOOM_DATABASE_URL to another database."
        )


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
