"""Databases of Loom on a real PostgreSQL: one a process of the tests, emptied before each test."""

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
    url = f"postgresql://loom@127.0.0.1:{postgres.port}/postgres"
    engine = engine_of(url)
    if engine.version() is None:
        engine.migrate()
    return url


def emptied(url: str) -> str:
    """The same, without a row."""
    with psycopg.connect(url) as connection:
        connection.execute(_EMPTY)
    return url
