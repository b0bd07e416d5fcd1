"""How many requests are served at a time, and by which threads."""

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.support.clock import Clock
from tests.support.until import AT_ONCE_S, until
from web import request_threads
from web.request_threads import AT_ONCE, HELD_UP_S, START_AGAIN_S, RequestThreads


class Request:
    """Runs until it is let go."""

    def __init__(self) -> None:
        self.served_by = ""
        self.is_cancelled = False
        self._may_end = threading.Event()

    def service(self) -> None:
        self.served_by = threading.current_thread().name
        assert self._may_end.wait(AT_ONCE_S)

    def cancel(self) -> None:
        self.is_cancelled = True

    def end(self) -> None:
        self._may_end.set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(1_000.0)
    monkeypatch.setattr(request_threads, "time", clock)
    return clock


@pytest.fixture
def threads(clock: Clock) -> Iterator[RequestThreads]:
    made = RequestThreads(5)
    yield made
    made.shutdown(timeout_s=AT_ONCE_S)


def served(*requests: Request) -> Callable[[], bool]:
    return lambda: all(request.served_by for request in requests)


def given(threads: RequestThreads, count: int) -> list[Request]:
    requests = [Request() for _ in range(count)]
    for request in requests:
        threads.add_task(request)
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
    until(lambda: not threads.is_busy, AT_ONCE_S, "nothing runs any more")


def test_others_are_served_beside_those_that_are_held_up(threads: RequestThreads, clock: Clock) -> None:
    requests = given(threads, AT_ONCE + 1)
    assert threads.due_in_s() == pytest.approx(HELD_UP_S)
    clock.now_s += HELD_UP_S / 2
    threads.relieve()
    assert not requests[-1].served_by
    assert threads.due_in_s() == pytest.approx(HELD_UP_S / 2)
    clock.now_s += HELD_UP_S
    assert threads.due_in_s() == 0
    threads.relieve()
    until(served(*requests), AT_ONCE_S, "the last one is served, too")
    assert threads.due_in_s() is None
    for request in requests:
        request.end()


def test_there_are_never_more_threads_than_may_be(threads: RequestThreads, clock: Clock) -> None:
    requests = given(threads, 7)
    for _ in range(7):
        clock.now_s += 1
        threads.relieve()
    until(served(*requests[:5]), AT_ONCE_S, "as many as may be are served")
    assert threads.due_in_s() == HELD_UP_S, "only an end can help: the loop must not look all the time"
    for request in requests:
        request.end()
    until(served(*requests), AT_ONCE_S, "the others after them")
    assert len({request.served_by for request in requests}) == 5


def test_a_thread_is_started_only_where_no_other_is_free(threads: RequestThreads) -> None:
    names = set()
    for _ in range(5):
        request = Request()
        request.end()
        assert threads.add_task(request) is False, "it need not wait"
        until(lambda: not threads.is_busy, AT_ONCE_S, "it is served")
        names.add(request.served_by)
    assert len(names) == 1


def test_a_request_that_fails_leaves_its_thread_to_the_next(
    threads: RequestThreads, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Request):
        def service(self) -> None:
            raise SystemExit("not this thread")

    threads.add_task(Failing())
    until(lambda: not threads.is_busy, AT_ONCE_S, "it has failed")
    assert "a request failed" in caplog.text
    (request,) = given(threads, 1)
    until(served(request), AT_ONCE_S, "the next one is served")
    request.end()


def test_what_waits_when_the_server_stops_is_cancelled_and_the_threads_end(threads: RequestThreads) -> None:
    requests = given(threads, AT_ONCE + 1)
    until(served(*requests[:AT_ONCE]), AT_ONCE_S, "the first ones are served")
    before = {thread.name for thread in threading.enumerate()}
    threads.shutdown(timeout_s=0)
    assert [request.is_cancelled for request in requests] == [False] * AT_ONCE + [True]
    for request in requests:
        request.end()
    threads.shutdown(timeout_s=AT_ONCE_S)
    gone = before - {thread.name for thread in threading.enumerate()}
    assert {request.served_by for request in requests[:AT_ONCE]} <= gone
    given(threads, 1)
    assert threads.due_in_s() is None, "what comes late must not keep the loop busy"
    assert not threads.is_busy


def test_a_request_waits_where_the_system_gives_no_thread_more(
    threads: RequestThreads, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = given(threads, 1)[0], Request()
    until(served(first), AT_ONCE_S, "the first one is served")

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        threads.add_task(second)
        threads.relieve()
        assert caplog.text.count("can't start new thread") == 1, "not asked for again at once"
        assert threads.due_in_s() == START_AGAIN_S
        clock.now_s += START_AGAIN_S
        threads.relieve()
        assert caplog.text.count("can't start new thread") == 2
    first.end()
    until(served(second), AT_ONCE_S, "the thread that is there serves it")
    second.end()
    until(lambda: not threads.is_busy, AT_ONCE_S, "all are served")
    threads.shutdown(timeout_s=AT_ONCE_S)
