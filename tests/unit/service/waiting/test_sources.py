"""Waiting for a turn and reading its events: as soon as they come, without gaps, whatever Redis forgets."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from loom_worker.agents import load as agent_files
from loom_worker.core import redis_client
from loom_worker.core.settings_tree import EventSettings
from loom_worker.core.values.chat import Reply, TextDelta
from loom_worker.core.values.notifications import Event
from loom_worker.core.values.turns import Step, Turn
from loom_worker.events.log import EventLog
from loom_worker.lanes.live_waits import LiveWaits
from loom_worker.service.waiting.reports import WaitReports
from loom_worker.service.waiting.waiter import TurnWaiter
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.turns import Turns, TurnStatuses
from tests.support.models import ONE_CALL, Beat, says, wants
from tests.support.stage import WORKSPACE, Stage
from tests.support.until import AT_ONCE_S, until
from tests.support.waiting import Clients, LoopThread


def waits_of(stage: Stage) -> WaitReports:
    return WaitReports(stage.turns, LiveWaits(stage.redis), agent_files.load(None))


MakeWaiter = Callable[..., TurnWaiter]


@pytest.fixture
def make_waiter(stage: Stage) -> Iterator[MakeWaiter]:
    """Makes waiters on this stage; ``turns`` and ``events`` in place of the usual ones."""
    with ExitStack() as made:

        def make(turns: Turns | None = None, events: EventLog | None = None) -> TurnWaiter:
            statuses = TurnStatuses(stage.database)
            waiter = TurnWaiter(turns or stage.turns, events or stage.events, waits_of(stage), statuses)
            return made.enter_context(closing(waiter))

        yield make


@pytest.fixture
def waiter(make_waiter: MakeWaiter) -> TurnWaiter:
    return make_waiter()


@pytest.fixture
def blind(make_waiter: MakeWaiter, tmp_path: Path) -> TurnWaiter:
    """A follower whose Redis is down."""
    client = redis_client.client(f"unix://{tmp_path}/none", connections=4)
    return make_waiter(events=EventLog(client))


@pytest.fixture
def clients() -> Iterator[Clients]:
    with LoopThread() as loop:
        yield Clients(loop)


def answered(stage: Stage) -> Turn:
    """A turn with a tool call, from question to answer."""
    turn, worker = stage.served(wants(("add", {"a": 1, "b": 2}), text="Adding."), says("It is 3."))
    stage.answer_calls(turn, worker)
    return stage.serve(turn, worker)


def waiting(waiter: TurnWaiter) -> None:
    """Return once somebody waits."""
    until(lambda: waiter.count, 5, "somebody waits")


def test_a_waiter_gets_the_turn_as_soon_as_it_ends(stage: Stage, waiter: TurnWaiter, clients: Clients) -> None:
    turn = stage.submit()
    stage.model.scenes = [says("Done.")]
    found_later = clients.wait(waiter, WORKSPACE, turn.id)
    waiting(waiter)
    stage.serve(turn, stage.worker("w1"))
    found = found_later.result(timeout=15)
    assert (found.status, found.output_text) == ("completed", "Done.")


def test_a_waiter_for_a_finished_turn_does_not_wait(stage: Stage, waiter: TurnWaiter, clients: Clients) -> None:
    turn = answered(stage)
    began_s = time.monotonic()
    assert clients.wait(waiter, WORKSPACE, turn.id).result(60) == turn
    assert time.monotonic() - began_s < AT_ONCE_S


def test_a_waiter_gets_the_turn_as_soon_as_it_asks_for_a_person(
    stage: Stage, waiter: TurnWaiter, clients: Clients
) -> None:
    turn = stage.submit()
    found_later = clients.wait(waiter, WORKSPACE, turn.id)
    waiting(waiter)
    with stage.database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("UPDATE turns SET status = 'requires_action'")
    assert found_later.result(timeout=60).status == "requires_action"


def test_a_waiter_gets_the_turn_as_it_is_when_the_time_is_over(
    stage: Stage, waiter: TurnWaiter, clients: Clients
) -> None:
    turn = stage.submit()
    began_s = time.monotonic()
    assert clients.wait(waiter, WORKSPACE, turn.id, timeout_s=0.2).result(60).status == "queued"
    assert time.monotonic() - began_s > 0.15


def test_a_waiter_goes_home_when_the_process_stops(stage: Stage, waiter: TurnWaiter, clients: Clients) -> None:
    turn = stage.submit()
    found_later = clients.wait(waiter, WORKSPACE, turn.id)
    waiting(waiter)
    waiter.drain()
    assert found_later.result(timeout=60).status == "queued"


def test_a_waiter_hears_of_the_end_while_redis_is_down(stage: Stage, blind: TurnWaiter, clients: Clients) -> None:
    turn = stage.submit()
    stage.model.scenes = [says("Done.")]
    found_later = clients.wait(blind, WORKSPACE, turn.id)
    waiting(blind)
    stage.serve(turn, stage.worker("w1"))
    assert found_later.result(timeout=60).status == "completed"


def test_a_waiter_hears_of_an_end_that_no_log_told(stage: Stage, waiter: TurnWaiter, clients: Clients) -> None:
    turn = stage.submit()
    stage.model.scenes = [says("Done.")]
    found_later = clients.wait(waiter, WORKSPACE, turn.id)
    waiting(waiter)
    stage.serve(turn, stage.worker("w1", events=EventLog(_unreachable())))
    assert found_later.result(timeout=60).status == "completed"


def _unreachable() -> object:
    return redis_client.client("unix:///nowhere/at/all", connections=1)


def test_a_reader_gets_the_events_as_they_come(stage: Stage, waiter: TurnWaiter, clients: Clients) -> None:
    turn = stage.submit()
    seen: list[str] = []

    def seen_so_far() -> None:
        until(lambda: "output_text.delta" in seen, 5, "the reader has the first text")

    scene: list[Beat] = says("Hello there.")
    stage.model.scenes = [[scene[0], seen_so_far, *scene[1:]]]
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(lambda: seen.extend(event.type for event in clients.events(waiter, WORKSPACE, turn.id)))
        stage.serve(turn, stage.worker("w1"))
        reading.result(timeout=60)
    assert seen == stage.told(turn)


@pytest.mark.parametrize("is_stream_there", [True, False])
def test_a_reader_that_resumes_at_any_id_gets_exactly_the_rest(
    stage: Stage, waiter: TurnWaiter, is_stream_there: bool, clients: Clients
) -> None:
    turn = answered(stage)
    whole = list(stage.live(turn))
    assert [event.id for event in whole] == list(range(1, len(whole) + 1))
    if not is_stream_there:
        stage.redis.flushall()
    for after in range(len(whole) + 1):
        assert list(clients.events(waiter, WORKSPACE, turn.id, after=after)) == whole[after:]


def test_events_of_a_finished_turn_are_read_while_redis_is_down(
    stage: Stage, blind: TurnWaiter, clients: Clients
) -> None:
    turn = answered(stage)
    assert list(clients.events(blind, WORKSPACE, turn.id)) == list(stage.live(turn))


def test_a_reader_that_is_ahead_is_reset_and_gets_everything(
    stage: Stage, waiter: TurnWaiter, clients: Clients
) -> None:
    turn = answered(stage)
    first, *rest = list(clients.events(waiter, WORKSPACE, turn.id, after=999))
    assert (first.id, first.type) == (0, "stream.reset")
    assert rest == list(stage.live(turn))


def test_a_reader_of_a_running_turn_whose_log_was_lost_is_told_to_begin_again(
    stage: Stage, waiter: TurnWaiter, clients: Clients
) -> None:
    turn = stage.submit()
    stage.model.scenes = [wants(("add", {"a": 1, "b": 2}), text="Adding."), says("It is 3.")]
    stage.serve(turn, stage.worker("w1"))
    whole = stage.live(turn)
    # It knows one event more than the journal has, such as a word of a reply that was lost with its worker.
    reader = clients.events(waiter, WORKSPACE, turn.id, after=len(whole) + 1)
    stage.redis.flushall()
    reset = next(reader)
    assert (reset.id, reset.type) == (0, "stream.reset")
    assert [next(reader) for _ in whole] == list(whole)


def small_log(stage: Stage, log_bytes: int = 700) -> EventLog:
    """A log that holds little of a turn."""
    return EventLog(stage.redis, EventSettings(log_bytes=log_bytes))


@pytest.mark.parametrize("has_ended", [False, True])
def test_what_a_full_log_has_dropped_is_read_from_the_journal(
    stage: Stage, waiter: TurnWaiter, has_ended: bool, clients: Clients
) -> None:
    text = "Adding these two, which takes some words to say. " * 20
    stage.model.scenes = [wants(("add", {"a": 1, "b": 2}), text=text), says("It is 3.")]
    turn, worker = stage.submit(), stage.worker("w1", events=small_log(stage))
    stage.serve(turn, worker)
    if has_ended:
        stage.answer_calls(turn, worker)
        stage.serve(turn, worker)
    assert stage.live(turn)[0].id > 1, "nothing was dropped"
    whole = stage.rebuilt(turn)
    reader = clients.events(waiter, WORKSPACE, turn.id)
    assert [next(reader) for _ in whole] == list(whole)


class Late(Turns):
    """Its first look at a turn is from before the turn's end."""

    def __init__(self, stage: Stage, *first: Turn) -> None:
        super().__init__(stage.database)
        self.first = [*first]

    def get(self, workspace: str, turn_id: str) -> Turn:
        return self.first.pop() if self.first else super().get(workspace, turn_id)


