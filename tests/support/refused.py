"""How a database refuses a row: by SQLAlchemy's error, or by the driver's where a prepared statement was refused."""

import psycopg
from sqlalchemy.exc import IntegrityError

from loom_worker.core.sqlite_driver import sqlite3

REFUSED = (IntegrityError, sqlite3.IntegrityError, psycopg.IntegrityError)
