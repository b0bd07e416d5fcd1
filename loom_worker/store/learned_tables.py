"""The tables of learned layers, which belong to the same schema as those of ``schema``."""

from sqlalchemy import BigInteger, Column, Float, Integer, String, Table, Text

from loom_worker.store.table_parts import JSON_OR_NULL, METADATA

learned_layers = Table(  # versions are only added; none changes
    "learned_layers",
    METADATA,
    Column("workspace", String(64), primary_key=True),
    Column("agent", String(128), primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("form", String(16), nullable=False),
    Column("made_with", String(64), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("source", String(255), nullable=False),
    Column("note", Text, nullable=False),
    Column("sizes", JSON_OR_NULL, nullable=False),
    Column("layer", JSON_OR_NULL, nullable=False),
    Column("key_id", String(40), nullable=False),  # with which it was imported
    Column("for_user", Text),  # whom that key acts for
    Column("created_ms", BigInteger, nullable=False),
)

learned_activations = Table(  # what sessions that begin are given
    "learned_activations",
    METADATA,
    Column("workspace", String(64), primary_key=True),
    Column("agent", String(128), primary_key=True),
    Column("version", Integer, nullable=False),  # 0: none
    Column("trial_version", Integer),
    Column("share", Float, nullable=False),
    Column("history", JSON_OR_NULL, nullable=False),  # versions that were active before, the latest last
    Column("changed_ms", BigInteger, nullable=False),
)