def test_a_turn_that_ends_between_two_looks_is_told_with_its_text(
    stage: Stage, make_waiter: MakeWaiter, clients: Clients
) -> None:
    turn = answered(stage)
    stage.redis.flushall()
    before = replace(turn, status="in_progress", output_text=None)
    late = Late(stage, before)
    waiter = make_waiter(late)
    assert list(clients.events(waiter, WORKSPACE, turn.id)) == list(stage.rebuilt(turn))
    assert late.first == []


class EndsMeanwhile(Turns):
    """The turn ends just after its journal was first read."""

    def __init__(self, stage: Stage, before: Turn) -> None:
        super().__init__(stage.database)
        self.before: Turn | None = before

    def get(self, workspace: str, turn_id: str) -> Turn:
        return self.before or super().get(workspace, turn_id)

    def with_journal(self, workspace: str, turn_id: str) -> tuple[Turn, tuple[Step, ...]]:
        before, self.before = self.before, None
        return (before, ()) if before else super().with_journal(workspace, turn_id)


def test_a_reader_of_a_full_log_misses_nothing_of_a_turn_that_ends_meanwhile(
    stage: Stage, make_waiter: MakeWaiter, clients: Clients
) -> None:
    stage.model.scenes = [says("Adding these two takes some words to say. " * 40, pieces=8)]
    turn = stage.submit()
    stage.serve(turn, stage.worker("w1", events=small_log(stage)))
    assert stage.live(turn)[0].id > 2, "nothing was dropped"
    running = replace(stage.turn(turn), status="in_progress", output_text=None)
    waiter = make_waiter(EndsMeanwhile(stage, running))
    assert list(clients.events(waiter, WORKSPACE, turn.id, after=1)) == list(stage.rebuilt(turn))[1:]


