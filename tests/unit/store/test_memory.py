from dataclasses import replace

import pytest
from sqlalchemy import select

from loom_worker.core.errors import Fenced, Invalid, NotFound
from loom_worker.core.values.budgets import usd
from loom_worker.core.values.chat import ChatMessage, Usage
from loom_worker.core.values.memory import Change, MemoryState
from loom_worker.core.values.sessions import Message
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.journal import Journal
from loom_worker.store.ledger import Charge, Ledger
from loom_worker.store.memory import AHEAD_MS, Memories, MemoryClaim, NewMemory, NewSnapshot
from loom_worker.store.messages import Messages
from loom_worker.store.rows import CHANGES
from loom_worker.store.sessions import Sessions
from loom_worker.store.tables import memory
from tests.support.at_once import at_once
from tests.support.refused import REFUSED
from tests.support.sql_heard import heard
from tests.support.work_counted import counted
from tests.unit.store.made import (
    NOW_MS,
    SPENT,
    WORKSPACE,
    claimed,
    counts,
    final,
    held,
    message,
    running,
    said,
    submitted,
)

NOBODY: frozenset[str] = frozenset()
CHARGE = Charge(WORKSPACE, "s1", "default", "small", Usage(input_tokens=100, cost_usd=usd(0.5), llm_calls=1))


def stored(database: Database, session: str = "s1", workspace: str = WORKSPACE) -> tuple[Message, ...]:
    return Messages(database).page(workspace, session, limit=500, after=None).items


def change(version: int) -> Change:
    return Change(version, "compressed", "normal", messages=4, from_tokens=400, to_tokens=80, by="small")


def compressed(
    database: Database, lane: str, first_n: int = 0, text: str = "notes", new: NewSnapshot | None = None
) -> MemoryState:
    """The memory of a lane after its messages before ``first_n`` became a summary, and a snapshot was taken."""
    memories, claim = Memories(database), held(database, lane)
    before = claim.state
    after = replace(before, first_n=first_n, l2_text=text, changes=(*before.changes, change(before.version + 1)))
    assert memories.apply(lane, before, NewMemory(after, snapshot=new), now_ms=NOW_MS + before.version)
    memories.release(lane, "w1", is_done=False, seen_due_ms=claim.due_ms)
    return memories.load(lane, limit=1).state


def snapshot(number: int, of: tuple[Message, ...]) -> NewSnapshot:
    return NewSnapshot(f"snap_{number:04}", f"text {number}", 7, from_n=of[0].n, to_n=of[-1].n)


def due(database: Database, session: str = "s1", *, at_ms: int = NOW_MS) -> str:
    """A lane whose memory a turn that ended then has marked."""
    claim = running(database, session)
    end = final(memory_due=True)
    Journal(database).finish(claim, replace(end, progress={**end.progress, "completed_ms": at_ms}))
    return claim.turn.lane


def test_a_new_session_remembers_nothing_but_what_was_said(database: Database) -> None:
    lane = said(database, turns=2)
    remembered = Memories(database).load(lane, limit=9)
    assert (remembered.state, remembered.history, remembered.recalled) == (MemoryState(), stored(database), ())


def test_a_memory_comes_back_as_it_was_applied(database: Database) -> None:
    lane = said(database, turns=3)
    before = held(database, lane).state
    after = MemoryState(
        first_n=3,
        l2_text="Ada wants a boat. é",
        l2_from_n=1,
        schemas=({"name": "orders", "text": "id, day"},),
        refs=("ref_1",),
        changes=(change(1), replace(change(1), kind="snapshot", level=None, snapshot_id="snap_1")),
    )
    assert Memories(database).apply(lane, before, NewMemory(after), now_ms=NOW_MS)
    remembered = Memories(database).load(lane, limit=9)
    assert remembered.state == replace(after, version=1)
    assert remembered.history == stored(database)[2:]


def test_a_turn_that_the_limit_cuts_is_left_out(database: Database) -> None:
    lane = said(database, turns=3, size=3)
    for limit, kept in ((9, 9), (8, 6), (6, 6), (5, 3), (2, 0)):
        history = Memories(database).load(lane, limit=limit).history
        assert history == stored(database)[9 - kept :]


