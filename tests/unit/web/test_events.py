import http.client
import json
import socket
from collections.abc import Iterator

import pytest
from flask.testing import FlaskClient

from loom_worker.core.values.notifications import Event
from tests.support.played_worker import PlayedWorker
from tests.support.web_stage import Live, Submit, WebStage
from web.connection_limits import ConnectionLimiter
from web.events import GONE, OPENING, frame

Frame = tuple[int, str, dict[str, object]]


def frames(text: str) -> list[Frame]:
    """What a reader makes of a stream; comments and the retry hint are not events."""
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if "event" in lines:
            found.append((int(lines["id"]), lines["event"], json.loads(lines["data"])))
    return found


@pytest.fixture
def ended(submit: Submit, worker: PlayedWorker) -> str:
    turn_id = str(submit()["id"])
    worker.start(turn_id)
    for piece in ("4", "2\nüber\u2028\r"):
        worker.say(turn_id, piece)
    worker.finish(turn_id, "42")
    return turn_id


def test_an_ended_turn_streams_its_log_without_gaps_and_ends(client: FlaskClient, ended: str) -> None:
    answer = client.get(f"/v1/turns/{ended}/events")
    events = frames(answer.text)
    assert [event[0] for event in events] == list(range(1, len(events) + 1))
    assert (events[0][1], events[-1][1]) == ("turn.queued", "turn.completed")
    assert events[-1][2]["object"] == "turn"
    assert [event[2]["text"] for event in events if event[1] == "output_text.delta"] == ["4", "2\nüber\u2028\r"]


def test_the_headers_keep_caches_and_proxies_from_holding_events_back(client: FlaskClient, ended: str) -> None:
    answer = client.get(f"/v1/turns/{ended}/events")
    assert answer.mimetype == "text/event-stream"
    assert (answer.headers["Cache-Control"], answer.headers["X-Accel-Buffering"]) == ("no-store", "no")
    assert answer.data.startswith(OPENING)


@pytest.mark.parametrize(
    ("query", "header", "first"),
    [("?starting_after=2", None, 3), ("", "3", 4), ("?starting_after=1", "4", 5), ("", "", 1)],
)
def test_a_reader_goes_on_where_it_stopped(
    client: FlaskClient, ended: str, query: str, header: str | None, first: int
) -> None:
    headers = {} if header is None else {"Last-Event-ID": header}
    assert frames(client.get(f"/v1/turns/{ended}/events{query}", headers=headers).text)[0][0] == first


def test_a_reader_who_has_all_gets_an_end_at_once(client: FlaskClient, ended: str) -> None:
    assert frames(client.get(f"/v1/turns/{ended}/events?starting_after=5").text) == []


@pytest.mark.parametrize(
    ("query", "header"), [("?starting_after=-1", ""), ("?starting_after=x", ""), ("", "x"), ("", "1.0")]
)
def test_a_place_that_is_no_count_is_malformed(client: FlaskClient, ended: str, query: str, header: str) -> None:
    answer = client.get(f"/v1/turns/{ended}/events{query}", headers={"Last-Event-ID": header})
    assert (answer.status_code, answer.mimetype) == (400, "application/problem+json")


def test_without_a_slot_a_stream_is_503(client: FlaskClient, ended: str, limiter: ConnectionLimiter) -> None:
    while limiter.enter():
        pass
    answer = client.get(f"/v1/turns/{ended}/events")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")


@pytest.mark.parametrize(("method", "is_read"), [("GET", True), ("GET", False), ("HEAD", False)])
def test_a_stream_gives_its_slot_back(client: FlaskClient, ended: str, method: str, is_read: bool) -> None:
    for _ in range(30):
        with client.open(f"/v1/turns/{ended}/events", method=method) as answer:
            assert answer.status_code == 200
            assert not is_read or answer.data


def test_an_event_is_one_id_one_name_and_one_line_of_data() -> None:
    raw = frame(Event(7, "output_text.delta", {"text": "a\nb\r\ud800é"}))
    assert raw.startswith(b"id: 7\nevent: output_text.delta\ndata: {")
    assert raw.count(b"\n") == 4
    assert frames(raw.decode()) == [(7, "output_text.delta", {"text": "a\nb\r\ud800é"})]