def test_a_reader_waits_for_what_a_full_log_has_dropped_until_the_journal_has_it(
    stage: Stage, waiter: TurnWaiter, clients: Clients
) -> None:
    turn, log = stage.submit(), small_log(stage)
    seen: list[Event] = []
    pieces: list[Beat] = [TextDelta(f"{n} and more words " * 900) for n in range(6)]

    def log_is_full() -> None:
        until(lambda: log.read(turn.id, after=0)[0].id > 4, 5, "the log has dropped something")

    with ThreadPoolExecutor(1) as pool:
        reading: list[Future[None]] = []

        def come_late() -> None:
            reading.append(pool.submit(lambda: seen.extend(clients.events(waiter, WORKSPACE, turn.id))))

        reply = Reply(
            "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)), "end_turn", ONE_CALL, "m"
        )
        stage.model.scenes = [[*pieces, log_is_full, come_late, reply]]
        stage.serve(turn, stage.worker("w1", events=log))
        reading[0].result(timeout=60)
    assert seen == list(stage.rebuilt(turn))


def test_a_turn_that_is_too_large_for_the_log_still_ends_it_whole(
    stage: Stage, waiter: TurnWaiter, clients: Clients
) -> None:
    turn = stage.submit()
    stage.model.scenes = [says("word " * 40_000)]
    stage.serve(turn, stage.worker("w1"))
    assert stage.live(turn)[-1].data == {}
    *_, last = list(clients.events(waiter, WORKSPACE, turn.id))
    assert (last.type, last.data) == ("turn.completed", stage.turn(turn).as_json())


