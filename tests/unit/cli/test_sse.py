import itertools
import json
from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.cli import sse
from loom_worker.cli.http import LoomClient
from loom_worker.cli.sse import SseMessage, SseParser, follow
from loom_worker.core.errors import Rejected, StreamBroken
from loom_worker.core.values.notifications import Event
from tests.support.http_server import Exchange, serving

TEXT = (
    ": hello\n\nretry: 1000\n\nid: 1\nevent: turn.started\ndata: {}\n\n"
    'id: 2\r\nevent: output_text.delta\r\ndata: {"text":\r\ndata: "grün 🌍"}\r\n\r\n'
    "id:3\revent:turn.completed\rdata:{}\r\rid: 4\ndata: cut off"
)
MESSAGES = [
    SseMessage("", sse.COMMENT, "hello"),
    SseMessage("1", "turn.started", "{}"),
    SseMessage("2", "output_text.delta", '{"text":\n"grün 🌍"}'),
    SseMessage("3", "turn.completed", "{}"),
]


@given(cuts=st.lists(st.integers(0, len(TEXT.encode())), max_size=12).map(sorted))
def test_messages_are_the_same_wherever_the_pieces_are_cut(cuts: list[int]) -> None:
    raw, parser = TEXT.encode(), SseParser()
    places = [0, *cuts, len(raw)]
    pieces = [raw[start:end] for start, end in itertools.pairwise(places)]
    assert [message for piece in pieces for message in parser.feed(piece)] == MESSAGES


def test_a_message_without_data_is_none() -> None:
    assert SseParser().feed(b"event: ping\nid: 9\n\n") == []


def frame(number: int, kind: str, **data: object) -> bytes:
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode()


class Script:
    """Connections that answer what they are told to, one after another."""

    def __init__(self, *connections: Iterable[bytes] | type[StreamBroken]) -> None:
        self._connections = iter(connections)
        self.asked_after: list[int] = []

    def __call__(self, last_id: int) -> Iterator[bytes]:
        self.asked_after.append(last_id)
        connection = next(self._connections, StreamBroken)
        if isinstance(connection, type):
            raise connection("cut")
        yield from connection
        raise StreamBroken("cut")


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def clock(self) -> float:
        return self.now_s


def read(connect: Callable[[int], Iterable[bytes]]) -> list[tuple[int, str]]:
    time = Time()
    return [(event.id, event.type) for event in follow(connect, sleep=time.sleep, clock=time.clock)]


def test_a_cut_stream_goes_on_after_the_last_event_without_gap_or_repeat() -> None:
    script = Script(
        [frame(1, "turn.queued"), frame(2, "turn.started"), b"id: 3\nevent: output_te"],
        StreamBroken,
        [frame(2, "turn.started"), frame(3, "output_text.delta"), frame(4, "turn.completed")],
    )
    assert read(script) == [
        (1, "turn.queued"),
        (2, "turn.started"),
        (3, "output_text.delta"),
        (4, "turn.completed"),
    ]
    assert script.asked_after == [0, 2, 2]


@pytest.mark.parametrize("number", [0, 7, 9])
def test_after_a_reset_the_log_is_read_from_its_start_whatever_id_the_reset_has(number: int) -> None:
    script = Script(
        [frame(7, "output_text.delta"), frame(number, "stream.reset")],
        [frame(1, "turn.started"), frame(2, "turn.completed")],
    )
    assert read(script) == [(7, "output_text.delta"), (0, "stream.reset"), (1, "turn.started"), (2, "turn.completed")]
    assert script.asked_after == [0, 0]


def test_a_reset_may_be_followed_by_the_log_on_the_same_connection() -> None:
    script = Script(
        [frame(7, "turn.started"), frame(8, "stream.reset"), frame(1, "turn.started"), frame(2, "turn.failed")]
    )
    assert [number for number, _ in read(script)] == [7, 0, 1, 2]


def test_a_server_that_is_gone_for_good_is_given_up_after_a_minute() -> None:
    time, script = Time(), Script([frame(1, "turn.started")])
    with pytest.raises(StreamBroken, match="60 s"):
        list(follow(script, sleep=time.sleep, clock=time.clock))
    assert sse.PATIENCE_S <= time.now_s <= sse.PATIENCE_S + sse.LONGEST_PAUSE_S
    assert len(script.asked_after) < 30


def test_heartbeats_keep_a_silent_turn_from_being_given_up() -> None:
    script = Script(*[[b": still here\n\n"]] * 100, [frame(1, "turn.completed")])
    assert read(script) == [(1, "turn.completed")]


@pytest.mark.parametrize("noise", [b"data: {}\n\n", b"id: x\ndata: {}\n\n", b"id: 1\nevent: turn.failed\ndata: {\n\n"])
def test_what_is_no_event_is_passed_over(noise: bytes) -> None:
    assert read(Script([noise, frame(1, "turn.completed")])) == [(1, "turn.completed")]


def test_the_reader_resumes_over_real_connections_that_are_cut() -> None:
    asked: list[str | None] = []

    def answer(exchange: Exchange) -> None:
        asked.append(exchange.headers.get("Last-Event-ID"))
        exchange.begin_chunked()
        if len(asked) == 1:
            exchange.chunk(frame(1, "turn.started") + frame(2, "output_text.delta", text="Hel"))
            exchange.cut()
        else:
            exchange.chunk(frame(3, "output_text.delta", text="lo"))
            exchange.chunk(frame(4, "turn.completed"))
            exchange.chunk(b"")

    with serving(answer) as url:
        client = LoomClient(url)
        events = list(follow(lambda last_id: client.stream("/v1/turns/t/events", last_event_id=last_id)))
    assert [event.id for event in events] == [1, 2, 3, 4]
    assert events[2] == Event(3, "output_text.delta", {"text": "lo"})
    assert asked == [None, "2"]


def test_a_refused_stream_is_not_asked_for_again() -> None:
    asked: list[str] = []

    def answer(exchange: Exchange) -> None:
        asked.append(exchange.path)
        exchange.answer(404, b'{"title": "not-found", "detail": "no such turn"}')

    with serving(answer) as url:
        client = LoomClient(url)
        events = follow(lambda last_id: client.stream("/v1/turns/t/events", last_event_id=last_id))
        with pytest.raises(Rejected, match="no such turn"):
            next(events)
    assert len(asked) == 1


def test_a_stream_that_is_busy_is_asked_for_again() -> None:
    asked: list[str] = []

    def answer(exchange: Exchange) -> None:
        asked.append(exchange.path)
        if len(asked) == 1:
            exchange.answer(503, b'{"title": "too-many-waiting"}')
            return
        exchange.begin_chunked()
        exchange.chunk(frame(1, "turn.completed"))
        exchange.chunk(b"")

    with serving(answer) as url:
        client = LoomClient(url)
        assert len(list(follow(lambda last_id: client.stream("/x", last_event_id=last_id)))) == 1
