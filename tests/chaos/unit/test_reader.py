"""What a reader makes of a turn's events."""

import json
from threading import Event
from typing import Any

from urllib3.exceptions import ProtocolError

from tests.chaos.reader import read, read_run
from tests.chaos.records import Read
from tests.chaos.run_records import RunRead

DELTA = "output_text.delta"


class Played:
    """Gives one stream after the other; an exception among the lines breaks it."""

    def __init__(self, *streams: "Stream | None") -> None:
        self.stop = Event()
        self.after: list[str] = []
        self._streams = list(streams)

    def stream(self, path: str, headers: Any) -> Any:
        self.after.append(headers.get("Last-Event-ID", ""))
        if not self._streams:
            self.stop.set()
            return None
        return self._streams.pop(0)


class Stream:
    def __init__(self, *events: tuple[int, str, Any], status: int = 200, is_cut: bool = False) -> None:
        self.status = status
        self._events, self._is_cut = events, is_cut

    def __iter__(self) -> Any:
        yield b"retry: 1000\n"
        yield b"\n"
        for number, kind, data in self._events:
            yield b"id: %d\n" % number
            yield b"event: %s\n" % kind.encode()
            yield b"data: %s\n" % json.dumps(data).encode()
            yield b"\n"
            yield b": still here\n"
            yield b"\n"
        if self._is_cut:
            raise ProtocolError("gone")

    def close(self) -> None:
        pass


def read_all(*streams: Stream | None) -> Read:
    found = read(Played(*streams), "turn_1")
    assert found is not None
    return found


def test_the_text_is_what_came_since_the_last_attempt_began() -> None:
    events = [
        *((1, "turn.queued", {}), (2, DELTA, {"text": "old"}), (3, "turn.retrying", {})),
        *((4, DELTA, {"text": "new"}), (5, DELTA, {"text": "er"}), (6, "turn.completed", {})),
    ]
    assert read_all(Stream(*events)) == Read("turn_1", "newer")


def test_a_stream_that_breaks_is_resumed_after_its_last_event() -> None:
    first = Stream((1, "turn.queued", {}), (2, DELTA, {"text": "so"}), is_cut=True)
    played = Played(first, None, Stream((3, DELTA, {"text": " far"}), (4, "turn.failed", {})))
    assert read(played, "turn_1") == Read("turn_1", "so far", resumed=2)
    assert played.after == ["", "2", "2"]


def test_a_log_that_starts_again_is_read_again() -> None:
    stream = Stream(
        *((1, DELTA, {"text": "gone"}), (0, "stream.reset", {})),
        *((1, DELTA, {"text": "here"}), (2, "turn.incomplete", {})),
    )
    assert read_all(stream) == Read("turn_1", "here")


def test_a_gap_is_a_flaw() -> None:
    found = read_all(Stream((1, "turn.queued", {}), (3, "turn.cancelled", {})))
    assert found.flaws == ("event 3 turn.cancelled after event 1",)


def test_an_error_is_a_flaw_and_a_busy_server_is_none() -> None:
    end = Stream((1, "turn.completed", {}))
    assert read_all(Stream(status=404), end).flaws == ("status 404 after event 0",)
    assert read_all(Stream(status=503), end).flaws == ()


def test_a_turn_that_was_not_read_to_its_end_counts_for_nothing() -> None:
    assert read(Played(Stream((1, "turn.queued", {}))), "turn_1") is None


def test_a_run_is_read_event_by_event_across_streams_that_break() -> None:
    begin, end = (1, "run.started", {"run_id": "run_1"}), (3, "run.completed", {"status": "completed"})
    played = Played(Stream(begin, (2, "stage.started", {"id": "stages.0"}), is_cut=True), Stream(end))
    events = (begin, (2, "stage.started", {"id": "stages.0"}), end)
    assert read_run(played, "run_1") == RunRead("run_1", events, 1, ())
    assert played.after == ["", "2"]


def test_a_log_of_a_run_that_starts_again_is_a_flaw() -> None:
    found = read_run(Played(Stream((1, "run.started", {}), (0, "stream.reset", {}), (1, "run.failed", {}))), "run_1")
    assert found is not None
    assert found.flaws == ("event 0 stream.reset after event 1",)


def test_a_run_that_was_not_read_to_its_end_counts_for_nothing() -> None:
    assert read_run(Played(Stream((1, "run.started", {}))), "run_1") is None
