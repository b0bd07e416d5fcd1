import time
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import redis

from loom_worker.core.errors import Fenced
from loom_worker.core.settings import LaneSettings, LimitSettings
from loom_worker.core.values.decisions import Decision
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.runs import NewRun, Run
from loom_worker.core.values.sessions import SessionPatch
from loom_worker.events.log import EventLog
from loom_worker.lanes import keys
from loom_worker.lanes.lanes import Lanes
from loom_worker.lanes.lease_renewer import MEMORY_KEY_MS, LeaseRenewer
from loom_worker.store import approvals
from loom_worker.store.budgets import Budgets
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.journal import Entries, Journal
from loom_worker.store.memory import Memories
from loom_worker.store.outbox import Outbox
from loom_worker.store.runs import Runs
from loom_worker.store.sessions import Sessions
from loom_worker.tasks.sweep import (
    AGAIN_MS,
    COMPRESS_GRACE_MS,
    RUN_AGAIN_MS,
    SUBMIT_GRACE_MS,
    UNACKED,
    Sweep,
    Sweeper,
    Swept,
)
from tests.support.played_worker import PlayedWorker
from tests.support.runs import pipeline, run_journal, workflow
from tests.support.sql_heard import heard
from tests.support.stage import Book
from tests.support.until import until
from tests.unit.store import made

SETTINGS = LaneSettings()


@dataclass
class Expiry:
    """What would expire, and by which moments."""

    moments_ms: list[int] = field(default_factory=list)

    def remove_expired(self, moment_ms: int) -> None:
        self.moments_ms.append(moment_ms)


@dataclass
class SweepBook(Book):
    """Writes down which runs are to go on, too."""

    advanced: list[str] = field(default_factory=list)

    def advance(self, run_id: str) -> None:
        self.advanced.append(run_id)


@pytest.fixture
def book() -> SweepBook:
    return SweepBook()


@pytest.fixture
def lanes(valkey: redis.Redis) -> Lanes:
    return Lanes(valkey, SETTINGS)


@pytest.fixture
def sweep(
    valkey: redis.Redis, database: Database, lanes: Lanes, book: SweepBook, monkeypatch: pytest.MonkeyPatch
) -> Sweep:
    monkeypatch.setattr(made, "NOW_MS", now_ms() - 60_000)  # the constant of the builders of rows
    parts = [made_of(database) for made_of in (Claims, Outbox, Memories, Sessions, Runs, Budgets)]
    return Sweep(valkey, lanes, EventLog(valkey), *parts, book, Expiry(), SETTINGS)


def sweep_now(sweep: Sweep) -> Swept:
    """A sweep, as when the lock of the last one has run out."""
    sweep.redis.delete(keys.SWEEP)
    swept = sweep.once("w0")
    assert swept is not None
    return swept


def grown_old(client: Any) -> None:
    """Let Redis' memory be older than any lease."""
    client.set(keys.MEMORY_SINCE, "", px=MEMORY_KEY_MS - 60_000)


def test_one_sweeps_at_a_time_and_the_lock_lasts_less_than_a_pause(sweep: Sweep, valkey: redis.Redis) -> None:
    assert sweep.once("w0") == Swept(0, 0, 0, 0)
    assert sweep.once("w1") is None
    assert valkey.get(keys.SWEEP) == "w0"
    remaining: Any = valkey.pttl(keys.SWEEP)
    assert 0 < remaining < SETTINGS.sweep_s * 1000


def test_where_no_turn_is_open_no_lane_is_looked_for(sweep: Sweep, database: Database) -> None:
    made.said(database, turns=2)
    with heard(database) as said:
        sweep_now(sweep)
    assert [one for one in said if "FROM turns" in one and "LIMIT 1" not in one] == []
    made.submitted(database)
    with heard(database) as said:
        assert sweep_now(sweep).lost == 1
    assert [one for one in said if "requires_action'" in one and "held_by IS NULL" in one]


def test_a_turn_of_which_redis_knows_nothing_is_rung_once(
    sweep: Sweep, database: Database, book: Book, lanes: Lanes
) -> None:
    first, second = made.submitted(database), made.submitted(database)
    assert sweep_now(sweep) == Swept(late=0, lost=1, due=0, full=0)
    assert sweep_now(sweep) == Swept(late=0, lost=0, due=0, full=0)
    assert book.woken == [first.lane]
    lease = lanes.take(first.lane, "t1")
    assert lease is not None
    assert (lease.last_seq, second.seq) == (2, 2)


