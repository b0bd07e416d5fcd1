"""How many requests are served at a time, and by which threads."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import Any

import pytest

from tests.support.clock import Clock
from tests.support.until import AT_ONCE_S, until
from web import request_threads
from web.request_threads import AT_ONCE, HELD_UP_S, START_AGAIN_S, RequestThreads


class Request:
    """Runs until it is let go."""

    def __init__(self) -> None:
        self.served_by: threading.Thread | None = None
        self._may_end = threading.Event()

    def __call__(self) -> None:
        self.served_by = threading.current_thread()
        assert self._may_end.wait(AT_ONCE_S)

    def end(self) -> None:
        self._may_end.set()


class Alarm:
    """A loop that calls nothing by itself; ``due_s`` and ``ring`` are of what it was asked for last."""

    due_s: float | None = None
    given = 0

    def call_later(self, due_s: float, call: Callable[[], None]) -> "Alarm":
        self.due_s, self._call = due_s, call
        return self

    def ring(self) -> None:
        self.due_s = None
        self._call()

    def call_soon_threadsafe(self, _: Callable[[], None], *, context: Context) -> None:
        self.given += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(1_000.0)
    monkeypatch.setattr(request_threads, "time", clock)
    return clock


@pytest.fixture
def loop() -> Any:
    return Alarm()


@pytest.fixture
def threads(clock: Clock, loop: Any) -> Iterator[RequestThreads]:
    made = RequestThreads(5)
    made.loop = loop
    yield made
    made.shutdown(timeout_s=AT_ONCE_S)


def served(*requests: Request) -> Callable[[], bool]:
    return lambda: all(request.served_by for request in requests)


def given(threads: RequestThreads, count: int) -> list[Request]:
    requests = [Request() for _ in range(count)]
    for request in requests:
        threads.run(request)
    return requests


def test_so_many_are_served_at_a_time_and_the_next_one_by_the_thread_that_is_done(threads: RequestThreads) -> None:
    requests = given(threads, AT_ONCE + 2)
    until(served(*requests[:AT_ONCE]), AT_ONCE_S, "the first ones are served")
    assert not any(request.served_by for request in requests[AT_ONCE:])
    requests[1].end()
    until(served(requests[AT_ONCE]), AT_ONCE_S, "the next one is served")
    assert requests[AT_ONCE].served_by == requests[1].served_by
    assert not requests[-1].served_by
    for request in requests:
        request.end()
    until(served(*requests), AT_ONCE_S, "all are served")


def test_what_has_waited_anyway_goes_behind_what_comes_in_now_but_not_for_ever(
    threads: RequestThreads, clock: Clock
) -> None:
    running, done = given(threads, AT_ONCE), list[str]()
    until(served(*running), AT_ONCE_S, "all that may be are served")
    threads.run(lambda: done.append("an end"), behind_s=HELD_UP_S / 4)
    threads.run(lambda: done.append("a request that came next"))
    clock.now_s += HELD_UP_S / 2
    threads.run(lambda: done.append("a request that came later"))
    running[0].end()
    until(lambda: len(done) == 3, AT_ONCE_S, "all are done")
    assert done == ["a request that came next", "an end", "a request that came later"]
    running[1].end()


def test_others_are_served_beside_those_that_are_held_up(threads: RequestThreads, clock: Clock, loop: Alarm) -> None:
    requests = given(threads, AT_ONCE + 1)
    assert loop.due_s == pytest.approx(HELD_UP_S)
    clock.now_s += HELD_UP_S / 2
    loop.ring()
    assert not requests[-1].served_by
    assert loop.due_s == pytest.approx(HELD_UP_S / 2)
    clock.now_s += HELD_UP_S
    loop.ring()
    until(served(*requests), AT_ONCE_S, "the last one is served, too")
    assert loop.due_s is None
    for request in requests:
        request.end()


def test_there_are_never_more_threads_than_may_be(threads: RequestThreads, clock: Clock, loop: Alarm) -> None:
    requests = given(threads, 7)
    for _ in range(7):
        clock.now_s += 1
        loop.ring()
    until(served(*requests[:5]), AT_ONCE_S, "as many as may be are served")
    assert loop.due_s == HELD_UP_S, "only an end can help: the loop must not look all the time"
    for request in requests:
        request.end()
    until(served(*requests), AT_ONCE_S, "the others after them")
    assert len({request.served_by for request in requests}) == 5


def test_a_thread_is_started_only_where_no_other_is_free(threads: RequestThreads, loop: Alarm) -> None:
    served_by = set()
    for number in range(5):
        request = Request()
        request.end()
        threads.run(request)
        threads.run(lambda: threads.hand_over(lambda: None))  # behind it, by the other one
        until(served(request), AT_ONCE_S, "it is served")
        assert loop.due_s is None, "it need not wait"
        until(lambda number=number: loop.given > 0, AT_ONCE_S, "both are done")  # type: ignore[misc]
        served_by.add(request.served_by)
    assert len(served_by) <= AT_ONCE


def test_a_request_that_fails_leaves_its_thread_to_the_next(
    threads: RequestThreads, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise SystemExit("not this thread")

    threads.run(fail)
    until(lambda: "a request failed" in caplog.text, AT_ONCE_S, "it has failed")
    (request,) = given(threads, 1)
    until(served(request), AT_ONCE_S, "the next one is served")
    request.end()


def test_what_waits_when_the_server_stops_is_not_served_and_the_threads_end(
    threads: RequestThreads, loop: Alarm
) -> None:
    requests = given(threads, AT_ONCE + 1)
    until(served(*requests[:AT_ONCE]), AT_ONCE_S, "the first ones are served")
    threads.shutdown(timeout_s=0)
    for request in requests:
        request.end()
    threads.shutdown(timeout_s=AT_ONCE_S)
    assert not any(request.served_by.is_alive() for request in requests if request.served_by)
    assert requests[-1].served_by is None
    loop.ring()
    assert given(threads, 1)[0].served_by is None, "what comes late is not served either"


def test_a_request_waits_where_the_system_gives_no_thread_more(
    threads: RequestThreads,
    clock: Clock,
    loop: Alarm,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second = given(threads, 1)[0], Request()
    until(served(first), AT_ONCE_S, "the first one is served")

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        threads.run(second)
        loop.ring()
        assert caplog.text.count("can't start new thread") == 1, "not asked for again at once"
        clock.now_s += START_AGAIN_S
        loop.ring()
        assert caplog.text.count("can't start new thread") == 2
    first.end()
    until(served(second), AT_ONCE_S, "the thread that is there serves it")
    second.end()


def test_results_that_come_together_wake_the_loop_once_and_each_is_taken() -> None:
    threads, taken = RequestThreads(1), list[int]()

    async def main() -> None:
        threads.loop = loop = asyncio.get_running_loop()
        woken, wake = list[str](), loop.call_soon_threadsafe

        def counted(*call: Any, context: Context) -> asyncio.Handle:
            woken.append("woken")
            return wake(*call, context=context)

        loop.call_soon_threadsafe = counted  # type: ignore[assignment, method-assign]
        for number in range(10):
            threads.hand_over(lambda number=number: taken.append(number))  # type: ignore[misc]
        while len(taken) < 10:
            await asyncio.sleep(0)
        assert len(woken) == 1

    asyncio.run(main())
    assert taken == list(range(10))
    threads.hand_over(lambda: taken.append(10))  # the loop has ended: nobody is told, and nothing fails
