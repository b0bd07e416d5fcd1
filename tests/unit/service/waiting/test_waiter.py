"""Readers and waiters that hold no thread: what each is given, and what one of them costs the others."""

import math
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import pytest

from loom_worker.core.errors import NotFound, Unavailable
from loom_worker.core.values.notifications import Event
from loom_worker.core.values.turns import Step, Turn
from loom_worker.events.log import EventLog
from loom_worker.service.waiting.sources import EventSource, Place
from loom_worker.service.waiting.waiter import Waiter
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.turns import Turns, TurnStatuses
from tests.support.stage import WORKSPACE, Stage
from tests.support.until import until
from tests.support.waiting import LoopThread, Taken


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
    return CountedLog(stage.redis)


@pytest.fixture
def turns(stage: Stage) -> HeldTurns:
    return HeldTurns(stage)


class Texts:
    """Knows what is waited for without looking."""

    def with_wait(self, turn: Turn) -> Turn:
        return turn

    def in_words(self, _turn: Turn) -> str:
        return "queued"


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    with LoopThread() as made:
        yield made


@pytest.fixture
def waiter(stage: Stage, log: CountedLog, turns: HeldTurns, loop: LoopThread) -> Iterator[Waiter[Turn]]:
    made = Waiter(EventSource(turns, log, TurnStatuses(stage.database)), log.feed(), Texts())
    with closing(made):
        yield made


@pytest.fixture
def clients(loop: LoopThread, waiter: Waiter[Turn]) -> "Clients":
    return Clients(loop, waiter)


class Clients:
    """Who reads and waits."""

    def __init__(self, loop: LoopThread, waiter: Waiter[Turn]) -> None:
        self.loop, self.waiter = loop, waiter

    def read(self, turn: Turn, sink: Taken, after: int = 0) -> "Future[None]":
        place = Place(WORKSPACE, turn.id, after, is_finished=False)
        return self.loop.start(self.waiter.follow(place, sink))

    def wait(self, turn: Turn, *, since_s: float = math.inf, until_s: float = math.inf) -> "Future[None]":
        since_s = min(since_s, time.monotonic())
        return self.loop.start(self.waiter.ended(turn.id, since_s=since_s, until_s=until_s))


def say(stage: Stage, turn: Turn, *texts: object) -> None:
    for text in texts:
        stage.events.append(turn.id, [("x", {"text": text})], least=1)


def has(sink: Taken, *texts: object) -> None:
    until(lambda: sink.texts() == [*texts], 10, f"the reader has {texts}, not {sink.texts()}")


def test_all_readers_of_a_turn_get_its_events_and_the_log_is_read_once_for_them(
    stage: Stage, clients: Clients, log: CountedLog
) -> None:
    turn, sinks = stage.submit(), [Taken() for _ in range(50)]
    for sink in sinks:
        clients.read(turn, sink)
    for sink in sinks:
        until(lambda sink=sink: len(sink.events) == 1, 10, "the reader has the first event")
    before = log.reads
    say(stage, turn, "a", "b")
    for sink in sinks:
        has(sink, "a", "b")
        assert [event.id for event in sink.events] == [1, 2, 3]
    assert log.reads - before < len(sinks)


def test_a_reader_that_comes_later_gets_what_it_missed_and_then_the_same(stage: Stage, clients: Clients) -> None:
    turn, first, second, third = stage.submit(), Taken(), Taken(), Taken()
    clients.read(turn, first)
    say(stage, turn, *range(200))
    has(first, *range(200))
    clients.read(turn, second)
    clients.read(turn, third, after=150)
    say(stage, turn, "last")
    has(second, *range(200), "last")
    has(third, *range(149, 200), "last")


