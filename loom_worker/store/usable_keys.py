"""How many API keys a database has, asked before anything starts: it need not be made, and SQLAlchemy stays out.

`loom up` asks, and what it imports stays in its memory for as long as Loom runs (SQLAlchemy: 22 MB).
"""

from pathlib import Path

from loom_worker.core.errors import BadFile
from loom_worker.store.file import reading

_HAS_TABLE = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'api_keys'"
_USABLE = "SELECT count(*) FROM api_keys WHERE revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > ?)"


def usable_keys(file: Path, *, now_ms: int) -> int:
    """Count the keys of all workspaces that are neither revoked nor expired; nothing is made, changed or migrated.

    0 also where there is no database yet, or one from before there were keys.

    Raises:
        BadFile: the file cannot be read as a database.
        Unavailable: it cannot be read now.
    """
    try:
        if not (file.exists() or file.is_symlink()):
            return 0
    except OSError as error:
        raise BadFile(f"{file}: {error.strerror}") from error
    with reading(file) as connection:
        if connection.execute(_HAS_TABLE).fetchone() is None:
            return 0
        return int(connection.execute(_USABLE, (now_ms,)).fetchone()[0])
