import pytest

from loom_worker.core.errors import Conflict, NotFound, ToolFailed
from loom_worker.core.values.json import Json
from loom_worker.core.values.sessions import NewSession, SessionPatch
from loom_worker.core.values.turns import Step
from loom_worker.store.database import Database
from loom_worker.store.journal import Entries, Journal
from loom_worker.store.sessions import Deleted, Sessions
from loom_worker.store.turns import Turns
from tests.unit.store.made import (
    NOW_MS,
    PROGRESS,
    WORKSPACE,
    call,
    claimed,
    delivery,
    filled,
    final,
    message,
    purged,
    running,
    submitted,
)


def test_a_session_comes_back_as_it_was_made(database: Database) -> None:
    new = NewSession("s1", "agent", "user é", "title", {"a": [1]}, {"name": "Ada"}, {"max": 1}, "m1")
    made = Sessions(database).create(WORKSPACE, new, now_ms=NOW_MS)
    assert Sessions(database).get(WORKSPACE, "s1") == made
    fields = (made.id, made.agent, made.user, made.title, made.metadata, made.kernel, made.budget, made.model)
    assert fields == ("s1", "agent", "user é", "title", {"a": [1]}, {"name": "Ada"}, {"max": 1}, "m1")
    assert (made.status, made.created_ms, made.updated_ms) == ("active", NOW_MS, NOW_MS)


def test_sessions_without_an_id_get_one_each_and_lanes_nobody_can_guess(database: Database) -> None:
    made = [Sessions(database).create(WORKSPACE, NewSession(), now_ms=NOW_MS) for _ in range(3)]
    assert len({session.id for session in made}) == len({session.lane for session in made}) == 3
    assert all(len(session.lane) == 32 and session.id not in session.lane for session in made)


def test_an_id_is_given_once_in_a_workspace(database: Database) -> None:
    Sessions(database).create(WORKSPACE, NewSession("s1"), now_ms=NOW_MS)
    with pytest.raises(Conflict) as refused:
        Sessions(database).create(WORKSPACE, NewSession("s1", title="other"), now_ms=NOW_MS)
    assert refused.value.slug == "session-exists"
    assert Sessions(database).get(WORKSPACE, "s1").title is None
    Sessions(database).create("other", NewSession("s1"), now_ms=NOW_MS)


def test_a_patch_changes_what_it_names_and_nothing_else(database: Database) -> None:
    sessions = Sessions(database)
    before = sessions.create(WORKSPACE, NewSession("s1", title="old", metadata={"a": 1}), now_ms=NOW_MS)
    after = sessions.patch(WORKSPACE, "s1", SessionPatch(title="", kernel={}), now_ms=NOW_MS + 5)
    assert (after.title, after.kernel, after.metadata, after.updated_ms) == ("", {}, {"a": 1}, NOW_MS + 5)
    assert (after.lane, after.created_ms, after.status) == (before.lane, NOW_MS, "active")


def test_a_session_knows_its_queue_and_whether_it_works(database: Database) -> None:
    lane = submitted(database).lane
    submitted(database)
    claimed(database, lane)
    session = Sessions(database).get(WORKSPACE, "s1")
    listed = Sessions(database).page(WORKSPACE, limit=1, after=None).items[0]
    assert (session.queue_depth, session.is_busy) == (listed.queue_depth, listed.is_busy) == (2, True)


def test_a_deleted_session_leaves_no_row_but_what_it_cost(database: Database) -> None:
    for session in ("s1", "s2"):
        claim = running(database, session)
        Journal(database).save(claim, Entries((Step(1, "reply", {}),), (call(0),)), PROGRESS)
        number = int(session[1])
        said = (message(number, claim),)
        Journal(database).finish(claim, final(said=said, delivery=delivery(number, claim)))
        submitted(database, session)
    lane = Sessions(database).get(WORKSPACE, "s1").lane
    listed = Turns(database).page(WORKSPACE, {"session_id": "s1"}, limit=9, after=None).items
    (deleted,) = Sessions(database).delete(WORKSPACE, "s1")
    assert deleted == Deleted(lane, {turn.id: not turn.is_finished for turn in listed})
    assert sorted(deleted.turns.values()) == [False, True]
    assert Sessions(database).deleted_turns(limit=9) == tuple(turn.id for turn in listed if turn.is_finished)
    purged(database)
    assert filled(database) == {
        "sessions": 1, "turns": 2, "steps": 1, "calls": 1, "messages": 1, "outbox": 1, "usage": 2,
    }  # fmt: skip
    with pytest.raises(NotFound):
        Sessions(database).get(WORKSPACE, "s1")