def test_a_turn_begins_only_with_what_was_before_it(database: Database) -> None:
    said(database, turns=1)
    claim, memories = running(database), Memories(database)
    assert memories.load(claim.turn.lane, limit=9, claim=claim).history == stored(database)
    Journal(database).finish(claim, final(said=(message(8, claim), message(9, claim))))
    with pytest.raises(Fenced, match=claim.turn.id):
        memories.load(claim.turn.lane, limit=9, claim=claim)
    assert len(memories.load(claim.turn.lane, limit=9).history) == 4


def test_loading_asks_for_what_was_promoted_only_if_something_was(database: Database) -> None:
    lane = said(database, turns=2)
    with heard(database) as statements:
        Memories(database).load(lane, limit=9)
    without = len([one for one in statements if "FROM messages" in one])
    Memories(database).promote(WORKSPACE, "s1", [stored(database)[0].id], budget_tokens=9, tokens=len)
    with heard(database) as statements:
        Memories(database).load(lane, limit=9)
    assert (without, len([one for one in statements if "FROM messages" in one])) == (1, 2)


def test_a_load_reads_no_more_rows_than_it_was_asked_for(database: Database) -> None:
    lane = said(database, turns=40)
    short = said(database, "short", turns=2)
    compressed(database, lane, stored(database)[-4].n)
    compressed(database, short)

    def work(lane: str) -> int:
        with counted(database) as work:
            Memories(database).load(lane, limit=200)
        return work.done

    assert len(Memories(database).load(lane, limit=200).history) == 4
    assert 0 < work(lane) <= 1.1 * work(short)


def test_two_sessions_and_two_workspaces_have_memories_of_their_own(database: Database) -> None:
    lanes = [said(database, turns=2), said(database, "s2", turns=2), said(database, workspace="other", turns=2)]
    compressed(database, lanes[0], stored(database)[2].n, "mine")
    assert Memories(database).load(lanes[0], limit=9).history == stored(database)[2:]
    for lane, theirs in ((lanes[1], stored(database, "s2")), (lanes[2], stored(database, workspace="other"))):
        remembered = Memories(database).load(lane, limit=9)
        assert (remembered.state, remembered.history) == (MemoryState(), theirs)
        assert Memories(database).oldest(lane, remembered.state, limit=9) == theirs
        assert Memories(database).page_from(lane, offset=0, limit=9) == (theirs, 4)


@pytest.mark.parametrize(("limit", "kept"), [(9, 9), (8, 6), (6, 6), (4, 3), (3, 3), (2, 3), (1, 3)])
def test_the_oldest_messages_are_whole_turns(database: Database, limit: int, kept: int) -> None:
    lane = said(database, turns=3, size=3)
    assert Memories(database).oldest(lane, MemoryState(), limit=limit) == stored(database)[:kept]


def test_the_oldest_messages_begin_where_l1_does(database: Database) -> None:
    lane = said(database, turns=3)
    state = compressed(database, lane, stored(database)[2].n)
    assert Memories(database).oldest(lane, state, limit=2) == stored(database)[2:4]
    assert Memories(database).oldest(lane, replace(state, first_n=10_000), limit=2) == ()


def test_a_memory_that_a_living_worker_holds_is_not_claimed_by_another(database: Database) -> None:
    lane, memories = due(database), Memories(database)
    both = frozenset({"w1", "w2"})
    assert memories.claim(lane, worker="w1", alive=both, now_ms=NOW_MS) is not None
    assert memories.claim(lane, worker="w2", alive=both, now_ms=NOW_MS) is None
    memories.release(lane, "w1", is_done=False, seen_due_ms=NOW_MS)
    assert memories.claim(lane, worker="w2", alive=both, now_ms=NOW_MS) is not None


def test_a_memory_that_is_not_due_is_not_claimed_for_nobody_would_free_what_a_dead_worker_holds(
    database: Database,
) -> None:
    lane, memories = said(database, turns=1), Memories(database)
    assert memories.claim(lane, worker="w1", alive=NOBODY, now_ms=NOW_MS) is None
    assert due(database) == lane
    memories.release(lane, "w1", is_done=True, seen_due_ms=held(database, lane).due_ms)
    assert memories.claim(lane, worker="w1", alive=NOBODY, now_ms=NOW_MS) is None
    with database.read() as tx:
        assert tx.execute(select(memory.c.held_by, memory.c.held_ms)).all() == [(None, None)]


