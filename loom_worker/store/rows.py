"""From rows to values; the only place that knows how a value lies in columns."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from loom_worker.core.values.calls import Call
from loom_worker.core.values.channels import Channel
from loom_worker.core.values.chat import ChatMessage, ToolOutcome, ToolUse, Usage
from loom_worker.core.values.children import Ancestor
from loom_worker.core.values.json import Json
from loom_worker.core.values.judges import Verdict
from loom_worker.core.values.media import InputPart, Media
from loom_worker.core.values.memory import Change, MemoryState, Snapshot
from loom_worker.core.values.notifications import Delivery
from loom_worker.core.values.sessions import DEFAULT_AGENT, Choice, Message, Session
from loom_worker.core.values.turns import Step, Turn
from loom_worker.core.values.webhooks import Webhook
from loom_worker.core.words import grams
from loom_worker.store.search_words import SEARCHED

Row = Mapping[Any, Any]

CHANGES = 10
"""So many of the latest changes of a session's memory are kept."""

_NOT_COLUMNS = {
    *(
        "usage",
        "patterns",
        "channel",
        "output_parts",
        "webhook",
        "trace_id",
        "calls",
        "position",
        "waiting",
        "ancestors",
        "parts",
    ),
    *("is_busy", "is_cut"),
}
CHOSEN = ("model", "tools", "backend", "agent_version")
"""What a session chose instead of its agent's own, and which version of the agent it keeps."""
_TURN_FIELDS = tuple(name for name in Turn.__slots__ if name not in _NOT_COLUMNS)
_SESSION_FIELDS = tuple(name for name in Session.__slots__ if name not in _NOT_COLUMNS)


def session(row: Row, *, is_busy: bool = False) -> Session:
    """A row of ``sessions``."""
    fields = {name: row[name] for name in _SESSION_FIELDS} | {
        "agent": row["agent"] or DEFAULT_AGENT,
        "tools": choice(row).tools,
    }
    return Session(**fields, usage=Usage.from_json(row["usage"]), is_busy=is_busy)


def choice(row: Row) -> Choice:
    """The columns of a session that say what it chose."""
    tools = row["tools"]
    return Choice(
        model=row["model"],
        tools=None if tools is None else tuple(tools),
        backend=row["backend"],
        version=row["agent_version"],
    )


def turn(row: Row, *, calls: Sequence[Call] = (), position: int = 0) -> Turn:
    """A row of ``turns``."""
    return Turn(
        **{name: row[name] for name in _TURN_FIELDS},
        usage=Usage.from_json(row["usage"]),
        patterns=tuple(row["patterns"]),
        channel=Channel(**row["channel"]) if row["channel"] else None,
        output_parts=None if row["output_parts"] is None else tuple(row["output_parts"]),
        webhook=webhook(row),
        trace_id=trace_id(row["traceparent"]),
        ancestors=Ancestor.of_rows(row["ancestors"]),
        calls=tuple(calls),
        position=position,
        parts=tuple(map(InputPart.of_row, row["parts"] or ())),
    )


def webhook(row: Row) -> Webhook | None:
    """The columns of a turn that say where its end is reported."""
    return Webhook.stored(row["webhook_url"], row["webhook_secret"], row["webhook_form"])


def webhook_columns(given: Webhook | None) -> Json:
    """The columns of ``turns`` for a webhook; None: there is none."""
    return {
        "webhook_url": given and given.url,
        "webhook_secret": given and given.secret,
        "webhook_form": given and given.form,
    }


def call(row: Row) -> Call:
    """A row of ``calls``."""
    return Call(**{name: row[name] for name in Call.__slots__})


def verdict(row: Row) -> Verdict:
    """A row of ``verdicts``."""
    known = {name: row[name] for name in Verdict.__slots__ if name != "usage"}
    return Verdict(**known, usage=Usage.from_json(row["usage"]))


def verdict_columns(given: Verdict) -> Json:
    """The columns of ``verdicts`` for a value, but for its turn."""
    return {**{name: getattr(given, name) for name in Verdict.__slots__}, "usage": given.usage.as_json()}


def step(row: Row) -> Step:
    """A row of ``steps``."""
    return Step(n=row["n"], kind=row["kind"], payload=row["payload"], version=row["version"])


