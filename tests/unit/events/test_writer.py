"""The writer: what readers saw live is what the journal rebuilds, whatever is lost on the way."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_worker.core.errors import Unavailable
from loom_worker.core.values.calls import Call
from loom_worker.core.values.notifications import Event
from loom_worker.core.values.turns import Step, Turn
from loom_worker.events.log import FENCED, EventLog, Unsent
from loom_worker.events.rebuild import queued, rebuild
from loom_worker.events.writer import RETRY_S, EventFlusher, EventWriter
from tests.support.until import until

FLUSHER = EventFlusher()
TURN = Turn("turn_1", "lane", "s1", "w", "default", 1, "in_progress", "How many?", 0)


@dataclass
class Run:
    """A turn over all its owners, with the journal as the only thing that lasts."""

    events: EventLog
    valkey: redis.Redis
    turn: Turn = TURN
    journal: list[Step] = field(default_factory=list)
    streamed: str = ""
    """Text of the reply under way."""
    _writer: EventWriter | None = None
    _writers: ClassVar[list[EventWriter]] = []

    def __post_init__(self) -> None:
        for writer in self._writers:
            writer.close()  # what it has put off is nothing for the log of this run
        self.valkey.flushall()
        self.events.append(TURN.id, [("turn.queued", queued(TURN))], least=-1)
        self.take_over()

    def take_over(self) -> None:
        """Another owner goes on from the journal, once this one has written what it put off."""
        if self._writer is not None:
            self._writer.flush()
            self._writer.close()
        turn, steps = self.turn, tuple(self.journal)
        self.streamed = ""
        self._writer = EventWriter(self.events, TURN.id, lambda: rebuild(turn, steps), flusher=FLUSHER, fence=1)
        self._writers.append(self._writer)

    @property
    def writer(self) -> EventWriter:
        assert self._writer is not None
        return self._writer

    @property
    def n(self) -> int:
        return len(self.journal)

    def emit(self) -> None:
        self.writer.emit("context.built", {"tokens": {}})

    def delta(self, text: str = "ab") -> None:
        self.streamed += text
        self.writer.delta(text, reply_n=self.n)

    def drop(self) -> None:
        self.writer.drop_deltas(reply_n=self.n)
        self.writer.emit("turn.retrying", {"reason": "cut"})
        self.streamed = ""

    def save(self) -> None:
        """Journal the reply and what was told with it."""
        self.journal.append(Step(self.n, "reply", {"text": self.streamed}))
        self.streamed = ""
        log = self.writer.take_log()
        if log is not None:
            self.journal.append(Step(self.n, "events", log))

    def park(self) -> None:
        """Save, have a tool finish meanwhile, and go on with another owner."""
        call = self.ended_call("w9")
        self.writer.flush()
        self.turn = replace(self.turn, calls=(*self.turn.calls, call))
        self.events.append(TURN.id, [("tool_call.completed", call.as_json())], least=1)
        self.take_over()

    def tell_result(self) -> None:
        """A call that ran in place."""
        call = self.ended_call("w1")
        self.turn = replace(self.turn, calls=(*self.turn.calls, call))
        self.writer.emit("tool_call.completed", call.as_json())

    def ended_call(self, worker: str) -> Call:
        """Journal a reply that asks for a tool; the call, done."""
        reply_n = self.n
        self.writer.emit("tool_call.started", {})
        self.save()
        place = len(self.turn.calls)
        call = Call(f"toolu_{place}", "add", {}, place, reply_n, status="completed", worker=worker, content="3")
        return replace(call, finished_ms=place)

    def die(self) -> None:
        """The owner dies; its deltas were seen and are in no journal."""
        self.take_over()
        self.writer.emit("turn.retrying", {"reason": "died"})

    def flush(self) -> None:
        """Redis loses everything while the owner lives and goes on."""
        self.writer.flush()
        self.valkey.flushall()
        self.emit()

    def live(self) -> tuple[Event, ...]:
        self.writer.flush()
        return self.events.read(TURN.id, after=0)

    def rebuilt(self) -> tuple[Event, ...]:
        return rebuild(self.turn, self.journal)


MOVES: dict[str, Callable[[Run], None]] = {
    "emit": Run.emit,
    "delta": Run.delta,
    "empty delta": lambda run: run.delta(""),
    "drop": Run.drop,
    "save": Run.save,
    "park": Run.park,
    "result": Run.tell_result,
    "die": Run.die,
}


def equal_but_for_the_lost(live: tuple[Event, ...], rebuilt: tuple[Event, ...]) -> None:
    """Every event is the same, but where the journal knows only that there was one."""
    assert [event.id for event in live] == [event.id for event in rebuilt] == list(range(1, len(live) + 1))
    for one, two in zip(live, rebuilt, strict=True):
        assert one == two or (two.type, two.data) == ("output_text.delta", {"text": ""})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=st.lists(st.sampled_from(sorted(MOVES)), max_size=25))
def test_the_log_is_rebuilt_as_it_was_seen(events: EventLog, valkey: redis.Redis, moves: list[str]) -> None:
    run = Run(events, valkey)
    for move in moves:
        MOVES[move](run)
    run.emit()
    run.save()
    equal_but_for_the_lost(run.live(), run.rebuilt())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=st.lists(st.sampled_from(sorted(set(MOVES) - {"die", "drop"})), max_size=25))
def test_a_run_without_losses_is_rebuilt_to_the_letter(events: EventLog, valkey: redis.Redis, moves: list[str]) -> None:
    run = Run(events, valkey)
    for move in moves:
        MOVES[move](run)
    run.emit()
    run.save()
    assert run.live() == run.rebuilt()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=st.lists(st.sampled_from([*sorted(MOVES), "flush"]), max_size=25))
def test_a_redis_that_forgets_everything_is_given_the_log_again(
    events: EventLog, valkey: redis.Redis, moves: list[str]
) -> None:
    run = Run(events, valkey)
    for move in moves:
        (MOVES | {"flush": Run.flush})[move](run)
    run.emit()
    run.save()
    live, rebuilt = run.live(), run.rebuilt()
    assert [event.id for event in live] == [event.id for event in rebuilt] == list(range(1, len(live) + 1))
    pairs = zip(live, rebuilt, strict=True)
    assert all(one == two for one, two in pairs if "output_text.delta" not in (one.type, two.type))


def test_a_lost_log_is_written_again_with_the_ids_that_readers_know(events: EventLog, valkey: redis.Redis) -> None:
    run = Run(events, valkey)
    run.delta("one ")
    run.save()
    run.delta("two ")
    seen = run.live()
    valkey.flushall()
    run.delta("three")
    assert run.live()[: len(seen)] == seen
    assert run.live()[-1] == Event(len(seen) + 1, "output_text.delta", {"text": "three"})


def test_text_that_an_earlier_owner_told_and_could_not_journal_is_an_orphan(
    events: EventLog, valkey: redis.Redis
) -> None:
    run = Run(events, valkey)
    run.emit()
    run.take_over()
    run.delta("Hal")
    run.take_over()
    assert run.writer.orphans()[-1].data == {"text": "Hal"}
    run.writer.emit("turn.retrying", {})
    run.save()
    run.take_over()
    assert not run.writer.orphans()


def test_only_the_reply_that_broke_loses_its_text(events: EventLog, valkey: redis.Redis) -> None:
    run = Run(events, valkey)
    run.writer.delta("kept", reply_n=7)
    run.writer.delta("lost", reply_n=8)
    assert run.writer.drop_deltas(reply_n=8)
    assert not run.writer.drop_deltas(reply_n=8)
    log = run.writer.take_log()
    assert log == {"first": 2, "last": 3, "log": [{"reply": 7, "cuts": [4]}, {"lost": 1}]}


def test_the_journal_is_told_only_once(events: EventLog, valkey: redis.Redis) -> None:
    run = Run(events, valkey)
    run.emit()
    assert run.writer.take_log() is not None
    assert run.writer.take_log() is None


class Dead(EventLog):
    """A log whose Redis is gone until it is revived."""

    asked = 0
    is_dead = True

    def last_id(self, turn_id: str) -> int:
        self.asked += 1
        if self.is_dead:
            raise Unavailable("gone")
        return super().last_id(turn_id)

    def append(self, turn_id: str, events: Any, **named: Any) -> int | None:
        self.asked += 1
        if self.is_dead:
            raise Unavailable("gone")
        return super().append(turn_id, events, **named)


def test_what_was_put_off_is_written_by_itself_and_together(events: EventLog, valkey: redis.Redis) -> None:
    run = Run(events, valkey)
    for text in ("one ", "two ", "three"):
        run.delta(text)

    def told() -> list[str]:
        return [event.data["text"] for event in events.read(TURN.id, after=1)]

    until(lambda: "".join(told()) == "one two three", 5, "the flusher writes")
    assert len(told()) <= 3  # two, unless this machine paused between two pieces


def test_a_closed_pen_writes_nothing_of_what_it_put_off(events: EventLog, valkey: redis.Redis) -> None:
    run = Run(events, valkey)
    run.delta("first")
    before = events.last_id(TURN.id)
    run.delta("put off")
    run.writer.close()
    run.writer.flush()
    assert events.last_id(TURN.id) == before


def test_a_dead_redis_fails_nothing_and_is_asked_at_most_once_a_second(valkey: redis.Redis) -> None:
    dead = Dead(valkey)
    writer = EventWriter(dead, TURN.id, lambda: rebuild(TURN, ()), flusher=FLUSHER, fence=1)
    began = time.monotonic()
    for _ in range(1000):
        writer.delta("x", reply_n=0)
    assert dead.asked <= 1 + (time.monotonic() - began) / RETRY_S
    assert writer.take_log() == {"first": 2, "last": 2, "log": [{"reply": 0, "cuts": [1000]}]}


def test_what_a_dead_redis_missed_is_told_when_it_answers_again(valkey: redis.Redis) -> None:
    dead = Dead(valkey)
    writer = EventWriter(dead, TURN.id, lambda: rebuild(TURN, ()), flusher=FLUSHER, fence=1)
    writer.emit("turn.started", {})
    log = writer.take_log()
    dead.is_dead = False
    writer._paused_until_s = 0.0
    writer.emit("context.built", {})
    journal = (Step(0, "events", log or {}), Step(1, "events", writer.take_log() or {}))
    assert dead.read(TURN.id, after=0) == rebuild(TURN, journal)


def test_a_redis_that_is_not_there_never_raises(nowhere: EventLog, caplog: pytest.LogCaptureFixture) -> None:
    writer = EventWriter(nowhere, TURN.id, lambda: rebuild(TURN, ()), flusher=FLUSHER, fence=1)
    assert not writer.orphans()
    writer.emit("turn.started", {})
    assert writer.take_log() == {"first": 2, "last": 2, "log": [{"type": "turn.started", "data": {}}]}
    assert "event log" in caplog.text


def test_an_owner_that_slept_writes_nothing_once_a_newer_one_has_written(events: EventLog) -> None:
    old, new = (
        EventWriter(events, TURN.id, lambda: rebuild(TURN, ()), flusher=FLUSHER, fence=fence) for fence in (1, 2)
    )
    old.emit("turn.started", {"attempt": 1})
    new.emit("turn.retrying", {"attempt": 2})
    events.append(TURN.id, [("tool_call.completed", {"id": "toolu_1"})], least=1)
    old.delta("from the dead", reply_n=0)
    old.flush()
    new.delta("from the living", reply_n=0)
    new.flush()
    told = events.read(TURN.id, after=0)
    assert [event.data.get("text") for event in told if event.type == "output_text.delta"] == ["from the living"]
    assert [event.id for event in told] == list(range(1, len(told) + 1))


def test_an_owner_that_slept_does_not_restore_a_log_that_a_newer_one_began_anew(
    events: EventLog, valkey: redis.Redis
) -> None:
    old = EventWriter(events, TURN.id, lambda: rebuild(TURN, ()), flusher=FLUSHER, fence=1)
    for n in range(5):
        old.emit("context.built", {"n": n})
    old.flush()  # before Redis forgets: otherwise the flusher may write them between that and the newer owner
    valkey.flushall()
    EventWriter(events, TURN.id, lambda: rebuild(TURN, ()), flusher=FLUSHER, fence=2).emit("turn.retrying", {})
    old.emit("turn.completed", {})
    assert [event.type for event in events.read(TURN.id, after=0)] == ["turn.queued", "turn.retrying"]


def test_the_end_of_a_turn_is_told_and_its_slot_goes_on_whoever_writes_the_log_by_now(events: EventLog) -> None:
    told: list[Unsent] = []

    def append(unsent: Unsent) -> int | None:
        told.append(unsent)
        return unsent.appended(FENCED if len(told) > 1 else 2)

    writer = EventWriter(events, TURN.id, lambda: (), flusher=EventFlusher(), fence=1, first=2)
    writer.emit("turn.started", {})
    writer.end("turn.completed", {}, append)
    assert [kind for kind, _ in told[0].events] == ["turn.started", "turn.completed"]
    late = EventWriter(events, TURN.id, lambda: (), flusher=EventFlusher(), fence=1, first=2)
    late.end("turn.completed", {}, append)
    late.end("turn.completed", {}, append)  # it knows by now that the log is another's
    assert [len(unsent.events) for unsent in told] == [2, 1, 0]


class Unheard(EventLog):
    """A log that writes, while its answer does not come in time."""

    is_late = False

    def append(self, *args: Any, **named: Any) -> int | None:
        last = super().append(*args, **named)
        if self.is_late:
            raise Unavailable("Redis did not answer: timeout")
        return last


def test_text_that_was_written_without_an_answer_is_not_told_twice_and_what_follows_is_not_lost(
    valkey: redis.Redis,
) -> None:
    log = Unheard(valkey)
    writer = EventWriter(log, TURN.id, lambda: (), flusher=EventFlusher(), fence=1, first=1)
    log.is_late = True
    writer.delta("reply ", reply_n=0)
    writer.flush()
    log.is_late = False
    writer.delta("number ", reply_n=0)
    writer.delta("one", reply_n=0)
    until(lambda: writer.flush() or len(log.read(TURN.id, after=0)) >= 2, 10, "the writer tries again")
    writer.flush()
    assert "".join(event.data["text"] for event in log.read(TURN.id, after=0)) == "reply number one"