def test_what_a_dead_worker_holds_is_free_and_so_is_a_hold_of_ones_own(database: Database) -> None:
    lane, memories = due(database), Memories(database)
    for worker, alive in (("w1", {"w1"}), ("w2", {"w2"}), ("w2", {"w2"})):
        assert memories.claim(lane, worker=worker, alive=frozenset(alive), now_ms=NOW_MS) is not None


def test_a_mark_of_a_clock_that_is_far_ahead_is_due(database: Database) -> None:
    lane = said(database, turns=1)
    for ahead_ms, expected in ((AHEAD_MS, ()), (AHEAD_MS + 1, (lane,))):
        with database.write(lock=WHOLE) as tx:
            tx.execute(memory.delete())
            tx.execute(memory.insert(), {"lane": lane, "due_ms": NOW_MS + ahead_ms})
        assert Memories(database).due(due_before_ms=NOW_MS, limit=5) == expected


def test_a_claim_brings_the_session_the_state_and_since_when_it_is_due(database: Database) -> None:
    lane = due(database)
    claim = held(database, lane)
    assert claim == MemoryClaim(Sessions(database).get(WORKSPACE, "s1"), MemoryState(), NOW_MS)


def test_nobody_claims_the_memory_of_a_deleted_session(database: Database) -> None:
    lane = due(database)
    before = held(database, lane).state
    Sessions(database).delete(WORKSPACE, "s1")
    memories = Memories(database)
    assert memories.claim(lane, worker="w2", alive=NOBODY, now_ms=NOW_MS) is None
    assert memories.claim("no such lane", worker="w2", alive=NOBODY, now_ms=NOW_MS) is None
    assert memories.due(due_before_ms=NOW_MS + 1, limit=9) == ()
    assert not memories.apply(lane, before, NewMemory(before, snapshot=None, charge=CHARGE), now_ms=NOW_MS)
    assert not memories.release(lane, "w1", is_done=True, seen_due_ms=NOW_MS)
    assert counts(database)["memory"] == 0
    assert [row["key"] for row in Ledger(database).totals(WORKSPACE, group_by="model")] == ["m1", "small"]


def test_of_two_summaries_of_one_memory_the_second_is_not_applied_but_charged(database: Database) -> None:
    lane = said(database, turns=3)
    before, memories = held(database, lane).state, Memories(database)
    first, second = (replace(before, first_n=n, l2_text=f"by {n}", l2_from_n=1) for n in (3, 5))
    new = snapshot(1, stored(database)[:2]), snapshot(2, stored(database)[:4])
    assert memories.apply(lane, before, NewMemory(first, snapshot=new[0], charge=CHARGE), now_ms=NOW_MS)
    assert not memories.apply(lane, before, NewMemory(second, snapshot=new[1], charge=CHARGE), now_ms=NOW_MS)
    assert memories.load(lane, limit=1).state == replace(first, version=1)
    assert [one.id for one in memories.snapshots(WORKSPACE, "s1", limit=9, after=None).items] == ["snap_0001"]
    used = Sessions(database).get(WORKSPACE, "s1").usage
    assert used == SPENT + SPENT + SPENT + CHARGE.usage + CHARGE.usage
    assert {row["key"]: row["turns"] for row in Ledger(database).totals(WORKSPACE, group_by="model")} == {
        "m1": 3, "small": 0
    }  # fmt: skip


def test_a_change_is_all_or_nothing(database: Database) -> None:
    lane, other = said(database, turns=1), said(database, "s2", turns=1)
    memories, taken = Memories(database), snapshot(1, stored(database))
    for each in (lane, other):
        held(database, each)
    assert memories.apply(other, MemoryState(), NewMemory(MemoryState(), snapshot=taken), now_ms=NOW_MS)
    used = Sessions(database).get(WORKSPACE, "s1").usage
    after = MemoryState(first_n=9, l2_text="lost")
    with pytest.raises(REFUSED, match=r"(?i)unique"):
        memories.apply(lane, MemoryState(), NewMemory(after, snapshot=taken, charge=CHARGE), now_ms=NOW_MS)
    assert memories.load(lane, limit=1).state == MemoryState()
    assert Sessions(database).get(WORKSPACE, "s1").usage == used