def delivery(row: Row) -> Delivery:
    """A row of ``outbox``."""
    return Delivery(**{name: row[name] for name in Delivery.__slots__})


def message(row: Row) -> Message:
    """A row of ``messages``."""
    return Message(
        id=row["id"],
        session_id=row["session_id"],
        turn_id=row["turn_id"],
        chat=ChatMessage(
            role=row["role"],
            text=row["content"],
            context=row["context"],
            tool_uses=tuple(ToolUse(**use) for use in row["tool_calls_json"] or ()),
            outcomes=tuple(map(_outcome, row["tool_result_json"] or ())),
            opaque=tuple(row["opaque_json"] or ()),
            media=media(row["media_json"]),
        ),
        token_count=row["token_count"],
        created_ms=row["created_ms"],
        usage=Usage.from_json(row["usage"]) if row["usage"] else None,
        n=row["n"],
    )


def message_columns(said: Message, *, lane: str) -> Json:
    """The columns of ``messages`` for a value."""
    chat, usage = said.chat, said.usage.as_json() if said.usage else None
    return {
        "id": said.id,
        "lane": lane,
        "session_id": said.session_id,
        "turn_id": said.turn_id,
        "role": chat.role,
        "content": chat.text,
        "context": chat.context,
        "tool_calls_json": [use_json(use) for use in chat.tool_uses] or None,
        "tool_use_id": chat.outcomes[0].tool_use_id if chat.outcomes else None,
        "tool_result_json": [outcome_json(outcome) for outcome in chat.outcomes] or None,
        "opaque_json": list(chat.opaque) or None,
        "grams": grams("\n".join([chat.text, *(outcome.content[:SEARCHED] for outcome in chat.outcomes)])),
        "token_count": said.token_count,
        "cost_usd": usage["cost_usd"] if usage else None,
        "usage": usage,
        "created_ms": said.created_ms,
        "media_json": list(map(asdict, chat.media)) or None,
    }


def memory_state(row: Row) -> MemoryState:
    """A row of ``memory``."""
    return MemoryState(
        version=row["version"],
        first_n=row["first_n"],
        l2_text=row["l2_text"],
        l2_from_n=row["l2_from_n"],
        dated_n=row["dated_n"],
        schemas=tuple(row["schemas"] or ()),
        refs=tuple(row["refs"] or ()),
        promoted=tuple(row["promoted"] or ()),
        changes=tuple(Change(**change) for change in row["changes"] or ()),
    )


def memory_columns(state: MemoryState) -> Json:
    """The columns of ``memory`` for a value, but for its version, and what was promoted: both change on their own."""
    return {
        "first_n": state.first_n,
        "l2_text": state.l2_text,
        "l2_from_n": state.l2_from_n,
        "dated_n": state.dated_n,
        "schemas": list(state.schemas),
        "refs": list(state.refs),
        "changes": [{name: getattr(change, name) for name in Change.__slots__} for change in state.changes[-CHANGES:]],
    }


def snapshot(row: Row) -> Snapshot:
    """A row of ``memory_snapshots`` with the ids of its first and last message."""
    return Snapshot(**{name: row[name] for name in Snapshot.__slots__})


def use_json(use: ToolUse) -> Json:
    """A tool use as it is stored."""
    return {"id": use.id, "name": use.name, "arguments": use.arguments, "flaw": use.flaw}


def outcome_json(outcome: ToolOutcome) -> Json:
    """A tool outcome as it is stored."""
    known = {name: getattr(outcome, name) for name in ToolOutcome.__slots__ if name != "media"}
    return known | ({"media": list(map(asdict, outcome.media))} if outcome.media else {})


def _outcome(stored: Json) -> ToolOutcome:
    return ToolOutcome(**{**stored, "media": media(stored.get("media"))})


def media(stored: Sequence[Json] | None) -> tuple[Media, ...]:
    """Media as they are stored."""
    return tuple(Media(**each) for each in stored or ())


def trace_id(traceparent: str | None) -> str | None:
    """The 32 hex digits of a W3C ``traceparent``."""
    return traceparent.split("-")[1] if traceparent else None
