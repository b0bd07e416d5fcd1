"""The tables of large results, which belong to the same schema as those of ``schema.py``."""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, String, Table

from loom_worker.store.table_parts import JSON_OR_NULL, METADATA

# Without foreign keys: what a deleted session leaves is found by its lane, and its files go with it.
blobs = Table(
    "blobs",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("lane", String(40), nullable=False),
    Column("workspace", String(64), nullable=False),
    Column("session_id", String(128), nullable=False),
    Column("turn_id", String(40), nullable=False),
    Column("tool", String(128), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("stored_bytes", BigInteger, nullable=False),
    Column("checksum", String(64), nullable=False),
    Column("compressed", Boolean, nullable=False),
    Column("content_type", String(64), nullable=False),
    Column("metadata", JSON_OR_NULL, nullable=False),
    Column("stored_at_ms", BigInteger, nullable=False),
    Column("used_ms", BigInteger, nullable=False),  # when it was last read; it expires from there
    Index("blobs_by_use", "used_ms"),
    Index("blobs_by_size", "stored_bytes"),  # each result that is kept asks for their sum
    Index("blobs_by_session", "lane"),
)

blob_grants = Table(  # sessions a reference was passed on to
    "blob_grants",
    METADATA,
    Column("ref", ForeignKey("blobs.id", ondelete="CASCADE"), primary_key=True),
    Column("lane", String(40), primary_key=True),
    Index("blob_grants_by_session", "lane"),
)
