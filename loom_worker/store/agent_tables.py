"""The tables of messages between agents, which belong to the same schema as those of ``schema.py``."""

from typing import Any

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, String, Table, Text, text

from loom_worker.store.table_parts import METADATA

_OPEN: Any = dict.fromkeys(("sqlite_where", "postgresql_where"), text("ended_ms IS NULL"))

agent_messages = Table(
    "agent_messages",
    METADATA,
    Column("n", Integer, primary_key=True, autoincrement=True),  # the order in which they came
    Column("id", String(40), nullable=False, unique=True),
    Column("workspace", String(64), nullable=False),
    Column("scope", Text, nullable=False),  # who shares the queue: see scope_of (values/agent_messages.py)
    Column("user", Text),  # of the sender's session
    Column("to_agent", String(193), nullable=False),
    Column("from_agent", String(193), nullable=False),
    Column("from_session", String(128), nullable=False),
    Column("from_turn_id", String(40), nullable=False),
    Column("kind", String(24), nullable=False),
    Column("body", Text, nullable=False),
    Column("ref", String(40)),  # of the whole body, where ``body`` is but a preview of it
    Column("in_reply_to", String(40)),
    Column("status", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),  # how often it was taken
    Column("turn_id", String(40)),  # that took it last
    Column("call_id", String(128)),  # with this call
    Column("reason", String(32)),  # of a dead one
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger),
    Index("agent_messages_queued", "workspace", "to_agent", "scope", "n", **_OPEN),
    Index("agent_messages_taken", "turn_id", **_OPEN),
    Index("agent_messages_by_agent", "workspace", "to_agent", "n"),
    Index("agent_messages_by_workspace", "workspace", "n"),
    Index("agent_messages_by_status", "status", "workspace", "n"),
    Index("agent_messages_by_session", "workspace", "from_session"),
    Index("agent_messages_by_end", "ended_ms"),
)

agent_message_refs = Table(  # large results that a message passes on, as long as nobody has taken it
    "agent_message_refs",
    METADATA,
    Column("message_id", ForeignKey("agent_messages.id", ondelete="CASCADE"), primary_key=True),
    Column("ref", String(40), primary_key=True),
    Index("agent_message_refs_by_ref", "ref"),
)