def test_a_slow_reader_holds_up_nobody_and_misses_nothing(stage: Stage, clients: Clients) -> None:
    turn, slow, quick = stage.submit(), Taken(room=1), Taken()
    clients.read(turn, slow)
    until(lambda: slow.events, 10, "the slow reader has taken all that it takes")
    clients.read(turn, quick)
    say(stage, turn, *range(100))
    has(quick, *range(100))
    assert slow.texts() == []
    slow.room = math.inf
    has(slow, *range(100))


def test_a_reader_that_wants_no_more_gets_no_more(stage: Stage, clients: Clients) -> None:
    turn, sink, other = stage.submit(), Taken(most=2), Taken()
    reading = clients.read(turn, sink)
    clients.read(turn, other)
    until(lambda: sink.events and other.events, 10, "both read")
    say(stage, turn, "a")
    reading.result(60)
    say(stage, turn, "b")
    has(other, "a", "b")
    has(sink, "a")


def test_one_readers_rebuild_delays_no_other_reader(stage: Stage, clients: Clients, turns: HeldTurns) -> None:
    lost, turn, waiting, quick = stage.submit(session="a"), stage.submit(session="b"), Taken(), Taken()
    turns.held = lost.id
    stage.redis.delete(f"loom:events:{lost.id}")
    clients.read(lost, waiting)
    assert turns.entered.wait(10)
    clients.read(turn, quick)
    say(stage, turn, "a")
    has(quick, "a")
    assert waiting.events == []
    turns.let_go.set()
    until(lambda: waiting.events, 10, "the log is rebuilt")


def test_events_and_ends_are_found_though_redis_has_cut_the_news_off(stage: Stage, clients: Clients) -> None:
    turn, other, sink = stage.submit(session="a"), stage.submit(session="b"), Taken()
    reading, waiting = clients.read(turn, sink), clients.wait(other)
    until(lambda: sink.events, 10, "the reader has the first event")
    stage.redis.client_kill_filter(_type="pubsub")
    say(stage, turn, "a")
    with stage.database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql(f"UPDATE turns SET status = 'completed' WHERE id = '{other.id}'")
    has(sink, "a")
    waiting.result(60)
    stage.events.append(turn.id, [("turn.completed", {"id": turn.id})], least=1)
    reading.result(60)


def test_news_is_heard_again_once_redis_is_back(stage: Stage, clients: Clients) -> None:
    turn, sink = stage.submit(), Taken()
    clients.read(turn, sink)
    until(lambda: sink.events, 10, "the reader has the first event")
    stage.redis.client_kill_filter(_type="pubsub")
    until(lambda: stage.redis.pubsub_channels("loom:ended"), 10, "it listens again")
    until(lambda: stage.redis.pubsub_channels(f"loom:news:{turn.id}"), 10, "it listens to the turn's log again")
    say(stage, turn, "a")
    has(sink, "a")


def test_a_wait_that_begins_after_the_end_was_heard_of_is_over_at_once(stage: Stage, clients: Clients) -> None:
    """Also for one who asked a moment ago, before the turn had an id."""
    turn, other = stage.submit(session="a"), stage.submit(session="b")
    waiting = clients.wait(other)
    until(lambda: stage.redis.pubsub_channels("loom:ended"), 10, "it listens")
    asked_s = time.monotonic()
    for each in (turn, other):
        stage.events.append(each.id, [("turn.completed", {"id": each.id})], least=1)
    waiting.result(60)
    clients.wait(turn, since_s=asked_s).result(60)
    assert clients.waiter.count == 0


def test_one_who_looked_before_ends_were_heard_of_has_the_turn_looked_up(stage: Stage, clients: Clients) -> None:
    turn, asked_s = stage.submit(), time.monotonic()
    with stage.database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("UPDATE turns SET status = 'completed'")
    clients.wait(turn, since_s=asked_s).result(60)


def test_a_wait_that_is_given_up_is_counted_no_more(stage: Stage, clients: Clients) -> None:
    turn = stage.submit()
    given_up = clients.wait(turn)
    until(lambda: clients.waiter.count == 1, 10, "it waits")
    given_up.cancel()
    clients.wait(turn, until_s=0.0).result(60)
    until(lambda: clients.waiter.count == 0, 10, "nobody waits")