def opened(live: Live, turn_id: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=60)
    connection.request("GET", f"/v1/turns/{turn_id}/events")
    return connection, connection.getresponse()


def read_events(answer: http.client.HTTPResponse) -> Iterator[Frame]:
    block = b""
    while line := answer.readline():
        block += line
        if line == b"\n":
            yield from frames(block.decode())
            block = b""


def test_each_event_leaves_the_server_at_once(live: Live, submit: Submit, worker: PlayedWorker) -> None:
    turn_id = submit()["id"]
    connection, answer = opened(live, turn_id)
    events = read_events(answer)
    assert next(events)[1] == "turn.queued"
    worker.start(turn_id)
    assert next(events)[1] == "turn.started"
    for number in range(20):
        worker.say(turn_id, str(number))
        assert next(events)[2] == {"text": str(number)}
    worker.finish(turn_id)
    assert [event[1] for event in events] == ["turn.completed"]
    connection.close()


def test_a_reader_that_leaves_frees_its_slot(live: Live, submit: Submit, stage: WebStage) -> None:
    turn_id = submit()["id"]
    with socket.create_connection(("127.0.0.1", live.port)) as reader:
        reader.sendall(f"GET /v1/turns/{turn_id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert b"200 OK" in reader.recv(200)
        assert stage.waiter.await_waiters(1)
    assert stage.waiter.await_waiters(0), "the stream went on for a reader who had left"


def test_one_client_leaves_slots_to_others(live: Live, submit: Submit, stage: WebStage) -> None:
    turn_id = submit()["id"]
    slots, share = stage.service.settings.web.max_waiting, 4  # Of 6 slots one client gets 4, so that others find one.
    streams = [opened(live, turn_id) for _ in range(slots + 2)]
    statuses = [answer.status for _, answer in streams]
    assert (statuses.count(200), statuses.count(503)) == (share, slots + 2 - share)
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=60)
    connection.request("GET", f"/v1/turns/{turn_id}?wait=60")
    assert connection.getresponse().status == 200
    stage.worker.finish(turn_id)
    assert all(b"turn.completed" in answer.read() for _, answer in streams if answer.status == 200)
    for opened_one, _ in [*streams, (connection, None)]:
        opened_one.close()


def test_a_stream_of_a_session_that_is_deleted_says_so_and_ends(
    live: Live, client: FlaskClient, submit: Submit, stage: WebStage, caplog: pytest.LogCaptureFixture
) -> None:
    turn_id = submit("s")["id"]
    connection, answer = opened(live, turn_id)
    # A stream that has not given its event yet would find the session gone before it.
    assert next(read_events(answer))[1] == "turn.queued"
    assert client.delete("/v1/sessions/s").status_code == 204
    text = answer.read().decode()
    connection.close()
    assert frames(text) == []
    assert text.endswith(GONE.decode())
    assert client.get(f"/v1/turns/{turn_id}/events", headers={"Last-Event-ID": "1"}).status_code == 404
    assert "cut" not in caplog.text


def test_a_log_that_breaks_ends_the_stream_and_not_the_server(
    live: Live, submit: Submit, stage: WebStage, caplog: pytest.LogCaptureFixture
) -> None:
    connection, answer = opened(live, submit()["id"])
    assert next(read_events(answer))[1] == "turn.queued"
    stage.database.is_down = True
    assert frames(answer.read().decode()) == []
    connection.close()
    assert "database does not answer" in caplog.text


def test_a_server_that_lets_no_request_wait_streams_what_there_is_now(
    client: FlaskClient, submit: Submit, worker: PlayedWorker
) -> None:
    """A reader comes back after the second that it is told, and goes on where it stopped."""
    turn_id = submit()["id"]
    assert [event[1] for event in frames(client.get(f"/v1/turns/{turn_id}/events").text)] == ["turn.queued"]
    worker.finish(turn_id)
    later = client.get(f"/v1/turns/{turn_id}/events", headers={"Last-Event-ID": "1"})
    assert [event[1] for event in frames(later.text)] == ["turn.started", "turn.completed"]
