import os
import threading
from collections.abc import Iterator

import pytest

from loom_worker.service.inbox_thread import InboxThread
from tests.support.until import until


class Work:
    """Counts what the thread does."""

    def __init__(self) -> None:
        self.busy = False
        self.rounds = self.ticks = self.rests = 0

    def is_busy(self) -> bool:
        return self.busy

    def round(self) -> bool:
        self.rounds += 1
        return False

    def tick(self, _now_s: float) -> None:
        self.ticks += 1

    def rest(self) -> None:
        self.rests += 1


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def thread(work: Work) -> Iterator[InboxThread]:
    made = InboxThread("test-inbox", work)
    yield made
    work.busy = False
    made.stop()


def test_what_is_posted_is_done_in_its_order_by_one_thread(thread: InboxThread) -> None:
    done: list[tuple[int, str]] = []
    for n in range(100):
        thread.post(lambda n=n: done.append((n, threading.current_thread().name)))  # type: ignore[misc]
    until(lambda: len(done) == 100, 10, "all is done")
    assert done == [(n, "test-inbox") for n in range(100)]


def test_an_action_that_fails_stops_no_other(thread: InboxThread, caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()
    thread.post(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    thread.post(done.set)
    assert done.wait(10)
    assert "ZeroDivisionError" in caplog.text


def test_a_descriptor_that_can_be_read_begins_a_round(thread: InboxThread, work: Work) -> None:
    readable, writable = os.pipe()
    watched = threading.Event()
    thread.post(lambda: (thread.watch(readable), watched.set()))  # type: ignore[arg-type, return-value]
    assert watched.wait(10)
    before = work.rounds
    os.write(writable, b"x")
    until(lambda: work.rounds > before + 10, 10, "there are rounds")
    gone = threading.Event()
    thread.post(lambda: (thread.unwatch(readable), gone.set()))  # type: ignore[arg-type, return-value]
    assert gone.wait(10)
    os.close(readable)
    os.close(writable)


def test_it_ticks_while_the_work_is_busy(thread: InboxThread, work: Work) -> None:
    work.busy = True
    thread.need()
    until(lambda: work.ticks > 3, 10, "it ticks")


def test_it_ends_when_it_is_stopped_and_nothing_is_done_afterwards(thread: InboxThread, work: Work) -> None:
    done: list[int] = []
    thread.post(lambda: done.append(1))
    thread.stop()
    thread.post(lambda: done.append(2))
    assert (done, work.rests) == ([1], 1)
    assert not [each for each in threading.enumerate() if each.name == "test-inbox"]
