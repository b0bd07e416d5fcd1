"""The tables beside those of turns and sessions: of workspaces, the audit, memory, agents, runs, blobs and traces."""

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from loom_worker.store.dialect import COUNTER

METADATA = MetaData()
JSON_OR_NULL = JSON(none_as_null=True)


def where(condition: str) -> Any:
    """The arguments of an index that holds only the rows of which a condition is true."""
    # Unquoted, ``user`` is the current role on PostgreSQL; quoted, SQLite would store another text than it has.
    quoted = condition.replace("user ", '"user" ')
    return {"sqlite_where": text(condition), "postgresql_where": text(quoted)}


NOT_COMPLETED = where("completed_ms IS NULL")
_IS_DUE = where("due_ms IS NOT NULL")
_NOT_ENDED = where("ended_ms IS NULL")

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
"""Unfinished turns of each workspace that ever had one, but for those of ``depth_deltas``."""

depth_deltas = Table(
    "depth_deltas",
    METADATA,
    Column("workspace", String(64), primary_key=True),
    Column("n", COUNTER, primary_key=True, autoincrement=False),
    Column("turns", Integer, nullable=False),
    Column("lanes", Integer, nullable=False),
    sqlite_with_rowid=False,
)
"""By how much depths have changed since they were last folded; triggers on turns insert it (0033_folding.sql)."""

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
    Column("taken_n", BigInteger, nullable=False, server_default="0"),  # rows of the inbox up to it may leave
)
"""Where each workspace's chain of audit rows begins and ends."""

audit_inbox = Table(  # triggers refuse to change a row, or to remove one that is not in its chain (0033_folding.sql)
    "audit_inbox",
    METADATA,
    Column("n", COUNTER, primary_key=True, autoincrement=True),
    *(Column(c.name, c.type, nullable=c.nullable) for c in audit.c if c.name not in ("seq", "previous_hash", "hash")),
)
"""Rows of the audit that have no place in a chain yet, in the order in which they will get one."""

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
    Index("memory_due", "due_ms", **_IS_DUE),
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

agent_messages = Table(
    "agent_messages",
    METADATA,
    Column("n", COUNTER, primary_key=True, autoincrement=True),  # the order in which they came
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
    Index("agent_messages_queued", "workspace", "to_agent", "scope", "n", **_NOT_ENDED),
    Index("agent_messages_taken", "turn_id", **_NOT_ENDED),
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
    Index("workflow_runs_due", "due_ms", **_IS_DUE),
    Index("workflow_runs_open", "workflow", "workspace", **NOT_COMPLETED),
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

files = Table(
    "files",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("workspace", String(64), nullable=False),
    Column("user", Text),
    Column("name", Text, nullable=False),
    Column("content_type", String(64), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("checksum", String(64), nullable=False),
    *(Column(name, Integer, nullable=False) for name in ("width", "height", "pages")),
    Column("is_used", Boolean, nullable=False),  # a session had it, which may be deleted by now
    Column("session_id", String(128)),  # the first one
    Column("created_ms", BigInteger, nullable=False),
    Index("files_by_workspace", "workspace", "id"),
    Index("files_by_size", "workspace", "size_bytes"),  # each file that is kept asks for their sum
)

file_uses = Table(  # sessions whose messages hold a file: with the last of them it goes
    "file_uses",
    METADATA,
    Column("file_id", ForeignKey("files.id", ondelete="CASCADE"), primary_key=True),
    Column("lane", ForeignKey("sessions.lane", ondelete="CASCADE"), primary_key=True),
    Index("file_uses_by_session", "lane"),
)

spans = Table(  # what a turn's journal does not tell: webhook attempts, compressions, spans that tools make themselves
    "spans",
    METADATA,
    Column("n", COUNTER, primary_key=True, autoincrement=True),
    Column("turn_id", ForeignKey("turns.id", ondelete="CASCADE"), nullable=False),
    Column("added_ms", BigInteger, nullable=False),
    Column("body", JSON_OR_NULL, nullable=False),
    Index("spans_by_turn", "turn_id"),
)

trace_outbox = Table(  # what is still to be exported; empty unless there is somewhere to export to
    "trace_outbox",
    METADATA,
    Column("n", COUNTER, primary_key=True, autoincrement=True),
    # No foreign keys, for these would need indexes, and every turn's end would write three pages more instead of one;
    # an entry of a turn that is gone is taken and dropped.
    Column("turn_id", String(40), nullable=False),
    Column("span_n", COUNTER),  # of ``spans``; null: all spans that the turn's journal tells
    Column("added_ms", BigInteger, nullable=False),
    Column("held_until_ms", BigInteger, nullable=False, server_default="0"),  # an exporter has it until then
)

metric_values = Table(  # what was counted since this database was made, by all processes together
    "metric_values",
    METADATA,
    Column("series", Text, primary_key=True),  # name and labels
    Column("value", Float, nullable=False),
)
