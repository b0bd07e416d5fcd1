"""Memory is compressed step by step, and whatever happens between two steps, nothing is lost and nothing done twice."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from sqlalchemy import insert

from loom_worker.core.errors import Interrupted, Overloaded, ProviderFailed, Unavailable
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.chat import Request
from loom_worker.core.values.memory import MemoryPolicy
from loom_worker.core.values.sessions import NewSession, Session
from loom_worker.memory.compress import STEPS, Compressor
from loom_worker.memory.embed import AGAIN_MS
from loom_worker.memory.summarize import CompressionRules
from loom_worker.store import rows
from loom_worker.store.budgets import Budgets
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.facts import Facts
from loom_worker.store.ledger import Ledger
from loom_worker.store.memory import AHEAD_MS, Memories, NewMemory
from loom_worker.store.schema import messages
from loom_worker.store.sessions import Sessions
from loom_worker.store.vectors import MessageVectors
from tests.support.notes import Notes
from tests.unit.memory.summary.conversation import BY_NUMBER, Says, count, means, talk
from tests.unit.memory.vectors import NOW_MS as VECTORS_NOW_MS
from tests.unit.memory.vectors import Told, embedding
from tests.unit.store.made import mark_due

NOW_MS = 1_760_000_000_000


def compress_all(lane: str, compressor: Compressor) -> None:
    """As often as there is more to do."""
    while compressor.compress(lane):
        pass


@dataclass
class Rules:
    """Agents whose sessions are compressed by what a function says."""

    compression: Callable[[Session], CompressionRules]


class Living:
    """Two workers are alive."""

    def alive(self) -> frozenset[str]:
        return frozenset({"worker-1", "worker-2"})


@dataclass
class Room:
    """A database with sessions, and the compressor of one worker."""

    database: Database
    compressor: Compressor

    def session(self, name: str, *, turns: int, words: int = 30) -> Session:
        """A session with so many turns in it, whose memory is due."""
        session = Sessions(self.database).create("default", NewSession(name), now_ms=NOW_MS)
        said = [
            {**rows.message_columns(replace(each, id=f"{name}-{each.id}"), lane=session.lane), "session_id": name}
            for each in talk(turns, words=words)
        ]
        with self.database.write(lock=WHOLE) as tx:
            tx.execute(insert(messages), said)
        self.mark_due(session)
        return session

    def with_rules(self, of: Callable[[Session], CompressionRules]) -> Compressor:
        """The compressor of a worker with other rules."""
        return replace(self.compressor, agents=Rules(of))

    def l1(self, session: Session) -> list[str]:
        """The ids of the messages in L1."""
        return [message.id for message in self.compressor.memories.load(session.lane, limit=10_000).history]

    def at_work(self) -> list[str]:
        """Names of the sessions that are being compressed."""
        return [
            session.id
            for session in Sessions(self.database).page("default", limit=50, after=None).items
            if session.lane in self.compressor.in_progress
        ]

    def mark_due(self, session: Session) -> None:
        """As the end of a turn does."""
        mark_due(self.database, session.lane, due_ms=NOW_MS)


@pytest.fixture
def room(database: Database) -> Room:
    compressor = Compressor(
        worker="worker-1",
        memories=Memories(database),
        facts=Facts(database),
        budgets=Budgets(database),
        agents=Rules(lambda _: means(Says())),
        workers=Living(),
        stopping=Stopping(1.0),
        slots=threading.Semaphore(2),
        clock_ms=lambda: NOW_MS,
    )
    return Room(database, compressor)


def test_the_oldest_turns_of_a_full_l1_become_a_summary(room: Room) -> None:
    session = room.session("s1", turns=7)
    room.compressor.compress(session.lane)
    state = room.compressor.memories.load(session.lane, limit=100).state
    assert room.l1(session) == [f"s1-msg_{n}" for n in range(4, 14)]
    assert state.l2_text == "Ada sends the orders."
    [change] = state.changes
    assert (change.kind, change.level, change.messages, change.by) == ("compressed", "normal", 4, "claude-compressor")


def test_a_session_at_ease_is_left_as_it_is(room: Room) -> None:
    session = room.session("s1", turns=5)
    room.compressor.compress(session.lane)
    assert len(room.l1(session)) == 10
    assert room.compressor.memories.due(due_before_ms=NOW_MS, limit=10) == ()


def test_a_long_l1_is_compressed_until_it_is_at_ease(room: Room) -> None:
    session = room.session("s1", turns=100)
    compress_all(session.lane, room.compressor)
    assert 4 <= len(room.l1(session)) <= 10


def test_nothing_said_is_ever_outside_of_l1_and_the_summaries(room: Room) -> None:
    session = room.session("s1", turns=60, words=200)
    model = Says(lambda request: "noted " + " ".join(request.messages[0].text.split()[:200]))
    compress_all(session.lane, room.with_rules(lambda _: means(model, l2_tokens=500)))
    remembered = room.compressor.memories.load(session.lane, limit=10_000)
    snapshots = room.compressor.memories.snapshots("default", "s1", limit=500, after=None).items
    state = remembered.state
    spans = sorted(_span(room, snapshot.from_message_id, snapshot.to_message_id) for snapshot in snapshots)
    spans += [(state.l2_from_n, state.first_n - 1)] if state.l2_from_n else []
    assert spans[0][0] == 1
    assert all(before[1] + 1 == after[0] for before, after in pairwise(spans))
    assert spans[-1][1] + 1 == remembered.history[0].n
    assert remembered.history[-1].id == "s1-msg_119"


def _span(room: Room, first: str | None, last: str | None) -> tuple[int, int]:
    with room.database.read() as tx:
        numbers = dict(tx.exec_driver_sql("SELECT id, n FROM messages").all())
    return numbers[first], numbers[last]


def test_a_full_l2_becomes_a_snapshot_and_begins_anew_from_a_digest(room: Room) -> None:
    session = room.session("s1", turns=15)
    room.with_rules(lambda _: means(Says(lambda _: "Ada sends orders. " * 30), l2_tokens=390)).compress(session.lane)
    state = room.compressor.memories.load(session.lane, limit=100).state
    [snapshot] = room.compressor.memories.snapshots("default", "s1", limit=10, after=None).items
    assert [change.kind for change in state.changes] == ["compressed"] * 3 + ["snapshot"]
    assert state.changes[-1].snapshot_id == snapshot.id
    assert 0 < len(state.l2_text) < len(snapshot.content)
    assert (snapshot.from_message_id, snapshot.to_message_id) == ("s1-msg_0", "s1-msg_19")


def test_a_model_that_fails_holds_nothing_up(room: Room) -> None:
    session = room.session("s1", turns=7)
    room.with_rules(lambda _: means(Says(lambda _: ProviderFailed("no key")))).compress(session.lane)
    [change] = room.compressor.memories.load(session.lane, limit=100).state.changes
    assert change.by == "heuristic"


def test_a_worker_that_dies_before_it_applies_leaves_the_session_to_the_next(room: Room) -> None:
    session = room.session("s1", turns=7)
    dead = room.compressor.memories.claim(session.lane, worker="worker-9", alive=frozenset(), now_ms=NOW_MS)
    assert dead is not None
    room.compressor.compress(session.lane)
    assert len(room.l1(session)) == 10
    assert not room.compressor.memories.apply(
        session.lane,
        dead.state,
        NewMemory(replace(dead.state, version=1, first_n=99)),
        now_ms=NOW_MS,
    )
    assert len(room.l1(session)) == 10


def test_a_session_that_a_living_worker_holds_is_left_to_it(room: Room) -> None:
    session = room.session("s1", turns=7)
    room.compressor.memories.claim(session.lane, worker="worker-2", alive=frozenset(), now_ms=NOW_MS)
    room.compressor.compress(session.lane)
    assert len(room.l1(session)) == 14
    assert room.compressor.memories.due(due_before_ms=NOW_MS, limit=10) == (session.lane,)


def test_a_worker_that_stops_leaves_the_session_due(room: Room) -> None:
    session = room.session("s1", turns=7)
    room.with_rules(lambda _: means(Says(lambda _: Interrupted("stopping")))).compress(session.lane)
    assert len(room.l1(session)) == 14
    assert room.compressor.memories.due(due_before_ms=NOW_MS, limit=10) == (session.lane,)
    replace(room.compressor, worker="worker-2").compress(session.lane)
    assert len(room.l1(session)) == 10


def test_what_is_said_while_a_summary_is_written_is_looked_at_before_the_worker_leaves(room: Room) -> None:
    session = room.session("s1", turns=7)
    woken: list[bool] = []

    def meanwhile(_: object) -> str:
        if not woken:
            woken.append(True)
            room.mark_due(session)
        return "Ada sends the orders."

    compress_all(session.lane, room.with_rules(lambda _: means(Says(meanwhile))))
    assert room.compressor.memories.due(due_before_ms=NOW_MS + 10, limit=10) == ()


def test_the_session_pays_for_its_summary(room: Room) -> None:
    session = room.session("s1", turns=7)
    room.compressor.compress(session.lane)
    assert Sessions(room.database).get("default", "s1").usage.cost_usd == 0.5
    [total] = Ledger(room.database).totals("default", group_by="model")
    assert (total["key"], total["turns"], total["cost_usd"]) == ("claude-compressor", 0, 0.5)


def test_one_doorbell_serves_all_sessions_that_are_due(room: Room) -> None:
    both = [room.session(name, turns=7) for name in ("s1", "s2")]
    for session in both:
        room.mark_due(session)
    room.compressor.serve(both[0].lane)
    assert [len(room.l1(session)) for session in both] == [10, 10]


def test_a_doorbell_that_finds_no_place_is_answered_at_once(room: Room) -> None:
    session = room.session("s1", turns=7)
    compressor = replace(room.compressor, slots=threading.Semaphore(0))
    compressor.serve(session.lane)
    assert len(room.l1(session)) == 14


def test_a_place_is_given_back_when_the_database_fails(room: Room) -> None:
    def fail(_: Session) -> CompressionRules:
        raise Unavailable("the disk is full")

    session = room.session("s1", turns=7)
    compressor = replace(room.with_rules(fail), slots=threading.Semaphore(1))
    with pytest.raises(Unavailable):
        compressor.serve(session.lane)
    replace(compressor, agents=room.compressor.agents).serve(session.lane)
    assert len(room.l1(session)) == 10


def test_each_compression_is_reported_with_what_was_made_of_it(room: Room) -> None:
    session, notes = room.session("s1", turns=7), Notes()

    def fail(_: Session) -> CompressionRules:
        raise Unavailable("what a user wrote")

    for error in (Interrupted("stopping"), ProviderFailed("no key")):
        rules = room.with_rules(lambda _, error=error: means(Says(lambda _: error)))
        replace(rules, monitor=notes).compress(session.lane)
    room.mark_due(session)
    with pytest.raises(Unavailable):
        replace(room.with_rules(fail), monitor=notes).compress(session.lane)
    assert [(how, words) for how, _, words in notes.of("summary")] == [
        *(("started", ""), ("waits", "another worker")),
        *(("started", ""), ("succeeded", "summaries: compressed by heuristic, as the model failed")),
        *(("started", ""), ("failed", "Unavailable")),
    ]
    first, *_, last = [note.work for note in notes.all]
    assert (first.ids, first.id, last.id) == (("s1",), f"summary:{session.lane}:0", f"summary:{session.lane}:1")


def test_a_policy_of_large_batches_takes_them(room: Room) -> None:
    session = room.session("s1", turns=7)
    policy = replace(BY_NUMBER, batches=(8, 8, 8))
    room.with_rules(lambda _: means(Says(), policy)).compress(session.lane)
    assert len(room.l1(session)) == 6


def test_a_full_l1_becomes_one_summary_and_not_a_dozen(room: Room) -> None:
    session, model = room.session("s1", turns=90, words=30), Says()
    compress_all(session.lane, room.with_rules(lambda _: means(model, MemoryPolicy())))
    assert len(model.asked) == 1
    assert 60 < len(room.l1(session)) < 90


def test_a_batch_is_no_longer_than_the_compressor_can_read(room: Room) -> None:
    session, model = room.session("s1", turns=90, words=30), Says()
    narrow = replace(means(model, MemoryPolicy()), budget_tokens=1_500)
    compress_all(session.lane, room.with_rules(lambda _: narrow))
    assert len(model.asked) > 1
    assert all(count(request.messages[0].text) <= 1_500 for request in model.asked)
    assert not any("characters …]" in request.messages[0].text for request in model.asked)


@pytest.mark.heavy
def test_an_l1_of_thousands_of_messages_takes_few_summaries(room: Room) -> None:
    session, model = room.session("s1", turns=2_000, words=3), Says()
    compress_all(session.lane, room.with_rules(lambda _: means(model)))
    assert len(room.l1(session)) <= 10
    assert len(model.asked) < 70


def test_a_digest_is_not_digested_again(room: Room) -> None:
    session, model = room.session("s1", turns=15), Says(lambda _: "Ada sends orders. " * 40)
    compress_all(
        session.lane, room.with_rules(lambda _: means(model, replace(BY_NUMBER, max_l2_tokens=60), l2_tokens=60))
    )
    kinds = [change.kind for change in room.compressor.memories.load(session.lane, limit=100).state.changes]
    assert all(pair != ("snapshot", "snapshot") for pair in pairwise(kinds))
    assert len(model.asked) < 12


def test_a_session_of_many_steps_lets_others_go_first(room: Room) -> None:
    long, short = room.session("long", turns=300), room.session("short", turns=7)
    for session in (long, short):
        room.mark_due(session)
    order: list[str] = []

    def told(request: Request) -> str:
        order.append("short" if "short" in room.at_work() else "long")
        return "Ada sends the orders."

    room.with_rules(lambda _: means(Says(told))).serve(long.lane)
    assert "short" in order[: STEPS + 2]
    assert len(room.l1(long)) <= 10


def test_a_hold_that_could_not_be_given_back_is_taken_up_again(room: Room) -> None:
    session = room.session("s1", turns=7)
    room.compressor.memories.claim(session.lane, worker="worker-1", alive=frozenset(), now_ms=NOW_MS)
    room.compressor.compress(session.lane)
    assert len(room.l1(session)) == 10


def test_a_session_that_cannot_be_compressed_keeps_no_other_waiting(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    broken, sound = room.session("broken", turns=7), room.session("sound", turns=7)
    for session in (broken, sound):
        room.mark_due(session)

    def of(session: Session) -> CompressionRules:
        if session.id == "broken":
            raise TypeError("nobody thought of that")
        return means(Says())

    room.with_rules(of).serve(broken.lane)
    assert (len(room.l1(broken)), len(room.l1(sound))) == (14, 10)
    assert "nobody thought of that" in caplog.text
    assert room.compressor.memories.due(due_before_ms=NOW_MS, limit=5) == (broken.lane,)


def test_nothing_of_a_session_that_is_deleted_meanwhile_reaches_the_compressor(room: Room) -> None:
    session, model = room.session("s1", turns=7), Says()

    def delete_first(_: Session) -> CompressionRules:
        Sessions(room.database).delete("default", "s1")
        return means(model)

    assert not room.with_rules(delete_first).compress(session.lane)
    assert model.asked == []


def test_a_session_at_ease_gets_its_vectors(room: Room) -> None:
    session = room.session("s1", turns=3)
    work = replace(room.compressor, embedding=embedding(room.database, Told()))
    assert not work.compress(session.lane)
    assert MessageVectors(room.database).embedded(session.lane, "scripted/hash") == 6
    assert work.memories.due(due_before_ms=NOW_MS, limit=10) == ()


def test_a_session_whose_embedding_provider_is_down_is_due_again_later(room: Room) -> None:
    session = room.session("s1", turns=3)
    work = replace(room.compressor, embedding=embedding(room.database, Told(fails=lambda _: Overloaded("busy", None))))
    assert not work.compress(session.lane)
    again_ms = VECTORS_NOW_MS + AGAIN_MS
    assert work.memories.due(due_before_ms=again_ms, limit=10) == (session.lane,)
    assert work.memories.due(due_before_ms=again_ms - AHEAD_MS, limit=10) == ()


def test_a_session_that_becomes_due_while_it_is_embedded_is_taken_again(room: Room) -> None:
    session = room.session("s1", turns=3)
    told = Told(before=lambda: room.mark_due(session))
    assert replace(room.compressor, embedding=embedding(room.database, told)).compress(session.lane)