def test_a_reader_whose_key_has_ended_is_sent_home(stage: Stage, clients: Clients) -> None:
    turn, barred, other = stage.submit(), Taken(), Taken()
    barred.is_key_ended = True
    reading = clients.read(turn, barred)
    clients.read(turn, other)
    reading.result(60)
    say(stage, turn, "a")
    has(other, "a")


def test_readers_of_a_deleted_session_are_told_that_the_turn_is_gone(stage: Stage, clients: Clients) -> None:
    turn, sink = stage.submit(), Taken()
    reading, waiting = clients.read(turn, sink), clients.wait(turn)
    until(lambda: sink.events, 10, "the reader has the first event")
    stage.events.forget(stage.sessions.delete(WORKSPACE, "s1")[0].turns)
    waiting.result(60)
    with pytest.raises(NotFound):
        reading.result(60)


def test_readers_are_cut_off_while_the_database_does_not_answer(
    stage: Stage, log: CountedLog, loop: LoopThread
) -> None:
    class Broken(TurnStatuses):
        def of(self, turn_ids: Any) -> dict[str, str]:
            raise Unavailable("The database does not answer.")

    turn = stage.submit()
    with closing(Waiter(EventSource(stage.turns, log, Broken(stage.database)), log.feed(), Texts())) as waiter:
        clients = Clients(loop, waiter)
        reading, waiting = clients.read(turn, Taken()), clients.wait(turn)
        waiting.result(60)
        with pytest.raises(Unavailable):
            reading.result(60)


def test_the_database_is_asked_while_redis_answers_nobody(stage: Stage, loop: LoopThread) -> None:
    let_go = threading.Event()

    class Hanging(CountedLog):
        def read_many(self, places: Mapping[str, int], *, most: int) -> dict[str, tuple[Event, ...]]:
            assert let_go.wait(60)
            return {}

        def read(self, *_: Any, **__: Any) -> tuple[Event, ...]:
            assert let_go.wait(60)
            return ()

    log = Hanging(stage.redis)
    turns = [stage.submit(session=f"s{n}") for n in range(9)]
    with closing(Waiter(EventSource(stage.turns, log, TurnStatuses(stage.database)), log.feed(), Texts())) as waiter:
        for turn in turns[1:]:
            loop.start(waiter.follow(Place(WORKSPACE, turn.id, 0, is_finished=True), Taken()))
        waiting = Clients(loop, waiter).wait(turns[0])
        with stage.database.write(lock=WHOLE) as tx:
            tx.exec_driver_sql("UPDATE turns SET status = 'completed'")
        waiting.result(60)
        let_go.set()


@pytest.mark.heavy
def test_a_reader_that_nothing_comes_for_hears_what_its_turn_waits_for(stage: Stage, clients: Clients) -> None:
    turn, sinks = stage.submit(), [Taken(), Taken()]
    for sink in sinks:
        clients.read(turn, sink)
    for sink in sinks:
        until(lambda sink=sink: sink.waits, 10, "it hears")
        assert (sink.waits, [event.id for event in sink.events]) == (["queued"], [1])


def test_who_leaves_or_comes_while_the_process_stops_is_sent_home(stage: Stage, clients: Clients) -> None:
    turn, waiter, slow = stage.submit(), clients.waiter, Taken(room=0)
    leaving, waiting = clients.read(turn, Taken()), clients.wait(turn)
    reading = [clients.read(turn, Taken()), clients.read(turn, slow)]
    until(lambda: waiter.count == 4, 10, "all are there")
    leaving.cancel()
    until(lambda: waiter.count == 3, 10, "it has left")
    waiter.drain()
    for each in (*reading, waiting, clients.read(turn, Taken()), clients.wait(turn)):
        each.result(60)
    assert waiter.count == 0
