"""Alembic's entry: runs the migrations on the database that prepare.py names."""

from alembic import context
from sqlalchemy import create_engine

from loom_worker.store.schema import metadata

engine = create_engine(context.config.attributes["url"])
with engine.connect() as connection:
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA journal_mode=WAL")
        connection.commit()
    context.configure(connection=connection, target_metadata=metadata, version_table="loom_version")
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
