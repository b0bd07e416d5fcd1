"""The tables of vectors, which belong to the same schema as those of ``schema``."""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, LargeBinary, String, Table

from loom_worker.store.table_parts import METADATA

message_vectors = Table(  # what a message means, as its agent's embedding model says
    "message_vectors",
    METADATA,
    Column("n", ForeignKey("messages.n", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("lane", String(40), nullable=False),
    Column("model", String(200), nullable=False),  # provider/model; a search compares vectors of one model alone
    Column("dimensions", Integer, nullable=False),
    Column("vector", LargeBinary, nullable=False),  # a signed byte for each dimension (vector_scan.py)
    Index("message_vectors_by_session", "lane", "model"),
)

embedding_cursors = Table(  # how far the messages of a session are embedded
    "embedding_cursors",
    METADATA,
    Column("lane", ForeignKey("sessions.lane", ondelete="CASCADE"), primary_key=True),
    Column("model", String(200), nullable=False),
    Column("up_to_n", BigInteger, nullable=False),  # messages up to this one are done; of another model none are
)
