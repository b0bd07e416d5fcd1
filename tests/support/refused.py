"""How a database refuses a row: by SQLAlchemy's error, or the driver's, or ours."""

from sqlalchemy.exc import DBAPIError

from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.store.engines.postgresql_server import StatementRefused

REFUSED = (DBAPIError, sqlite3.IntegrityError, StatementRefused)
