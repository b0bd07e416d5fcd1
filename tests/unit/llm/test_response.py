"""A body under a deadline; the bodies here block until their test lets them go."""

import threading
import time

import pytest

from loom_worker.core.errors import Interrupted
from loom_worker.llm.response import TooLate, TooLong, WatchedBody

SOON_S = 0.05
LATE_S = 60.0


class StuckBody:
    """Yields its chunks, then blocks until hung up."""

    def __init__(self, *chunks):
        self._chunks = chunks
        self._hung_up = threading.Event()
        self.closed = threading.Event()

    def chunks(self):
        yield from self._chunks
        self._hung_up.wait(LATE_S)
        raise OSError("hung up")

    def close(self):
        self.closed.set()

    def hang_up(self):
        self._hung_up.set()


class WholeBody(StuckBody):
    """Yields its chunks and ends."""

    def chunks(self):
        yield from self._chunks


class Opens:
    """A call whose response is opened by a function."""

    def __init__(self, open_body, is_given_up=lambda: False):
        self.open = open_body
        self.is_given_up = is_given_up


def watching(open_body, *, within_s=LATE_S, is_given_up=lambda: False, **options):
    return WatchedBody(Opens(open_body, is_given_up), deadline=time.monotonic() + within_s, **options)


def test_a_whole_body_comes_in_order_and_is_closed():
    body = WholeBody(b"a", b"b")
    assert list(watching(lambda: body)) == [b"a", b"b"]
    assert body.closed.is_set()


def test_a_silent_body_ends_at_the_deadline():
    body = StuckBody(b"a")
    watch = watching(lambda: body, within_s=SOON_S)
    with pytest.raises(TooLate):
        list(watch)
    watch.close()
    assert body.closed.wait(LATE_S)


def test_a_request_that_is_never_answered_ends_at_the_deadline():
    release, body = threading.Event(), WholeBody(b"late")

    def open_body():
        release.wait(LATE_S)
        return body

    watch = watching(open_body, within_s=SOON_S)
    with pytest.raises(TooLate):
        list(watch)
    watch.close()
    release.set()
    assert body.closed.wait(LATE_S)


def test_a_silent_body_is_left_when_the_process_stops():
    stopping, body = threading.Event(), StuckBody(b"a")
    watch = watching(lambda: body, is_given_up=stopping.is_set)
    chunks = iter(watch)
    assert next(chunks) == b"a"
    stopping.set()
    with pytest.raises(Interrupted):
        next(chunks)
    watch.close()
    assert body.closed.wait(LATE_S)


def test_an_error_of_the_thread_is_raised_to_the_caller():
    def open_body():
        raise OSError("refused")

    with pytest.raises(OSError, match="refused"):
        list(watching(open_body))


@pytest.mark.parametrize("size_bytes", [10, 11])
def test_a_body_beyond_the_most_bytes_is_refused(size_bytes):
    body = WholeBody(b"x" * 5, b"x" * (size_bytes - 5))
    watch = watching(lambda: body, max_bytes=10)
    if size_bytes == 10:
        assert len(list(watch)) == 2
    else:
        with pytest.raises(TooLong):
            list(watch)


def test_finishing_waits_no_longer_than_it_may():
    watch = watching(lambda: StuckBody(b"a", b"b"))
    assert next(iter(watch)) == b"a"
    before = time.monotonic()
    watch.finish_by(before + SOON_S)
    assert time.monotonic() - before < LATE_S / 2
    watch.close()


def test_a_body_that_was_read_to_its_end_is_not_hung_up():
    body = WholeBody(b"a")
    watch = watching(lambda: body)
    list(watch)
    watch.close()
    assert not body._hung_up.is_set()


def test_the_watch_is_notified_of_each_chunk_and_of_silence():
    class Notes:
        def __init__(self):
            self.told = []

        def received(self):
            self.told.append("received")

        def silent(self):
            self.told.append("silent")
            body.hang_up()

    notes, body = Notes(), StuckBody(b"a", b"b")
    watch = watching(lambda: body, watch=notes)
    with pytest.raises(OSError, match="hung up"):
        list(watch)
    assert notes.told[:3] == ["received", "received", "silent"]
