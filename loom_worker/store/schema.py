"""The tables. Rows of conversation and journal are only ever appended; no history is rewritten."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    and_,
    case,
    func,
    literal_column,
    select,
)

from loom_worker.core.values.turns import UNFINISHED
from loom_worker.store.dialect import COUNTER
from loom_worker.store.tables import JSON_OR_NULL, METADATA, NOT_COMPLETED, where

VERSION = "0033"
"""The schema version this code reads and writes; the last file in migrations/versions."""

USABLE_FROM = "0033"
"""The oldest version of the code that works on a database of VERSION; the database keeps it.

A migration that older code can live with leaves it as it is, so that hosts are updated one after the other; any other
sets it to VERSION.
"""

DELETED = "/deleted"
"""The workspace of a deleted session whose rows are still being removed; no key can name it, for the slash."""

metadata = METADATA
"""All tables: those of this module and of ``tables``."""

_OF_USER = where("user IS NOT NULL")
_BY_KEY = where("key_id IS NOT NULL")
_UNFINISHED = "status IN ('queued', 'in_progress', 'requires_action')"
_DEAD = where("status = 'failed' AND reason = 'dead'")
_LEARNED = where("learned_version IS NOT NULL")
_CHILD = where("parent_turn_id IS NOT NULL")
_AWAITING = where("awaits IS NOT NULL AND status = 'running'")

sessions = Table(
    "sessions",
    metadata,
    Column("lane", String(40), primary_key=True),  # unguessable; names are only unique in their workspace
    Column("workspace", String(64), nullable=False),
    Column("id", String(128), nullable=False),
    Column("agent", String(128), nullable=False),
    Column("status", String(16), nullable=False),
    Column("user", Text),
    Column("title", Text),
    Column("metadata", JSON_OR_NULL, nullable=False),
    Column("kernel", JSON_OR_NULL, nullable=False),
    Column("model", String(128)),
    Column("budget", JSON_OR_NULL),
    Column("usage", JSON_OR_NULL, nullable=False),
    Column("tools", JSON_OR_NULL),
    Column("backend", Text),
    Column("rom", Text),
    Column("agent_version", String(64)),  # of its agent, which it keeps; ``rom`` comes from it
    Column("learned_version", Integer),  # as the first claim found it; 0: none, null: no turn was claimed
    Column("learned_part", JSON_OR_NULL),  # what of that version ``rom`` holds
    Column("token_correction", Float),  # the provider's tokens, by its latest reply, over our estimate
    Column("memory_seen", Integer, nullable=False, server_default="0"),  # version of memory last sent to readers
    Column("next_seq", Integer, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Column("queue_depth", Integer, nullable=False, server_default="0"),  # unfinished turns; triggers on turns keep it
    UniqueConstraint("workspace", "id"),
    Index("sessions_by_time", "workspace", "created_ms", "id"),
    Index("sessions_by_user", "workspace", "user", "created_ms", "id", **_OF_USER),
)

turns = Table(
    "turns",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("lane", ForeignKey("sessions.lane", ondelete="CASCADE"), nullable=False),
    Column("session_id", String(128), nullable=False),
    Column("workspace", String(64), nullable=False),
    Column("agent", String(128), nullable=False),
    Column("seq", Integer, nullable=False),
    Column("status", String(16), nullable=False),
    Column("reason", String(32)),
    Column("fence", Integer, nullable=False, server_default="0"),
    Column("deaths", Integer, nullable=False, server_default="0"),
    Column("held_by", String(64)),  # the worker that runs it; null when parked, released or finished
    Column("parked_until_ms", BigInteger),
    Column("cancel", String(16)),  # how a client asks it to end, while it has not ended
    Column("max_attempts", Integer, nullable=False),
    Column("input", Text, nullable=False),
    Column("output_text", Text),  # what was said before the answer, where that is a message; all of it where not
    Column("answer_id", String(40)),  # that message; read with turn_columns()
    Column("error", JSON_OR_NULL),
    Column("usage", JSON_OR_NULL, nullable=False),
    Column("patterns", JSON_OR_NULL, nullable=False),
    Column("metadata", JSON_OR_NULL, nullable=False),
    Column("budget", JSON_OR_NULL),
    Column("webhook_url", Text),
    Column("webhook_secret", Text),
    Column("webhook_form", Text),  # JSON of Webhook.form; null: as Loom has it
    Column("idempotency_key", String(255)),
    Column("fingerprint", String(64)),
    Column("deadline_ms", BigInteger),
    Column("traceparent", String(64)),
    Column("request_id", String(128)),
    Column("retry_of", String(40)),
    Column("created_ms", BigInteger, nullable=False),
    Column("started_ms", BigInteger),
    Column("completed_ms", BigInteger),
    Column("first_token_ms", Integer),
    Column("run_ms", Integer, nullable=False, server_default="0"),
    Column("key_id", String(40)),  # with which it was submitted
    Column("channel", JSON_OR_NULL),  # where the answer is read
    Column("output_parts", JSON_OR_NULL),  # the answer as messages of the channel
    Column("guard", JSON_OR_NULL),  # what was decided on the input
    Column("judge", JSON_OR_NULL),  # what judges made of the latest answer that all of them have looked at
    Column("claimed_us", BigInteger),  # when its owner, or its last one, took it
    Column("trace", JSON_OR_NULL),  # what its trace needs to know and no other column tells (values/traces.py)
    Column("run_id", String(40)),  # of the workflow's run that it is a stage of
    Column("parent_turn_id", String(40)),  # of the turn that waits for it
    Column("output_ref", JSON_OR_NULL),  # of a long answer that another agent is to read: {"ref", "preview"}
    Column("ancestors", JSON_OR_NULL),  # the turns that wait for it, that one last (values/children.py)
    Column("learned_version", Integer),  # of its session when it was claimed last
    Column("agent_version", String(64)),  # of the agent that ran it; null before it has run
    Column("model", String(128)),  # likewise
    Column("user", Text),  # of the session when it was accepted
    Column("said_ms", BigInteger),  # the date that a client gave it
    Column("response_format", JSON_OR_NULL),  # the form of its answer (values/turns.py)
    Column("parts", JSON_OR_NULL),  # of what the user says, if it is more than a text (values/media.py)
    UniqueConstraint("lane", "seq"),
    Index("turns_unfinished", "lane", "seq", **where(_UNFINISHED)),
    Index("turns_open_by_status", *("status", "workspace", "created_ms"), **NOT_COMPLETED),
    Index("turns_dead", "workspace", **_DEAD),
    Index("turns_open_by_key", "key_id", **where(f"key_id IS NOT NULL AND {_UNFINISHED}")),
    Index("turns_by_workspace", "workspace", "id"),
    Index("turns_by_key", "workspace", "idempotency_key", unique=True),
    Index("turns_by_learned", *("workspace", "agent", "learned_version", "id"), **_LEARNED),
    Index("turns_by_parent", "parent_turn_id", **_CHILD),
)

steps = Table(
    "steps",
    metadata,
    Column("turn_id", ForeignKey("turns.id", ondelete="CASCADE"), primary_key=True),
    Column("n", Integer, primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("version", Integer, nullable=False),
    Column("payload", JSON_OR_NULL, nullable=False),
)

calls = Table(
    "calls",
    metadata,
    Column("turn_id", ForeignKey("turns.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("id", String(128), nullable=False),
    Column("reply_n", Integer, nullable=False),
    Column("name", String(128), nullable=False),
    Column("arguments", JSON_OR_NULL, nullable=False),
    Column("status", String(16), nullable=False),
    Column("sends", Integer, nullable=False),
    Column("sent_ms", BigInteger),
    Column("worker", String(64)),
    Column("started_ms", BigInteger),
    Column("finished_ms", BigInteger),
    Column("content", Text),
    Column("error_id", String(40)),
    Column("ref", String(40)),
    Column("approval", String(16)),
    Column("approve_by_ms", BigInteger),
    Column("guard", JSON_OR_NULL),  # what was decided on the result
    Column("trace", JSON_OR_NULL),  # as of a turn
    Column("awaits", String(16)),  # what other than a tool gives its result: a turn, or messages
    Column("child_turn_id", String(40)),  # that turn
    Column("wait_until_ms", BigInteger),  # its result is no longer waited for from then on
    Column("media", JSON_OR_NULL),  # images in the result
    Index("calls_awaiting", "turn_id", **_AWAITING),
)

verdicts = Table(  # one judge on one answer; of no use once the turn has ended
    "verdicts",
    metadata,
    Column("turn_id", ForeignKey("turns.id", ondelete="CASCADE"), primary_key=True),
    Column("reply_n", Integer, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("name", String(64), nullable=False),
    Column("type", String(16), nullable=False),
    Column("weight", Float, nullable=False),
    Column("criticality", String(16), nullable=False),
    Column("status", String(16), nullable=False),
    *(Column(name, Integer, nullable=False) for name in ("sends", "deaths")),
    Column("sent_ms", BigInteger, nullable=False),
    Column("worker", String(64)),
    Column("started_ms", BigInteger),
    Column("finished_ms", BigInteger),
    Column("score", Float),
    Column("critique", Text),
    Column("error", Text),
    Column("model", String(128)),
    Column("usage", JSON_OR_NULL, nullable=False),
)

messages = Table(
    "messages",
    metadata,
    Column("n", COUNTER, primary_key=True, autoincrement=True),
    Column("id", String(40), nullable=False, unique=True),
    Column("lane", ForeignKey("sessions.lane", ondelete="CASCADE"), nullable=False),
    Column("session_id", String(128), nullable=False),
    Column("turn_id", String(40), nullable=False),
    Column("role", String(16), nullable=False),
    Column("content", Text, nullable=False),
    Column("context", Text, nullable=False),
    Column("tool_calls_json", JSON_OR_NULL),
    Column("tool_use_id", Text),
    Column("tool_result_json", JSON_OR_NULL),
    Column("opaque_json", JSON_OR_NULL),
    Column("grams", Text),  # what search needs of text without spaces (Chinese, Japanese, Korean), else null
    Column("token_count", Integer, nullable=False),
    Column("cost_usd", Float),
    Column("usage", JSON_OR_NULL),
    Column("created_ms", BigInteger, nullable=False),
    Column("media_json", JSON_OR_NULL),  # images and PDFs in it
    Index("messages_by_session", "lane", "n"),
)

agent_errors = Table(
    "agent_errors",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("lane", String(40), nullable=False),
    Column("workspace", String(64), nullable=False),
    Column("session_id", String(128), nullable=False),
    Column("turn_id", String(40), nullable=False),
    Column("tool_name", String(128), nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("short_summary", Text, nullable=False),
    Column("raw_error", JSON_OR_NULL, nullable=False),
    Column("span_id", String(16)),
    Index("agent_errors_by_time", "workspace", "at_ms"),
    Index("agent_errors_by_session", "lane", "at_ms"),
    Index("agent_errors_by_tool", "workspace", "tool_name", "at_ms"),
    Index("agent_errors_by_age", "at_ms"),
)

shared_memory = Table(
    "shared_memory",
    metadata,
    # Each part is a column of its own: a key can hold whatever it likes and is still no other's.
    Column("workspace", String(64), primary_key=True),
    Column("namespace", String(16), primary_key=True),
    Column("owner", String(128), primary_key=True),  # agent, workflow or swarm; empty for GLOBAL
    Column("key", String(256), primary_key=True),
    Column("value", JSON_OR_NULL),
    Column("is_deleted", Boolean, nullable=False, server_default="0"),  # kept for those who watch
    Column("version", Integer, nullable=False),  # of the key: 1, 2, 3…
    Column("revision", BigInteger, nullable=False),  # of the owner's whole namespace: what watchers count by
    Column("updated_by", String(128), nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Index("shared_memory_by_revision", "workspace", "namespace", "owner", "revision"),
)

outbox = Table(
    "outbox",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("workspace", String(64), nullable=False),
    Column("turn_id", ForeignKey("turns.id", ondelete="CASCADE"), nullable=False),
    *(Column(name, Text, nullable=name == "secret") for name in ("url", "secret", "body")),
    Column("status", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_ms", BigInteger),
    Column("last_status", Integer),
    Column("last_error", Text),
    Column("created_ms", BigInteger, nullable=False),
    Column("delivered_ms", BigInteger),
    Column("trace_id", String(32)),
    Column("run_id", String(40)),  # whose end it reports; turn_id is then the turn that ended it
    Column("headers", JSON_OR_NULL),
    Index("outbox_due", "next_ms", **where("status = 'pending'")),
    Index("outbox_by_workspace", "workspace", "id"),
    Index("outbox_by_turn", "turn_id"),  # without it every turn that is deleted costs a look at all deliveries
)

usage = Table(
    "usage",
    metadata,
    Column("n", COUNTER, primary_key=True, autoincrement=True),
    Column("workspace", String(64), nullable=False),
    Column("session_id", String(128), nullable=False),
    Column("user", Text),  # of the session, which may be deleted by now
    Column("turn_id", String(40), nullable=False),
    Column("agent", String(128), nullable=False),
    Column("model", String(128), nullable=False),
    *(Column(name, Integer, nullable=False) for name in ("input_tokens", "output_tokens")),
    *(Column(name, Integer, nullable=False) for name in ("cache_read_tokens", "cache_write_tokens", "llm_calls")),
    Column("at_ms", BigInteger, nullable=False),
    Column("kind", String(16), nullable=False, server_default="turn"),  # what for: turn, summary, rerank…
    Column("tool_calls", Integer, nullable=False, server_default="0"),
    Column("cost_nano", BigInteger),  # billionths of a USD, so that sums are exact; null: no price is known
    Column("key_id", String(40)),  # with which the turn was submitted
    Column("run_id", String(40)),  # of the turn; of what no turn asked for: of the latest turn of its session
    Column("workflow", String(64)),  # of that run, which may be deleted by now
    Index("usage_by_workspace", "workspace", "at_ms"),
    Index("usage_by_time", "at_ms"),
    Index("usage_by_user", "workspace", "user", "at_ms", **_OF_USER),
    Index("usage_by_key", "key_id", "at_ms", **_BY_KEY),
)

pattern_uses = Table(
    "pattern_uses",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("pattern_id", String(255), primary_key=True),
    Column("digest", String(16), primary_key=True),
    Column("uses", Integer, nullable=False),
    Column("succeeded", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("cost_usd", Float, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("last_ms", BigInteger, nullable=False),
)
"""What came of turns that used a pattern: sums by the pattern's text, which outlive the turns."""