def test_a_turn_that_was_accepted_just_now_is_left_to_its_submitter(
    sweep: Sweep, database: Database, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made, "NOW_MS", now_ms())
    made.submitted(database)
    assert sweep_now(sweep).lost == 0
    assert book.woken == []


def test_a_lane_with_a_late_lease_is_rung(
    sweep: Sweep, database: Database, book: Book, lanes: Lanes, valkey: redis.Redis
) -> None:
    turn = made.submitted(database)
    lanes.submit(turn.lane, [(1, turn.id)])
    assert sweep_now(sweep).late == 0
    valkey.zadd(keys.LEASES, {turn.lane: 1})
    assert sweep_now(sweep) == Swept(late=1, lost=0, due=0, full=0)
    assert book.woken == [turn.lane]


def test_a_lane_that_a_living_worker_runs_is_left_alone_after_a_loss(
    sweep: Sweep, database: Database, book: Book, lanes: Lanes, valkey: redis.Redis
) -> None:
    turn = made.submitted(database)
    made.claimed(database, turn.lane, "w1")
    LeaseRenewer(valkey, lanes, "w1", SETTINGS).renew()
    grown_old(valkey)
    assert sweep_now(sweep).lost == 0
    assert book.woken == []


def test_a_lane_of_a_worker_that_is_dead_is_rung(
    sweep: Sweep, database: Database, book: Book, lanes: Lanes, valkey: redis.Redis
) -> None:
    turn = made.submitted(database)
    made.claimed(database, turn.lane, "w1")
    LeaseRenewer(valkey, lanes, "w1", SETTINGS).renew()
    valkey.delete(keys.worker("w1"))  # as Redis does when no beat has come for a lease's time
    grown_old(valkey)
    assert sweep_now(sweep).lost == 1
    assert book.woken == [turn.lane]


def test_just_after_a_loss_nobody_counts_as_dead(sweep: Sweep, database: Database, book: Book) -> None:
    running, waiting = made.submitted(database, "s1"), made.submitted(database, "s2")
    made.claimed(database, running.lane, "w1")
    assert sweep_now(sweep).lost == 1
    assert book.woken == [waiting.lane]


def test_a_paused_session_is_not_rung_and_is_once_it_goes_on(sweep: Sweep, database: Database, book: Book) -> None:
    turn = made.submitted(database)
    sessions = Sessions(database)
    sessions.patch(made.WORKSPACE, "s1", SessionPatch(status="paused"), now_ms=1)
    assert sweep_now(sweep).lost == 0
    sessions.patch(made.WORKSPACE, "s1", SessionPatch(status="active"), now_ms=2)
    assert sweep_now(sweep).lost == 1
    assert book.woken == [turn.lane]


def test_a_lost_lane_is_found_behind_any_number_of_others(
    sweep: Sweep, database: Database, book: Book, lanes: Lanes
) -> None:
    turns = [made.submitted(database, f"s{number}") for number in range(8)]
    last = max(turns, key=lambda turn: turn.lane)
    for turn in turns:
        if turn is not last:
            lanes.submit(turn.lane, [(1, turn.id)])
    assert sweep_now(replace(sweep, most=3)).lost == 1
    assert book.woken == [last.lane]


def due(database: Database, number: int = 1) -> None:
    """A turn that ended, with a webhook to be sent."""
    claim = made.running(database, f"s{number}")
    final = made.final(delivery=made.delivery(number, claim, next_ms=made.NOW_MS))
    Journal(database).finish(claim, final)


def test_a_due_delivery_is_sent(sweep: Sweep, database: Database, book: Book) -> None:
    due(database)
    assert sweep_now(sweep) == Swept(late=0, lost=0, due=1, full=0)
    assert book.delivered == ["whd_0001"]


def test_a_session_whose_memory_has_been_due_for_a_while_is_sent_once(
    sweep: Sweep, database: Database, book: Book
) -> None:
    lane = made.submitted(database).lane
    with database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("INSERT INTO memory (lane, due_ms) VALUES (?, ?)", (lane, now_ms()))
    assert sweep_now(sweep).full == 0
    with database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("UPDATE memory SET due_ms = ?", (now_ms() - COMPRESS_GRACE_MS - 1,))
    assert [sweep_now(sweep).full, sweep_now(sweep).full] == [1, 0]
    assert book.summarized == [lane]


def left_behind(sweep: Sweep, database: Database) -> Run:
    """A run whose turn has ended, and nobody has made it go on."""
    run = started(database)
    PlayedWorker(database, sweep.events).finish(turn_of(run))
    return run