def test_a_running_turn_whose_log_has_run_out_of_time_is_read_from_the_journal(
    stage: Stage, waiter: TurnWaiter, clients: Clients
) -> None:
    turn = stage.submit()
    stage.model.scenes = [wants(("add", {"a": 1, "b": 2}), text="Adding.")]
    stage.serve(turn, stage.worker("w1"))
    whole = stage.live(turn)
    stage.redis.delete(f"loom:events:{turn.id}")
    reader = clients.events(waiter, WORKSPACE, turn.id)
    assert [next(reader) for _ in whole] == list(whole)


def test_a_stream_lost_in_the_middle_is_read_on_from_the_journal(
    stage: Stage, waiter: TurnWaiter, clients: Clients
) -> None:
    turn = stage.submit()
    stage.model.scenes = [wants(("add", {"a": 1, "b": 2}), text="Adding."), says("It is 3.")]
    worker = stage.worker("w1")
    stage.serve(turn, worker)
    reader = clients.events(waiter, WORKSPACE, turn.id)
    before = [next(reader) for _ in stage.live(turn)]
    stage.redis.flushall()
    stage.lanes.submit(turn.lane, [(turn.seq, turn.id)])
    stage.answer_calls(turn, worker)
    stage.serve(turn, worker)
    assert [*before, *reader] == list(stage.rebuilt(turn))


def test_nothing_follows_the_final_event(stage: Stage, waiter: TurnWaiter, clients: Clients) -> None:
    turn = answered(stage)
    whole = list(stage.live(turn))
    stage.events.append(turn.id, [("tool_call.completed", {"id": "late"})], least=1)
    assert list(clients.events(waiter, WORKSPACE, turn.id)) == whole


def test_a_reader_stops_with_the_process(stage: Stage, waiter: TurnWaiter, clients: Clients) -> None:
    turn = stage.submit()
    reader = clients.events(waiter, WORKSPACE, turn.id)
    assert next(reader) == stage.live(turn)[0]
    waiter.drain()
    assert list(reader) == []


def test_one_who_reads_what_there_is_now_does_not_wait_for_more(stage: Stage, waiter: TurnWaiter) -> None:
    turn = stage.submit()
    place, _ = waiter.source.begin(WORKSPACE, turn, after=0)
    assert list(waiter.events_now(place)) == list(stage.live(turn))
    stage.model.scenes = [says("Done.")]
    stage.serve(turn, stage.worker("w1"))
    assert list(waiter.events_now(place)) == list(stage.live(turn))[1:]
    assert (place.is_over, list(waiter.events_now(place))) == (True, [])
