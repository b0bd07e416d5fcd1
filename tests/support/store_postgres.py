"""Databases of Loom on a real PostgreSQL: one a process of the tests, emptied before each test, or one a system."""

import uuid
from typing import Any

import psycopg

from loom_worker.store.database import engine_of
from tests.support.postgres import Postgres

_EMPTY = """
DO $$
DECLARE
  name text;
  has_rows boolean;
BEGIN
  SET LOCAL session_replication_role = replica;
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'loom_version' LOOP
    EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I)', name) INTO has_rows;
    IF has_rows THEN
      EXECUTE format('DELETE FROM %I', name);
    END IF;
  END LOOP;
  FOR name IN SELECT sequencename FROM pg_sequences WHERE schemaname = 'public' AND last_value IS NOT NULL LOOP
    EXECUTE format('ALTER SEQUENCE %I RESTART', name);
  END LOOP;
END $$
"""


def made(postgres: Postgres) -> str:
    """The URL of a database that is prepared."""
    engine = engine_of(postgres.store_url)
    if engine.version() is None:
        engine.migrate()
    return postgres.store_url


def emptied(url: str) -> str:
    """The same, without a row."""
    with psycopg.connect(url) as connection:
        connection.execute(_EMPTY)
    return url


def another(url: str, *, is_made: bool = False) -> str:
    """The URL of a new database on the same server; with tables if it is to be made."""
    name = f"loom_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    found = f"{url.rpartition('/')[0]}/{name}"
    if is_made:
        engine_of(found).migrate()
    return found


def rows(url: str, query: str, *values: str) -> list[tuple[Any, ...]]:
    """Rows of a query that is written as for SQLite."""
    with psycopg.connect(url, connect_timeout=2) as connection:
        return connection.execute(query.replace("?", "%s").encode(), values or None).fetchall()