def test_of_many_that_apply_at_once_one_does(database: Database) -> None:
    lane = said(database, turns=3)
    before, memories = held(database, lane).state, Memories(database)

    def run(number: int) -> bool:
        after = replace(before, first_n=number, l2_text=str(number))
        new = snapshot(number, stored(database)[:2])
        return memories.apply(lane, before, NewMemory(after, snapshot=new, charge=CHARGE), now_ms=NOW_MS)

    applied = [number for number, is_applied in enumerate(at_once(run, range(6))) if is_applied]
    assert len(applied) == 1
    assert memories.load(lane, limit=1).state.l2_text == str(applied[0])
    assert counts(database)["memory_snapshots"] == 1
    assert Sessions(database).get(WORKSPACE, "s1").usage.llm_calls == 3 + 6


def test_the_latest_changes_are_kept_and_no_more(database: Database) -> None:
    lane = said(database, turns=1)
    for _ in range(CHANGES + 2):
        state = compressed(database, lane)
    assert [one.version for one in state.changes] == list(range(3, CHANGES + 3))


def test_what_is_promoted_meanwhile_outlives_a_change(database: Database) -> None:
    lane = said(database, turns=2)
    before, memories = held(database, lane).state, Memories(database)
    promoted = stored(database)[0]
    memories.promote_in_lane(lane, [promoted.id], budget_tokens=9, tokens=len)
    assert memories.apply(lane, before, NewMemory(replace(before, first_n=3)), now_ms=NOW_MS)
    remembered = memories.load(lane, limit=9)
    assert (remembered.state.promoted, remembered.recalled) == ((promoted.id,), (promoted,))


def test_a_memory_is_due_from_the_end_of_the_first_turn_that_said_so_until_it_is_done(database: Database) -> None:
    memories = Memories(database)
    first = due(database, at_ms=NOW_MS + 5)
    assert due(database, at_ms=NOW_MS + 9) == first
    second = due(database, "s2", at_ms=NOW_MS)
    said(database, "s3", turns=1)
    assert memories.due(due_before_ms=NOW_MS + 5, limit=9) == (second, first)
    assert memories.due(due_before_ms=NOW_MS + 9, limit=1) == (second,)
    assert memories.due(due_before_ms=NOW_MS - 1, limit=9) == ()
    claim = held(database, second)
    assert not memories.release(second, "w1", is_done=True, seen_due_ms=claim.due_ms)
    assert memories.due(due_before_ms=NOW_MS + 9, limit=9) == (first,)


def test_a_memory_that_was_given_up_stays_due(database: Database) -> None:
    lane, memories = due(database), Memories(database)
    assert not memories.release(lane, "w1", is_done=False, seen_due_ms=held(database, lane).due_ms)
    assert memories.due(due_before_ms=NOW_MS, limit=9) == (lane,)
    assert memories.claim(lane, worker="w2", alive=frozenset({"w1"}), now_ms=NOW_MS) is not None


def test_a_mark_that_is_set_while_somebody_compresses_is_not_lost(database: Database) -> None:
    lane, memories = due(database), Memories(database)
    claim = held(database, lane)
    assert claim.due_ms == NOW_MS
    due(database, at_ms=NOW_MS)
    assert memories.apply(lane, claim.state, NewMemory(claim.state), now_ms=NOW_MS)
    assert memories.release(lane, "w1", is_done=True, seen_due_ms=claim.due_ms)
    assert memories.due(due_before_ms=NOW_MS + 1, limit=9) == (lane,)
    again = held(database, lane)
    assert not memories.release(lane, "w1", is_done=True, seen_due_ms=again.due_ms)
    assert memories.due(due_before_ms=NOW_MS + 99, limit=9) == ()


def test_a_worker_that_was_taken_for_dead_takes_nothing_from_its_successor(database: Database) -> None:
    lane, memories = due(database), Memories(database)
    first = held(database, lane, "w1")
    second = held(database, lane, "w2")
    assert memories.apply(lane, first.state, NewMemory(first.state), now_ms=NOW_MS)
    assert not memories.release(lane, "w1", is_done=True, seen_due_ms=first.due_ms)
    assert memories.claim(lane, worker="w3", alive=frozenset({"w2"}), now_ms=NOW_MS) is None
    assert not memories.apply(lane, second.state, NewMemory(second.state), now_ms=NOW_MS)


