"""The tables of workspaces: rules, API keys, who is who in channels, what is spent, and how many turns wait."""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, String, Table, Text

from loom_worker.store.table_parts import JSON_OR_NULL, METADATA

api_keys = Table(
    "api_keys",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("workspace", String(64), nullable=False),
    Column("name", String(128), nullable=False),
    Column("hash", String(64), nullable=False),  # of the secret, which is stored nowhere
    Column("prefix", String(16), nullable=False),
    Column("scopes", JSON_OR_NULL, nullable=False),
    Column("user", Text),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
    Column("revoked_ms", BigInteger),
    Column("rotated_from", String(40)),
    Column("last_used_ms", BigInteger),
    Column("requests_per_minute", Integer),  # null: as the settings say
    Column("tokens_per_minute", Integer),
    Index("api_keys_by_hash", "hash", unique=True),
    Index("api_keys_by_workspace", "workspace", "id"),
)

session_tokens = Table(
    "session_tokens",
    METADATA,
    Column("hash", String(64), primary_key=True),
    # The session gives workspace and user.
    Column("lane", String(40), ForeignKey("sessions.lane", ondelete="CASCADE"), nullable=False),
    Column("made_by", String(40), nullable=False),  # the key, with which the token ends; also local and env_…
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Index("session_tokens_by_lane", "lane"),
)

spending = Table(
    "spending",
    METADATA,
    Column("level", String(16), primary_key=True),  # turn, session, agent, workspace
    Column("key", String(128), primary_key=True),  # the turn's id, the session's lane, the agent, the workspace
    Column("window", String(16), primary_key=True),  # 2026-11-24 or 2026-11 in UTC; empty: for good
    Column("nano_usd", BigInteger, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("tool_calls", BigInteger, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
)
"""What is spent or set aside, for each account that a budget has once limited."""

reservations = Table(
    "reservations",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("held", JSON_OR_NULL, nullable=False),  # values/budgets.py: Reservation
)
"""What calls under way have set aside; a row goes when its call is settled."""

workspaces = Table(
    "workspaces",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("rules", JSON_OR_NULL, nullable=False),  # what an administrator has set, as PATCH takes it
    Column("is_disabled", Boolean, nullable=False, server_default="0"),
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
)
"""Workspaces for which something was ever set; the others have no row."""

workspace_depths = Table(
    "workspace_depths",
    METADATA,
    Column("workspace", String(64), primary_key=True),
    Column("turns", Integer, nullable=False),
    Column("lanes", Integer, nullable=False),  # sessions that have such turns
    sqlite_with_rowid=False,  # one tree to look through instead of two
)
"""Unfinished turns of each workspace that ever had one; triggers on turns keep it (0017_depths.sql)."""

guard_actions = Table(
    "guard_actions",
    METADATA,
    Column("workspace", String(64), primary_key=True),
    Column("name", String(32), primary_key=True),  # stage and kind, such as input.card
    Column("action", String(16), primary_key=True),
    Column("times", Integer, nullable=False),
)
"""How often guardrails did what; figures that outlive the rows of the audit."""

pairings = Table(
    "pairings",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("workspace", String(64), nullable=False),
    Column("channel", String(128), nullable=False),
    Column("identity", String(256), nullable=False),
    Column("user", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Index("pairings_by_identity", "workspace", "channel", "identity", unique=True),
    Index("pairings_by_workspace", "workspace", "id"),
)
