"""Alembic's entry point: runs the migrations on the database of the engine that asks for them."""

from alembic import context

from loom_worker.store.schema import metadata

with context.config.attributes["engine"].connect() as connection:
    context.configure(
        connection=connection, target_metadata=metadata, version_table="loom_version", transactional_ddl=True
    )
    with context.begin_transaction():
        context.run_migrations()