def test_a_session_of_the_same_name_begins_anew_after_a_deletion(database: Database) -> None:
    old = submitted(database)
    Sessions(database).delete(WORKSPACE, "s1")
    new = submitted(database)
    assert new.seq == 1
    assert new.lane != old.lane


def kernel_of(database: Database, workspace: str = WORKSPACE) -> Json:
    return Sessions(database).get(workspace, "s1").kernel


def test_a_kernel_is_merged_key_by_key_and_null_removes_one(database: Database) -> None:
    sessions = Sessions(database)
    made = sessions.create(WORKSPACE, NewSession("s1", kernel={"name": "Ada", "goal": "a boat", "x": None}), now_ms=1)
    sessions.create("other", NewSession("s1", kernel={"name": "Eve"}), now_ms=1)
    merged = sessions.merge_kernel(made.lane, {"goal": None, "none": None, "tone": ["short"]}, fits=lambda _: None)
    assert merged == kernel_of(database) == {"name": "Ada", "tone": ["short"], "x": None}
    assert kernel_of(database, "other") == {"name": "Eve"}
    assert sessions.get(WORKSPACE, "s1").updated_ms > 1


def test_a_kernel_that_does_not_fit_is_left_as_it_was(database: Database) -> None:
    sessions = Sessions(database)
    made = sessions.create(WORKSPACE, NewSession("s1", kernel={"a": 1}), now_ms=NOW_MS)
    seen: list[Json] = []

    def refuse(kernel: Json) -> None:
        seen.append(kernel)
        raise ToolFailed("too large")

    with pytest.raises(ToolFailed):
        sessions.merge_kernel(made.lane, {"b": 2}, fits=refuse)
    assert seen == [{"a": 1, "b": 2}]
    assert kernel_of(database) == {"a": 1}


def test_a_kernel_that_changes_while_it_is_judged_is_merged_anew(database: Database) -> None:
    sessions = Sessions(database)
    made = sessions.create(WORKSPACE, NewSession("s1", kernel={"a": 1}), now_ms=NOW_MS)
    judged: list[Json] = []

    def fits(kernel: Json) -> None:
        judged.append(kernel)
        if len(judged) == 1:
            sessions.patch(WORKSPACE, "s1", SessionPatch(kernel={"a": 2, "c": 3}), now_ms=NOW_MS)

    assert sessions.merge_kernel(made.lane, {"b": 2}, fits=fits) == kernel_of(database) == {"a": 2, "b": 2, "c": 3}
    assert judged == [{"a": 1, "b": 2}, {"a": 2, "b": 2, "c": 3}]


def test_the_kernel_of_a_deleted_session_is_not_found(database: Database) -> None:
    lane = Sessions(database).create(WORKSPACE, NewSession("s1"), now_ms=NOW_MS).lane
    Sessions(database).delete(WORKSPACE, "s1")
    with pytest.raises(NotFound):
        Sessions(database).merge_kernel(lane, {"a": 1}, fits=lambda _: None)


def test_what_a_session_chose_comes_back(database: Database) -> None:
    sessions = Sessions(database)
    sessions.create(WORKSPACE, NewSession("s1"), now_ms=NOW_MS)
    chosen = sessions.patch(WORKSPACE, "s1", SessionPatch(tools=("a", "b"), backend="b.db"), now_ms=NOW_MS)
    assert (chosen.tools, chosen.backend) == (("a", "b"), "b.db")
    cleared = sessions.patch(WORKSPACE, "s1", SessionPatch(clear=frozenset({"tools", "backend"})), now_ms=NOW_MS)
    assert (cleared.tools, cleared.backend) == (None, None)
