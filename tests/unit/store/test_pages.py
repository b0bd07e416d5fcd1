"""Lists: walked page by page nothing is missing, nothing comes twice, and nobody sees another workspace."""

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from loom_worker.core.errors import Invalid, NotFound
from loom_worker.core.values.chat import ChatMessage, ToolOutcome, ToolUse
from loom_worker.core.values.pages import PAGE_BYTES, Page
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.turns import Ending
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.journal import Entries, Journal
from loom_worker.store.messages import Messages
from loom_worker.store.outbox import Outbox
from loom_worker.store.schema import turns
from loom_worker.store.sessions import Sessions
from loom_worker.store.turns import Turns
from tests.unit.store.made import NOW_MS, PROGRESS, WORKSPACE, call, delivery, final, message, running, submitted


def walk(turn_page: Callable[..., Page[Any]], limit: int) -> list[str]:
    """The ids of all items, in pages of that size."""
    ids: list[str] = []
    after = None
    for _ in range(100):
        page = turn_page(limit=limit, after=after)
        assert len(page.items) <= limit
        ids += [item.id for item in page.items]
        if page.next is None:
            return ids
        assert page.items, "a cursor behind an empty page"
        after = page.next
    raise AssertionError("the list has no end")


@pytest.mark.parametrize("limit", [1, 3, 7, 8])
def test_sessions_made_in_one_millisecond_are_listed_once_each(database: Database, limit: int) -> None:
    sessions = Sessions(database)
    for number in range(7):
        sessions.create(WORKSPACE, NewSession(id=f"s{number}"), now_ms=NOW_MS + number // 3)
    sessions.create("other", NewSession(id="s9"), now_ms=NOW_MS)
    found = walk(lambda **page: sessions.page(WORKSPACE, **page), limit)
    assert found == ["s6", "s5", "s4", "s3", "s2", "s1", "s0"]


@pytest.mark.parametrize("limit", [1, 3, 7])
def test_turns_are_listed_once_each_the_newest_first(database: Database, limit: int) -> None:
    made = [submitted(database, f"s{number % 2}").id for number in range(7)]
    submitted(database, workspace="other")
    turns = Turns(database)
    assert walk(lambda **page: turns.page(WORKSPACE, {}, **page), limit) == sorted(made, reverse=True)
    one = walk(lambda **page: turns.page(WORKSPACE, {"session_id": "s1"}, **page), limit)
    assert one == sorted(made[1::2], reverse=True)


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_messages_are_listed_once_each_the_oldest_first(database: Database, limit: int) -> None:
    claim = running(database)
    Journal(database).finish(claim, final(said=tuple(message(9 - number, claim) for number in range(5))))
    other = running(database, "s2")
    Journal(database).finish(other, final(said=(message(100, other),)))
    messages = Messages(database)
    found = walk(lambda **page: messages.page(WORKSPACE, "s1", **page), limit)
    assert found == [f"msg_{number:04}" for number in (9, 8, 7, 6, 5)]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_deliveries_are_listed_once_each_the_newest_first(database: Database, limit: int) -> None:
    for number in range(3):
        claim = running(database)
        Journal(database).finish(claim, final(delivery=delivery(number, claim)))
    found = walk(lambda **page: Outbox(database).page(WORKSPACE, **page), limit)
    assert found == ["whd_0002", "whd_0001", "whd_0000"]
    assert Outbox(database).page("other", limit=9, after=None).items == ()


def test_the_statistics_count_unfinished_turns_of_the_workspace(database: Database) -> None:
    Journal(database).finish(running(database, "done"), final())
    running(database, "busy")
    submitted(database, "busy")
    submitted(database, "waiting")
    submitted(database, workspace="other")
    stats = Turns(database).stats(WORKSPACE, now_ms=NOW_MS + 1500)
    assert stats == {"lanes": 2, "queued": 2, "running": 1, "waiting": 0, "oldest_queued_age_s": 1.5, "dead": 0}
    assert Turns(database).stats("nobody", now_ms=NOW_MS)["oldest_queued_age_s"] is None


def test_a_page_of_sessions_goes_on_though_the_last_one_seen_is_deleted(database: Database) -> None:
    sessions = Sessions(database)
    for name in "abcd":
        sessions.create(WORKSPACE, NewSession(id=name), now_ms=NOW_MS)
    first = sessions.page(WORKSPACE, limit=2, after=None)
    sessions.delete(WORKSPACE, first.items[-1].id)
    rest = sessions.page(WORKSPACE, limit=2, after=first.next)
    assert [session.id for session in (*first.items, *rest.items)] == list("dcba")
    assert rest.next is None


def test_what_is_no_cursor_is_refused_and_not_taken_for_the_beginning(database: Database) -> None:
    submitted(database)
    asks: tuple[Callable[[], object], ...] = (
        lambda: Turns(database).page(WORKSPACE, {}, limit=2, after="zzz"),
        lambda: Outbox(database).page(WORKSPACE, limit=2, after="turn_1"),
        lambda: Sessions(database).page(WORKSPACE, limit=2, after="zzz"),
        lambda: Sessions(database).page(WORKSPACE, limit=2, after="\u0661:s1"),
        lambda: Messages(database).page(WORKSPACE, "s1", limit=2, after="msg_none"),
    )
    for ask in asks:
        with pytest.raises(Invalid, match="no cursor") as refused:
            ask()
        assert [flaw.pointer for flaw in refused.value.flaws] == ["/after"]


LARGE = 1_000_000


def large_turns(database: Database, number: int) -> list[str]:
    """Turns whose question and answer have a megabyte each, with a call whose arguments have as much."""
    ids = []
    for n in range(number):
        claim = running(database, f"s{n}")
        asked = replace(call(0), arguments={"q": "c" * LARGE, "n": n}, content="r" * LARGE, status="completed")
        Journal(database).save(claim, Entries((), (asked,)), PROGRESS)
        text = "é" * (LARGE // 2)
        Journal(database).finish(claim, final(ending=Ending("completed", output_text=text)))
        ids.append(claim.turn.id)
    with database.write(lock=WHOLE) as tx:
        tx.execute(turns.update().values(input="i" * LARGE))
    return ids


@pytest.mark.heavy
def test_a_page_of_large_turns_is_small_and_none_is_left_out(database: Database) -> None:
    made = large_turns(database, 12)
    turns = Turns(database)
    tracemalloc.start()
    page = turns.page(WORKSPACE, {}, limit=500, after=None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 4 * LARGE, "one row is in memory at a time"
    shown = [turn.as_json() for turn in page.items]
    assert len(json.dumps(shown, ensure_ascii=False).encode()) <= PAGE_BYTES + 1_000
    assert all((one["truncated"], one["url"]) == (True, f"/v1/turns/{one['id']}") for one in shown)
    assert all(one["input"].startswith("iii") and one["output_text"].startswith("éé") for one in shown)
    assert [one["tool_calls"][0]["arguments"]["n"] for one in shown] == list(range(11, 11 - len(shown), -1))
    assert walk(lambda **page: turns.page(WORKSPACE, {}, **page), 500) == sorted(made, reverse=True)
    whole = turns.get(WORKSPACE, made[0]).as_json()
    assert "truncated" not in whole
    assert (len(whole["input"]), len(whole["output_text"])) == (LARGE, LARGE // 2)


def test_a_page_ends_before_the_item_that_would_make_it_too_large(database: Database) -> None:
    """160 messages of 15 kB, none of which is cut."""
    claim = running(database, "s1")
    said = tuple(message(n, claim, chat=ChatMessage("user", text="x" * 15_000)) for n in range(160))
    Journal(database).finish(claim, final(said=said))
    messages = Messages(database)
    page = messages.page(WORKSPACE, "s1", limit=500, after=None)
    size = len(json.dumps([one.as_json() for one in page.items]).encode())
    assert PAGE_BYTES - 20_000 < size <= PAGE_BYTES
    assert page.next == page.items[-1].id
    assert not any("truncated" in one.as_json() for one in page.items)
    found = walk(lambda **page: messages.page(WORKSPACE, "s1", **page), 500)
    assert found == [one.id for one in said]


def test_a_message_that_is_cut_in_a_list_is_whole_by_itself(database: Database) -> None:
    claim = running(database, "s1")
    results = tuple(ToolOutcome(f"c{n}", "t", "r" * 20_000) for n in range(80))
    uses = tuple(ToolUse(f"c{n}", "t", {"q": "a" * 20_000}) for n in range(80))
    chats = (
        ChatMessage("assistant", text="t" * LARGE, tool_uses=uses),
        ChatMessage("tool", outcomes=results),
    )
    said = tuple(replace(message(n, claim), chat=chat) for n, chat in enumerate(chats))
    Journal(database).finish(claim, final(said=said))
    messages = Messages(database)
    listed = messages.page(WORKSPACE, "s1", limit=9, after=None).items
    for one, kept in zip(listed, said, strict=True):
        shown = one.as_json()
        assert shown["truncated"] is True
        assert shown["url"] == f"/v1/sessions/s1/messages/{kept.id}"
        assert len(json.dumps(shown).encode()) < 80_000
        whole = messages.get(WORKSPACE, "s1", kept.id)
        assert whole.chat.outcomes == kept.chat.outcomes
        assert (whole.chat.text, whole.chat.tool_uses) == (kept.chat.text, kept.chat.tool_uses)
    others = (("other", "s1", said[0].id), (WORKSPACE, "s2", said[0].id), (WORKSPACE, "s1", "x"))
    for workspace, session, message_id in others:
        with pytest.raises(NotFound):
            messages.get(workspace, session, message_id)


def test_sessions_with_much_to_keep_in_mind_are_cut_too(database: Database) -> None:
    sessions = Sessions(database)
    for n in range(20):
        sessions.create(WORKSPACE, NewSession(id=f"s{n}", metadata={"note": "m" * LARGE, "n": n}), now_ms=NOW_MS + n)
    page = sessions.page(WORKSPACE, limit=500, after=None)
    assert [one.metadata["n"] for one in page.items] == list(range(19, -1, -1))
    assert all(one.as_json()["url"] == f"/v1/sessions/{one.id}" for one in page.items)
    assert len(json.dumps([one.as_json() for one in page.items])) < PAGE_BYTES
    assert "truncated" not in sessions.get(WORKSPACE, "s1").as_json()