def started(database: Database) -> Run:
    journal = run_journal(database, LimitSettings())
    step, _ = journal.accept(made.WORKSPACE, workflow(pipeline("One", "Two")), NewRun(), now_ms=now_ms())
    return step.run


def turn_of(run: Run) -> str:
    turn_id = run.stages[-1].turn_id
    assert turn_id is not None
    return turn_id


def later(sweep: Sweep, by_ms: int = SUBMIT_GRACE_MS + 1) -> Sweep:
    return replace(sweep, clock_ms=lambda: now_ms() + by_ms)


def test_a_run_whose_turn_has_just_ended_is_left_to_who_ended_it(
    sweep: Sweep, database: Database, book: SweepBook
) -> None:
    left_behind(sweep, database)
    assert sweep_now(sweep).runs == 0
    assert book.advanced == []


def test_a_run_that_nobody_made_go_on_is_sent_once(
    sweep: Sweep, database: Database, book: SweepBook, valkey: redis.Redis
) -> None:
    run = left_behind(sweep, database)
    assert [sweep_now(later(sweep)).runs for _ in range(3)] == [1, 0, 0]
    assert book.advanced == [run.id]
    remaining: Any = valkey.pttl(keys.sent(run.id))
    assert 0 < remaining <= RUN_AGAIN_MS


def test_a_run_whose_message_was_lost_is_sent_again(
    sweep: Sweep, database: Database, book: SweepBook, valkey: redis.Redis
) -> None:
    run = left_behind(sweep, database)
    sweep_now(later(sweep))
    valkey.delete(keys.sent(run.id))  # as when RUN_AGAIN_MS have passed
    assert sweep_now(later(sweep)).runs == 1
    assert book.advanced == [run.id, run.id]


def test_a_run_that_went_on_or_waits_for_its_turn_is_not_sent(
    sweep: Sweep, database: Database, book: SweepBook
) -> None:
    waiting, gone_on = started(database), left_behind(sweep, database)
    assert run_journal(database, LimitSettings()).advance(gone_on.id, now_ms=now_ms()) is not None
    assert sweep_now(later(sweep)).runs == 0
    assert (book.advanced, waiting.status) == ([], "in_progress")


def test_a_run_whose_turn_was_deleted_is_sent(sweep: Sweep, database: Database, book: SweepBook) -> None:
    run = started(database)
    session_id = run.stages[0].session_id
    assert session_id is not None
    sweep.sessions.delete(made.WORKSPACE, session_id)
    assert sweep_now(later(sweep)).runs == 1
    assert book.advanced == [run.id]


def test_what_is_left_of_a_deleted_session_is_removed(sweep: Sweep, database: Database) -> None:
    turn = made.submitted(database)
    sweep.sessions.delete(turn.workspace, turn.session_id)
    sweep_now(sweep)
    with database.read() as tx:
        assert tx.exec_driver_sql("SELECT (SELECT count(*) FROM sessions) + (SELECT count(*) FROM turns)").scalar() == 0


def test_event_logs_of_a_session_that_was_deleted_while_redis_was_away_are_removed(
    sweep: Sweep, database: Database, valkey: redis.Redis
) -> None:
    claim = made.running(database, "s1")
    Journal(database).finish(claim, made.final())
    sweep.events.append(claim.turn.id, [("turn.queued", {}), ("turn.completed", {})], least=0)
    sweep.sessions.delete(claim.turn.workspace, "s1")
    sweep_now(sweep)
    assert valkey.keys("loom:events:*") + valkey.keys("loom:end:*") == []
    with pytest.raises(Fenced):
        sweep.events.append(claim.turn.id, [("tool_call.completed", {})], least=0)


def test_a_delivery_that_waits_for_a_worker_is_not_sent_with_every_sweep(
    sweep: Sweep, database: Database, book: Book, valkey: redis.Redis
) -> None:
    due(database)
    for _ in range(5):
        sweep_now(sweep)
    assert book.delivered == ["whd_0001"]
    remaining: Any = valkey.pttl(keys.sent("whd_0001"))
    assert 0 < remaining <= AGAIN_MS
    valkey.delete(keys.sent("whd_0001"))  # as when that time has passed
    sweep_now(sweep)
    assert book.delivered == ["whd_0001", "whd_0001"]


def test_a_delivery_that_is_taken_is_not_sent(sweep: Sweep, database: Database, book: Book) -> None:
    due(database)
    assert Outbox(database).take("whd_0001", now_ms=now_ms(), hold_ms=30_000) is not None
    assert sweep_now(sweep).due == 0
    assert book.delivered == []


