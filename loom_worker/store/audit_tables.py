"""The tables of the audit and of deletions of users, which belong to the same schema as those of ``schema``."""

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table, Text

from loom_worker.store.table_parts import METADATA

audit = Table(  # triggers refuse to change a row, or to remove one that is not marked as pruned (0011_audit.sql)
    "audit",
    METADATA,
    Column("workspace", String(64), primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("action", String(32), nullable=False),
    Column("key_id", String(40)),
    *(Column(name, Text) for name in ("user", "channel", "agent", "model", "session_id")),
    Column("turn_id", String(40)),
    *(Column(name, Text) for name in ("subject", "status", "reason", "tools", "decisions")),
    *(Column(name, BigInteger) for name in ("tokens", "cost_nano", "duration_ms")),
    Column("previous_hash", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    Index("audit_by_session", "workspace", "session_id", "seq"),
    Index("audit_by_turn", "workspace", "turn_id", "seq"),
    Index("audit_by_user", "workspace", "user", "seq"),
)

audit_chains = Table(
    "audit_chains",
    METADATA,
    Column("workspace", String(64), primary_key=True),
    Column("last_seq", Integer, nullable=False),
    Column("last_hash", String(64), nullable=False),
    Column("pruned_seq", Integer, nullable=False, server_default="0"),  # rows up to this one were removed with age
    Column("pruned_hash", String(64)),
)
"""Where each workspace's chain of audit rows begins and ends."""

user_deletions = Table(
    "user_deletions",
    METADATA,
    Column("workspace", String(64), primary_key=True),
    Column("user", Text, primary_key=True),
    Column("key_id", String(40), nullable=False),
    Column("sessions", Integer, nullable=False, server_default="0"),
    Column("turns", Integer, nullable=False, server_default="0"),
    Column("keys", Integer, nullable=False),
    Column("asked_ms", BigInteger, nullable=False),
)
"""Users whose data is being deleted; a row goes with the last of their sessions."""
