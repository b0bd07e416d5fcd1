"""Readers and waiters that hold no thread: what each is given, and what one of them costs the others."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest

from loom_worker.core.errors import LoomError, NotFound, Unavailable
from loom_worker.core.values.notifications import Event
from loom_worker.core.values.turns import Step, Turn
from loom_worker.events.log import EventLog
from loom_worker.service.event_source import EventSource, Place
from loom_worker.service.followed import EventBatch, FollowedReader
from loom_worker.service.turn_follower import HEARTBEAT_S, TurnFollower
from loom_worker.store.turns import Turns, TurnStatuses
from tests.support.stage import WORKSPACE, Stage
from tests.support.until import until


class Taken:
    """Takes events; has room for as many batches as it is told to."""

    def __init__(self, room: float = float("inf")) -> None:
        self.events: list[Event] = []
        self.room = room
        self.is_key_ended = False
        self.ends: list[LoomError | None] = []
        self.waits: list[str] = []

    def has_room(self) -> bool:
        return self.room > 0

    def is_barred(self) -> bool:
        return self.is_key_ended

    def send(self, batch: EventBatch) -> None:
        self.room -= 1
        self.events += batch.events

    def wait_words(self) -> str:
        return "queued"

    def send_heartbeat(self, words: str) -> None:
        self.waits.append(words)

    def end(self, error: LoomError | None) -> None:
        self.ends.append(error)

    def texts(self) -> list[Any]:
        return [event.data.get("text") for event in self.events if event.type == "x"]


class Told:
    """Is told that a wait is over."""

    def __init__(self) -> None:
        self.count = 0

    def over(self) -> None:
        self.count += 1


class CountedLog(EventLog):
    """The real one; knows how often it was read for several readers."""

    reads = 0

    def read_many(self, places: Mapping[str, int], *, most: int) -> dict[str, tuple[Event, ...]]:
        self.reads += 1
        return super().read_many(places, most=most)


class HeldTurns(Turns):
    """The real ones; the journal of one turn is read only once that is let go."""

    held = ""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.database)
        self.entered, self.let_go = threading.Event(), threading.Event()

    def with_journal(self, tenant: Any, turn_id: str) -> tuple[Turn, tuple[Step, ...]]:
        if turn_id == self.held:
            self.entered.set()
            assert self.let_go.wait(60)
        return super().with_journal(tenant, turn_id)


@pytest.fixture
def log(stage: Stage) -> CountedLog:
    return CountedLog(stage.redis, stage.redis)


@pytest.fixture
def turns(stage: Stage) -> HeldTurns:
    return HeldTurns(stage)


@pytest.fixture
def follower(stage: Stage, log: CountedLog, turns: HeldTurns) -> Iterator[TurnFollower]:
    made = TurnFollower(EventSource(turns, log), TurnStatuses(stage.database), log)
    with closing(made):
        yield made


def read(follower: TurnFollower, turn: Turn, sink: Taken, after: int = 0) -> FollowedReader:
    return follower.follow(Place(WORKSPACE, turn.id, after, is_finished=False), sink)


def say(stage: Stage, turn: Turn, *texts: object) -> None:
    for text in texts:
        stage.events.append(turn.id, [("x", {"text": text})], least=1)


def has(sink: Taken, *texts: object) -> None:
    until(lambda: sink.texts() == [*texts], 10, f"the reader has {texts}, not {sink.texts()}")


def test_all_readers_of_a_turn_get_its_events_and_the_log_is_read_once_for_them(
    stage: Stage, follower: TurnFollower, log: CountedLog
) -> None:
    turn, sinks = stage.submit(), [Taken() for _ in range(50)]
    for sink in sinks:
        read(follower, turn, sink)
    for sink in sinks:
        until(lambda sink=sink: len(sink.events) == 1, 10, "the reader has the first event")
    before = log.reads
    say(stage, turn, "a", "b")
    for sink in sinks:
        has(sink, "a", "b")
        assert [event.id for event in sink.events] == [1, 2, 3]
    assert log.reads - before < len(sinks)


def test_a_reader_that_comes_later_gets_what_it_missed_and_then_the_same(stage: Stage, follower: TurnFollower) -> None:
    turn, first, second, third = stage.submit(), Taken(), Taken(), Taken()
    read(follower, turn, first)
    say(stage, turn, *range(200))
    has(first, *range(200))
    read(follower, turn, second)
    read(follower, turn, third, after=150)
    say(stage, turn, "last")
    has(second, *range(200), "last")
    has(third, *range(149, 200), "last")


def test_a_slow_reader_holds_up_nobody_and_misses_nothing(stage: Stage, follower: TurnFollower) -> None:
    turn, slow, quick = stage.submit(), Taken(room=1), Taken()
    reader = read(follower, turn, slow)
    until(lambda: slow.events, 10, "the slow reader has taken all that it takes")
    read(follower, turn, quick)
    say(stage, turn, *range(100))
    has(quick, *range(100))
    assert slow.texts() == []
    slow.room = float("inf")
    follower.resume(reader)
    has(slow, *range(100))


def test_one_readers_rebuild_delays_no_other_reader(stage: Stage, follower: TurnFollower, turns: HeldTurns) -> None:
    lost, turn, waiting, quick = stage.submit(session="a"), stage.submit(session="b"), Taken(), Taken()
    turns.held = lost.id
    stage.redis.delete(f"loom:events:{lost.id}")
    read(follower, lost, waiting)
    assert turns.entered.wait(10)
    read(follower, turn, quick)
    say(stage, turn, "a")
    has(quick, "a")
    assert waiting.events == []
    turns.let_go.set()
    until(lambda: waiting.events, 10, "the log is rebuilt")


def test_events_and_ends_are_found_though_redis_has_cut_the_news_off(stage: Stage, follower: TurnFollower) -> None:
    turn, other, sink, told = stage.submit(session="a"), stage.submit(session="b"), Taken(), Told()
    read(follower, turn, sink)
    follower.expect(other.id).begin(told, until_s=float("inf"))
    until(lambda: sink.events, 10, "the reader has the first event")
    stage.redis.client_kill_filter(_type="pubsub")
    say(stage, turn, "a")
    with stage.database.write() as tx:
        tx.exec_driver_sql(f"UPDATE turns SET status = 'completed' WHERE id = '{other.id}'")
    has(sink, "a")
    until(lambda: told.count == 1, 10, "the wait is over")
    stage.events.append(turn.id, [("turn.completed", {"id": turn.id})], least=1)
    until(lambda: sink.ends == [None], 10, "the reader has the end")


def test_a_wait_that_begins_after_the_end_was_heard_of_is_over_at_once(stage: Stage, follower: TurnFollower) -> None:
    turn, told, late = stage.submit(), Told(), Told()
    follower.expect(turn.id).begin(told, until_s=float("inf"))
    wait = follower.expect(turn.id)
    until(lambda: stage.redis.pubsub_channels("loom:ended"), 10, "the follower listens")
    stage.events.append(turn.id, [("turn.completed", {"id": turn.id})], least=1)
    until(lambda: told.count == 1, 10, "the end was heard of")
    wait.begin(late, until_s=float("inf"))
    assert late.count == 1
    assert follower.count == 0


def test_a_wait_for_what_was_asked_for_a_moment_ago_hears_of_an_end_since_then(
    stage: Stage, follower: TurnFollower
) -> None:
    turn, other, told, late = stage.submit(session="a"), stage.submit(session="b"), Told(), Told()
    follower.expect(other.id).begin(told, until_s=float("inf"))
    until(lambda: stage.redis.pubsub_channels("loom:ended"), 10, "the follower listens")
    asked_s = time.monotonic()
    for each in (turn, other):
        stage.events.append(each.id, [("turn.completed", {"id": each.id})], least=1)
    until(lambda: told.count == 1, 10, "the ends were heard of")
    follower.expect(turn.id, since_s=asked_s).begin(late, until_s=float("inf"))
    assert late.count == 1


def test_a_wait_that_is_closed_is_not_told(stage: Stage, follower: TurnFollower) -> None:
    turn, told, other = stage.submit(), Told(), Told()
    wait = follower.expect(turn.id)
    wait.begin(told, until_s=float("inf"))
    wait.close()
    follower.expect(turn.id).begin(other, until_s=0.0)
    until(lambda: other.count == 1, 10, "the other wait is over")
    assert (told.count, follower.count) == (0, 0)


def test_a_reader_whose_key_has_ended_is_sent_home(stage: Stage, follower: TurnFollower) -> None:
    turn, barred, other = stage.submit(), Taken(), Taken()
    barred.is_key_ended = True
    read(follower, turn, barred)
    read(follower, turn, other)
    until(lambda: barred.ends == [None], 10, "the reader is sent home")
    say(stage, turn, "a")
    has(other, "a")


def test_readers_of_a_deleted_session_are_told_that_the_turn_is_gone(stage: Stage, follower: TurnFollower) -> None:
    turn, sink, told = stage.submit(), Taken(), Told()
    read(follower, turn, sink)
    follower.expect(turn.id).begin(told, until_s=float("inf"))
    until(lambda: sink.events, 10, "the reader has the first event")
    stage.events.forget(stage.sessions.delete(WORKSPACE, "s1")[0].turns)
    until(lambda: sink.ends and told.count == 1, 10, "the reader is told")
    assert isinstance(sink.ends[0], NotFound)


def test_readers_are_cut_off_while_the_database_does_not_answer(stage: Stage, log: CountedLog) -> None:
    class Broken(TurnStatuses):
        def of(self, turn_ids: Any) -> dict[str, str]:
            raise Unavailable("The database does not answer.")

    turn, sink, told = stage.submit(), Taken(), Told()
    with closing(TurnFollower(EventSource(stage.turns, log), Broken(stage.database), log)) as follower:
        read(follower, turn, sink)
        follower.expect(turn.id).begin(told, until_s=float("inf"))
        until(lambda: sink.ends and told.count == 1, 10, "all are told")
    assert isinstance(sink.ends[0], Unavailable)


def test_a_reader_that_nothing_comes_for_hears_what_its_turn_waits_for(stage: Stage, follower: TurnFollower) -> None:
    turn, sink = stage.submit(), Taken()
    read(follower, turn, sink)
    until(lambda: sink.events, 10, "it reads")
    follower.tick(time.monotonic() + HEARTBEAT_S + 1)
    until(lambda: sink.waits, 10, "it hears")
    assert (sink.waits, [event.id for event in sink.events]) == (["queued"], [1])


def test_who_leaves_or_comes_while_the_process_stops_is_told_of_the_end_once(
    stage: Stage, follower: TurnFollower
) -> None:
    turn, sinks, told = stage.submit(), [Taken() for _ in range(3)], Told()
    leaving = read(follower, turn, sinks[0])
    read(follower, turn, sinks[1])
    for _ in range(2):
        follower.leave(leaving)
    until(lambda: sinks[0].ends, 10, "it has left")
    assert follower.count == 1
    follower.drain()
    read(follower, turn, sinks[2])
    follower.expect(turn.id).begin(told, until_s=float("inf"))
    until(lambda: not follower.count, 10, "all are gone")
    assert [sink.ends for sink in sinks] == [[None]] * 3
    assert told.count == 1
