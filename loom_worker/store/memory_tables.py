"""The tables of what is remembered, of a session and beyond it, and of vectors; they belong to ``schema``'s schema."""

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, Integer, LargeBinary, String, Table, Text, text

from loom_worker.store.table_parts import JSON_OR_NULL, METADATA

_DUE = text("due_ms IS NOT NULL")

memory = Table(
    "memory",
    METADATA,
    Column("lane", ForeignKey("sessions.lane", ondelete="CASCADE"), primary_key=True),
    Column("version", Integer, nullable=False, server_default="0"),
    Column("first_n", BigInteger, nullable=False, server_default="0"),
    Column("l2_text", Text, nullable=False, server_default=""),
    Column("l2_from_n", BigInteger, nullable=False, server_default="0"),
    Column("dated_n", BigInteger, nullable=False, server_default="0"),
    Column("schemas", JSON_OR_NULL),
    Column("refs", JSON_OR_NULL),
    Column("promoted", JSON_OR_NULL),
    Column("changes", JSON_OR_NULL),
    Column("due_ms", BigInteger),  # since when L1 is to be compressed; null when it is not
    Column("held_by", String(64)),  # the worker that compresses it
    Column("held_ms", BigInteger),
    Index("memory_due", "due_ms", sqlite_where=_DUE, postgresql_where=_DUE),
)

memory_snapshots = Table(
    "memory_snapshots",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("lane", ForeignKey("sessions.lane", ondelete="CASCADE"), nullable=False),
    Column("session_id", String(128), nullable=False),
    Column("snapshot_type", String(16), nullable=False),
    Column("content", Text, nullable=False),
    Column("token_count", Integer, nullable=False),
    Column("from_n", BigInteger, nullable=False),
    Column("to_n", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Index("memory_snapshots_by_session", "lane", "id"),
)

dated_summaries = Table(
    "dated_summaries",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("lane", ForeignKey("sessions.lane", ondelete="CASCADE"), nullable=False),
    Column("session_id", String(128), nullable=False),
    Column("content", Text, nullable=False),
    Column("by_model", String(128), nullable=False),  # that wrote it, or heuristic
    Column("token_count", Integer, nullable=False),
    Column("messages", Integer, nullable=False),
    *(Column(name, BigInteger, nullable=False) for name in ("from_n", "to_n", "from_ms", "to_ms", "created_ms")),
    Index("dated_summaries_by_session", "lane", "from_ms"),
)

facts = Table(
    "facts",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("workspace", String(64), nullable=False),
    Column("owner", String(300), nullable=False),  # Owner.key
    Column("user", String(256)),  # in whose session it was said
    Column("lane", String(40)),  # of the session in which it was first said; null: that is deleted
    Column("session_id", String(128)),
    Column("message_id", String(40)),
    Column("subject", String(200), nullable=False),
    Column("relation", String(100), nullable=False),
    Column("object", Text, nullable=False),
    Column("subject_key", String(200), nullable=False),  # text_key of the subject
    Column("words", Text, nullable=False),  # by which it is found, each between spaces
    Column("since_ms", BigInteger, nullable=False),
    Column("until_ms", BigInteger),
    Column("superseded_by", String(40)),
    Column("confidence", Float, nullable=False),
    Column("source", String(16), nullable=False),
    Column("seen_ms", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Index("facts_by_subject", "workspace", "owner", "subject_key"),
    Index("facts_by_user", "workspace", "user", "id"),
)

fact_sources = Table(  # the sessions in which a fact was said: with the last of them it goes
    "fact_sources",
    METADATA,
    Column("fact_id", ForeignKey("facts.id", ondelete="CASCADE"), primary_key=True),
    Column("lane", String(40), primary_key=True),
    Column("n", BigInteger, nullable=False),  # number of the last message there that says so
    Index("fact_sources_by_session", "lane", "n"),
)

forgotten_facts = Table(  # what a person deleted or corrected: what was said before does not bring it back
    "forgotten_facts",
    METADATA,
    Column("workspace", String(64), primary_key=True),
    Column("owner", String(300), primary_key=True),
    Column("digest", String(64), primary_key=True),  # Fact.digest: the fact itself is not kept
    Column("user", String(256)),
    Column("until_ms", BigInteger, nullable=False),
)

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