use_deltas = Table(
    "use_deltas",
    metadata,
    Column("n", COUNTER, primary_key=True, autoincrement=True),
    *(Column(each.name, each.type, nullable=False) for each in pattern_uses.c),
)
"""What ended turns add to ``pattern_uses`` and is not folded yet."""

OWNS = (sessions.c.lane == turns.c.lane, sessions.c.workspace == turns.c.workspace)


def turn_columns(*, answer_chars: int | None = None) -> list[ColumnElement[Any]]:
    """The columns of a turn as readers know it: ``output_text`` ends with the message that holds the answer.

    Args:
        answer_chars: no more of the answer is read; None: all of it.
    """

    def cut(text: ColumnElement[Any]) -> ColumnElement[Any]:
        return text if answer_chars is None else func.substr(text, 1, answer_chars)

    answer = select(cut(messages.c.content)).where(messages.c.id == turns.c.answer_id).scalar_subquery()
    in_parts = func.coalesce(turns.c.output_text, "").concat(func.coalesce(answer, ""))
    text = cut(case((turns.c.answer_id.is_(None), turns.c.output_text), else_=in_parts))
    return [text.label("output_text") if column is turns.c.output_text else column for column in turns.c]


def answer_text() -> ColumnElement[Any]:
    """What a turn has answered, without what it said before its tool calls."""
    answer = select(messages.c.content).where(messages.c.id == turns.c.answer_id).scalar_subquery()
    return func.coalesce(answer, turns.c.output_text)


def kept() -> ColumnElement[bool]:
    """True of a turn unless its session is deleted and the turn only waits to be removed."""
    return select(sessions.c.lane).where(*OWNS).exists()


def kept_delivery() -> ColumnElement[bool]:
    """True of a delivery unless its session is deleted."""
    return select(turns.c.id).join(sessions, and_(*OWNS)).where(turns.c.id == outbox.c.turn_id).exists()


def unfinished() -> ColumnElement[bool]:
    """The condition of the partial indexes, in literals: with bound values SQLite would not use them."""
    return turns.c.status.in_([literal_column(f"'{status}'") for status in UNFINISHED])
