"""The tables of agents' versions and their labels, which belong to the same schema as those of ``schema``."""

from sqlalchemy import BigInteger, Column, Float, Integer, String, Table, Text, UniqueConstraint

from loom_worker.store.table_parts import METADATA

agent_versions = Table(  # agents belong to the installation, not to a workspace
    "agent_versions",
    METADATA,
    Column("agent", String(128), primary_key=True),
    Column("n", Integer, primary_key=True, autoincrement=False),
    Column("version", String(64), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("document", Text, nullable=False),
    Column("changed_by", String(64), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    UniqueConstraint("agent", "version"),
)

agent_labels = Table(
    "agent_labels",
    METADATA,
    Column("workspace", String(64), primary_key=True),
    Column("agent", String(128), primary_key=True),
    Column("label", String(16), primary_key=True),
    Column("version", String(64), nullable=False),
    Column("share", Float, nullable=False),  # of new sessions, 0-1
    Column("changed_by", String(64), nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
)
