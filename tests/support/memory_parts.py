"""What the service in memory makes of its state; nothing here keeps any."""

import ipaddress
from collections.abc import Callable, Iterable
from typing import TypeVar
from urllib.parse import urlsplit

from loom_worker.core.errors import Flaw, Invalid
from loom_worker.core.values.chat import ChatMessage, Usage
from loom_worker.core.values.ids import new_id, now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Delivery
from loom_worker.core.values.pages import Page, no_cursor
from loom_worker.core.values.sessions import DEFAULT_AGENT, Message, NewSession, Session
from loom_worker.core.values.turns import NewTurn, Retry, Turn, Webhook

T = TypeVar("T")


def page_of(items: list[T], *, limit: int, after: str | None, id_of: Callable[[T], str]) -> Page[T]:
    """A page of a list whose cursors are ids."""
    ids = [id_of(item) for item in items]
    if after is not None and after not in ids:
        raise no_cursor(after)
    start = 0 if after is None else ids.index(after) + 1
    shown = tuple(items[start : start + limit])
    has_more = start + limit < len(items)
    return Page(shown, id_of(shown[-1]) if has_more else None)


def new_session(workspace: str, session_id: str, new: NewSession) -> Session:
    """A session as it is made."""
    return Session(
        lane=new_id("lane_"),
        id=session_id,
        workspace=workspace,
        agent=new.agent or DEFAULT_AGENT,
        status="active",
        created_ms=now_ms(),
        updated_ms=now_ms(),
        user=new.user,
        title=new.title,
        metadata=new.metadata,
        kernel=new.kernel,
        model=new.model,
        budget=new.budget,
    )


def queued_turn(session: Session, new: NewTurn, *, seq: int, position: int) -> Turn:
    """A turn as it is accepted."""
    return Turn(
        id=new_id("turn_"),
        lane=session.lane,
        session_id=session.id,
        workspace=session.workspace,
        agent=session.agent,
        seq=seq,
        status="queued",
        input=new.input,
        created_ms=now_ms(),
        metadata=new.metadata,
        webhook=new.webhook,
        budget=new.budget,
        request_id=new.request_id,
        trace_id=(new.traceparent or "-").split("-")[1],
        position=position,
        retry_of=new.retry_of,
    )


def asked_again(failed: Turn, wish: Retry) -> NewTurn:
    """A failed turn's question, to be run again."""
    return NewTurn(
        failed.input,
        webhook=failed.webhook,
        metadata=failed.metadata,
        budget=failed.budget,
        idempotency_key=wish.idempotency_key,
        fingerprint=wish.fingerprint,
        traceparent=wish.traceparent,
        request_id=wish.request_id,
        retry_of=failed.id,
    )


def refuse_private(webhook: Webhook) -> None:
    """Raise Invalid for what is not http or leads into this network."""
    host = urlsplit(webhook.url).hostname or ""
    is_private = host == "localhost" or (host[:1].isdigit() and ipaddress.ip_address(host).is_private)
    if not webhook.url.startswith(("http://", "https://")) or is_private:
        flaws = (Flaw("/webhook/url", "private or not http"),)
        raise Invalid("the webhook's target is refused", flaws, "webhook-url-refused")


def usage_rows(turns: Iterable[Turn], *, group_by: str) -> tuple[Json, ...]:
    """Sums over turns of one workspace."""
    sums: dict[str, tuple[Usage, int]] = {}
    for turn in turns:
        key = {"session": turn.session_id, "agent": turn.agent}.get(group_by, turn.workspace)
        usage, count = sums.get(key, (Usage(), 0))
        sums[key] = (usage + turn.usage, count + 1)
    return tuple({"key": key, "turns": count, **usage.as_json()} for key, (usage, count) in sums.items())


def stats_of(turns: list[Turn]) -> Json:
    """The queue of one workspace."""
    counts = {status: sum(turn.status == status for turn in turns) for status in ("queued", "in_progress")}
    lanes = len({turn.lane for turn in turns if not turn.is_finished})
    ages = {f"oldest_{name}": None for name in ("queued_age_s", "running_age_s", "waiting_age_s", "waiting_for")}
    rest = {"waiting": 0, **ages, "workers": 1, "dead": 0}
    return {"lanes": lanes, "queued": counts["queued"], "running": counts["in_progress"], **rest}


def metrics_of(turns: list[Turn] | None) -> Json:
    """Figures of all workspaces; None: the database does not answer."""
    told: Json = {"workers": 1, "breakers": {"tool:dice": "half-open"}, "known": {"turns": turns is not None}}
    if turns is None:
        return told
    memory = {"memory_changes": 5, "memory_snapshots": 2, "memory_due": 1, "memory_oldest_due_age_s": 1.5}
    asking = sum(turn.status == "requires_action" for turn in turns)
    kept = {"awaiting_approval": asking, "errors_last_hour": 0, "large_results": 0}
    return told | stats_of(turns) | memory | kept


def said_in(turn: Turn) -> tuple[Message, ...]:
    """The question and the answer of a turn."""
    said = (ChatMessage("user", turn.input), ChatMessage("assistant", turn.output_text or ""))
    return tuple(
        Message(
            id=new_id("msg_"),
            session_id=turn.session_id,
            turn_id=turn.id,
            chat=chat,
            token_count=3,
            created_ms=now_ms(),
            usage=turn.usage if chat.role == "assistant" else None,
        )
        for chat in said
    )


def dead_delivery(turn: Turn, webhook: Webhook) -> Delivery:
    """A delivery that nobody answered."""
    return Delivery(
        id=new_id("whd_"),
        workspace=turn.workspace,
        turn_id=turn.id,
        url=webhook.url,
        secret=webhook.secret,
        body="{}",
        status="dead",
        attempts=10,
        created_ms=now_ms(),
    )