def test_an_end_that_is_not_written_marks_nothing(database: Database) -> None:
    claim = claimed(database, submitted(database).lane)
    Journal(database).finish(claim, final())
    with pytest.raises(Exception, match="not ours"):
        Journal(database).finish(claim, final(memory_due=True))
    assert counts(database)["memory"] == 0


def test_snapshots_are_listed_once_each_the_newest_first_with_their_messages(database: Database) -> None:
    lane, memories = said(database, turns=2), Memories(database)
    for number in range(4):
        compressed(database, lane, new=snapshot(number, stored(database)[: number + 1]))
    first = memories.snapshots(WORKSPACE, "s1", limit=3, after=None)
    rest = memories.snapshots(WORKSPACE, "s1", limit=3, after=first.next)
    assert [one.id for one in (*first.items, *rest.items)] == ["snap_0003", "snap_0002", "snap_0001", "snap_0000"]
    assert rest.next is None
    newest, messages = first.items[0], stored(database)
    assert (newest.session_id, newest.content, newest.token_count) == ("s1", "text 3", 7)
    assert (newest.created_ms, newest.snapshot_type) == (NOW_MS + 3, "l2_summary")
    assert (newest.from_message_id, newest.to_message_id) == (messages[0].id, messages[3].id)


def test_snapshots_are_their_sessions_own(database: Database) -> None:
    lane, memories = said(database, turns=1), Memories(database)
    said(database, "s2", turns=1)
    said(database, workspace="other", turns=1)
    both = (*stored(database), *stored(database, "s2"))
    compressed(database, lane, new=snapshot(1, both))
    (listed,) = memories.snapshots(WORKSPACE, "s1", limit=9, after=None).items
    assert (listed.from_message_id, listed.to_message_id) == (both[0].id, None)
    for workspace, session in ((WORKSPACE, "s2"), ("other", "s1")):
        assert memories.snapshots(workspace, session, limit=9, after=None).items == ()
    with pytest.raises(NotFound):
        memories.snapshots("nobody", "s1", limit=9, after=None)
    with pytest.raises(Invalid, match="no cursor"):
        memories.snapshots(WORKSPACE, "s1", limit=9, after="msg_1")


def test_the_totals_tell_of_all_sessions(database: Database) -> None:
    memories = Memories(database)
    assert memories.totals(now_ms=NOW_MS) == {"changes": 0, "snapshots": 0, "due": 0, "oldest_due_age_s": None}
    lane = due(database, at_ms=NOW_MS - 2_500)
    due(database, "s2")
    said(database, turns=1)
    compressed(database, lane)
    compressed(database, lane, new=snapshot(1, stored(database)))
    assert memories.totals(now_ms=NOW_MS) == {"changes": 2, "snapshots": 1, "due": 2, "oldest_due_age_s": 2.5}


@pytest.mark.parametrize(("offset", "limit", "first", "last"), [(0, 2, 0, 2), (3, 2, 3, 5), (5, 9, 5, 6), (9, 2, 0, 0)])
def test_a_page_counts_from_the_oldest_message_whatever_has_left_l1(
    database: Database, offset: int, limit: int, first: int, last: int
) -> None:
    lane = said(database, turns=3)
    compressed(database, lane, stored(database)[4].n)
    page, total = Memories(database).page_from(lane, offset=offset, limit=limit)
    assert (page, total) == (stored(database)[first:last], 6)


def test_a_message_of_a_user_alone_begins_l1(database: Database) -> None:
    claim = running(database)
    odd = [ChatMessage("assistant", text="cut"), ChatMessage("user", text="hi")]
    messages = [Message(f"msg_{n}", "s1", claim.turn.id, chat, 1, NOW_MS) for n, chat in enumerate(odd)]
    Journal(database).finish(claim, final(said=messages))
    assert [one.chat.text for one in Memories(database).load(claim.turn.lane, limit=9).history] == ["hi"]