def test_a_sweeper_sweeps_until_it_is_stopped_and_outlives_what_fails(
    sweep: Sweep, database: Database, book: Book, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    caplog.set_level("INFO")
    made.submitted(database)
    quick = replace(sweep, settings=LaneSettings(sweep_s=0.02))
    quick.redis.set(keys.LEASES, "not a sorted set")
    sweeper = Sweeper(quick, "w1")
    sweeper.start()
    request.addfinalizer(sweeper.stop)
    until(lambda: "the next one comes" in caplog.text, 5, "a sweep that fails")
    quick.redis.flushall()
    until(lambda: book.woken, 5, "a wake-up")
    sweeper.stop()
    assert [record for record in caplog.records if getattr(record, "lost", 0) == 1]


@dataclass
class Due:
    """Which moments schedules were looked at for; the first look fails if it is told to."""

    fails: bool = False
    moments_ms: list[int] = field(default_factory=list)

    def fire_due(self, moment_ms: int) -> int:
        self.moments_ms.append(moment_ms)
        if self.fails and len(self.moments_ms) == 1:
            raise ValueError("a plan")
        return 0


@pytest.mark.parametrize(("ahead_ms", "expected_ms"), [(3_600_000, 0), (-3_600_000, -3_600_000)])
def test_schedules_go_by_the_clock_that_is_behind(sweep: Sweep, ahead_ms: int, expected_ms: int) -> None:
    due, began_ms = Due(), now_ms()
    replace(sweep, schedules=due, clock_ms=lambda: now_ms() + ahead_ms).fire_due()
    assert began_ms - 1_000 <= due.moments_ms[0] - expected_ms <= now_ms()


def test_a_schedule_that_fails_stops_neither_sweeps_nor_later_looks_also_without_the_lock(
    sweep: Sweep, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    due = Due(fails=True)
    sweep.redis.set(keys.SWEEP, "beat")
    sweeper = Sweeper(replace(sweep, schedules=due, settings=LaneSettings(sweep_s=0.02)), "w1")
    sweeper.start()
    request.addfinalizer(sweeper.stop)
    until(lambda: len(due.moments_ms) > 2, 5, "a look after the one that failed")
    assert "schedules failed" in caplog.text


def test_a_sweeper_that_never_started_stops(sweep: Sweep) -> None:
    Sweeper(sweep, "w1").stop()


def test_what_a_worker_took_by_a_clock_that_is_ahead_is_dated_back(sweep: Sweep, valkey: redis.Redis) -> None:
    now_s = int(time.time())
    valkey.zadd(UNACKED, {"ahead": now_s + 3_600, "right": now_s - 5})
    sweep_now(sweep)
    assert valkey.zscore(UNACKED, "right") == now_s - 5
    assert now_s <= (valkey.zscore(UNACKED, "ahead") or 0) < now_s + 30


@pytest.mark.parametrize(("ahead_ms", "tidied_ms"), [(3_600_000, 0), (-3_600_000, -3_600_000)])
def test_nothing_expires_by_the_clock_of_a_worker_that_is_ahead(sweep: Sweep, ahead_ms: int, tidied_ms: int) -> None:
    expiry = Expiry()
    began_ms = now_ms()
    sweep_now(replace(sweep, expiry=expiry, clock_ms=lambda: now_ms() + ahead_ms))
    assert began_ms - 1_000 <= expiry.moments_ms[0] - tidied_ms <= now_ms()  # Redis is asked for whole seconds


@pytest.mark.parametrize("verdict", ["approve", "reject"])
def test_a_turn_whose_person_decided_and_was_not_heard_is_rung_once(
    sweep: Sweep, database: Database, book: Book, lanes: Lanes, verdict: Any
) -> None:
    claim = made.running(database)
    asking = made.call(approval="waiting", approve_by_ms=now_ms() + 86_400_000)
    parked = {"held_by": None, "parked_until_ms": asking.approve_by_ms, "status": "requires_action"}
    Journal(database).save(claim, Entries([], [asking]), parked)
    lanes.submit(claim.turn.lane, [(claim.turn.seq, claim.turn.id)])
    lease = lanes.take(claim.turn.lane, "t1")
    assert lease is not None
    lanes.park(lease, wait_ms=86_400_000)
    assert sweep_now(sweep) == Swept(0, 0, 0, 0)
    approvals.decide(database, made.WORKSPACE, claim.turn.id, asking.id, Decision(verdict), now_ms=now_ms())
    assert sweep_now(sweep) == Swept(late=1, lost=0, due=0, full=0)
    assert sweep_now(sweep).late == 0
    assert book.woken == [claim.turn.lane]
