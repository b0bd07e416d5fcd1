"""The tables of workflow runs and of schedules, which belong to the same schema as those of ``schema``."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from loom_worker.store.table_parts import JSON_OR_NULL, METADATA

_DUE: Any = dict.fromkeys(("sqlite_where", "postgresql_where"), text("due_ms IS NOT NULL"))
_OPEN: Any = dict.fromkeys(("sqlite_where", "postgresql_where"), text("completed_ms IS NULL"))

workflow_runs = Table(
    "workflow_runs",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("workspace", String(64), nullable=False),
    Column("user", Text),
    Column("key_id", String(40)),  # with which it was submitted
    Column("workflow", String(64), nullable=False),
    Column("workflow_version", String(64)),
    Column("pattern_type", String(16), nullable=False),
    Column("spec", JSON_OR_NULL, nullable=False),  # of the workflow as it was when the run was accepted
    Column("variables", JSON_OR_NULL, nullable=False),
    Column("status", String(16), nullable=False),
    Column("reason", String(32)),
    Column("cancel", String(16)),
    Column("merged_output", Text),
    Column("error", JSON_OR_NULL),
    Column("failed_stage", Text),
    Column("budget", JSON_OR_NULL),
    Column("deadline_ms", BigInteger),
    Column("webhook_url", Text),
    Column("webhook_secret", Text),
    Column("metadata", JSON_OR_NULL, nullable=False),
    Column("idempotency_key", String(255)),
    Column("fingerprint", String(64)),
    Column("traceparent", String(64)),
    Column("trace", JSON_OR_NULL),
    Column("request_id", String(128)),
    Column("retry_of", String(40)),
    Column("events", Integer, nullable=False, server_default="0"),  # how many its log has
    Column("due_ms", BigInteger),  # from when on it is to be looked at; triggers on turns set it (0018_runs.sql)
    Column("created_ms", BigInteger, nullable=False),
    Column("completed_ms", BigInteger),
    Index("workflow_runs_due", "due_ms", **_DUE),
    Index("workflow_runs_open", "workflow", "workspace", **_OPEN),
    Index("workflow_runs_by_workspace", "workspace", "id"),
    Index("workflow_runs_by_key", "workspace", "idempotency_key", unique=True),
)

run_stages = Table(  # a run's journal: what was asked, and what came of it
    "run_stages",
    METADATA,
    Column("run_id", ForeignKey("workflow_runs.id", ondelete="CASCADE"), primary_key=True),
    Column("n", Integer, primary_key=True),
    Column("key", String(128), nullable=False),
    Column("role", String(16), nullable=False),
    Column("name", String(128)),
    Column("agent_id", String(193), nullable=False),
    Column("conversation", String(128), nullable=False),
    Column("session_id", String(128)),
    Column("turn_id", String(40)),  # no foreign key: the turn may go before the run
    Column("is_reused", Boolean, nullable=False, server_default="0"),
    Column("status", String(16), nullable=False),
    Column("reason", String(32)),
    Column("prompt", Text),
    Column("output_text", Text),
    Column("output_ref", JSON_OR_NULL),  # as of its turn
    Column("error", JSON_OR_NULL),
    Column("usage", JSON_OR_NULL, nullable=False),
    Column("decision", String(16)),
    Column("comment", Text),
    Column("approve_by_ms", BigInteger),
    Column("on_timeout", String(16)),
    Column("created_ms", BigInteger, nullable=False),
    Column("completed_ms", BigInteger),
    UniqueConstraint("run_id", "key"),
)

run_events = Table(
    "run_events",
    METADATA,
    Column("run_id", ForeignKey("workflow_runs.id", ondelete="CASCADE"), primary_key=True),
    Column("n", Integer, primary_key=True),
    Column("type", String(32), nullable=False),
    Column("data", JSON_OR_NULL, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
)

schedules = Table(  # what is known of each; what it is, its file says
    "schedules",
    METADATA,
    Column("name", String(255), primary_key=True),
    Column("plan", Text, nullable=False),  # for which the cursor holds
    Column("cursor_ms", BigInteger, nullable=False),  # due times up to this one are dealt with
    Column("enabled", Boolean),  # the operator's word
    Column("last_ms", BigInteger),  # the due time that was last begun
    Column("last_id", String(40)),  # the run or turn that was last begun; it may be gone
    Column("error", Text),
    Column("error_ms", BigInteger),
    Column("skipped", Integer, nullable=False, server_default="0"),
    Column("missed", Integer, nullable=False, server_default="0"),
)
