"""The tables of messages between agents and of learned layers, which belong to the same schema as ``schema``'s."""

from typing import Any

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, Integer, String, Table, Text, text

from loom_worker.store.table_parts import JSON_OR_NULL, METADATA

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
