"""Requests that wait without a thread, over real connections."""

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.played_worker import PlayedWorker
from tests.support.until import until
from tests.support.web_stage import Live, MakeStage, Submit, WebStage
from web.detached import Exchange
from web.serve import HttpServer

THREADS = 2


@pytest.fixture
def stage(make_stage: MakeStage) -> WebStage:
    """With more waiters than threads."""
    return make_stage(threads=THREADS, max_waiting=64)


@pytest.fixture
def connection(live: Live) -> Iterator[http.client.HTTPConnection]:
    with closing(connect(live)) as made:
        yield made


def connect(live: Live) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", live.port, timeout=60)


def get(connection: http.client.HTTPConnection, path: str) -> tuple[int, Any]:
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def raw(live: Live, *requests: str) -> socket.socket:
    """A connection on which all requests are sent at once."""
    made = socket.create_connection(("127.0.0.1", live.port), timeout=60)
    made.sendall("".join(f"{line} HTTP/1.1\r\nHost: localhost\r\n\r\n" for line in requests).encode())
    return made


def test_more_may_wait_than_there_are_threads_and_others_are_served(
    live: Live, submit: Submit, stage: WebStage, connection: http.client.HTTPConnection
) -> None:
    turn_id = submit()["id"]
    with ExitStack() as opened:
        streams = [opened.enter_context(closing(connect(live))) for _ in range(5 * THREADS)]
        polls = [opened.enter_context(closing(connect(live))) for _ in range(5 * THREADS)]
        for stream in streams:
            stream.request("GET", f"/v1/turns/{turn_id}/events")
        for poll in polls:
            poll.request("GET", f"/v1/turns/{turn_id}?wait=60")
        assert stage.waiter.await_waiters(10 * THREADS)
        assert get(connection, f"/v1/turns/{turn_id}")[0] == 200
        stage.worker.finish(turn_id, "42")
        assert all(b"turn.completed" in stream.getresponse().read() for stream in streams)
        assert {json.loads(poll.getresponse().read())["output_text"] for poll in polls} == {"42"}


def test_one_connection_waits_for_one_turn_after_the_other(
    submit: Submit, worker: PlayedWorker, stage: WebStage, connection: http.client.HTTPConnection
) -> None:
    for n in range(50):
        turn_id = submit()["id"]
        connection.request("GET", f"/v1/turns/{turn_id}?wait=60")
        assert stage.waiter.await_waiters(1)
        worker.finish(turn_id, str(n))
        assert json.loads(connection.getresponse().read())["output_text"] == str(n)


def test_a_request_behind_one_that_waits_is_answered_after_it(
    live: Live, submit: Submit, stage: WebStage, worker: PlayedWorker
) -> None:
    turn_id = submit()["id"]
    with raw(live, f"GET /v1/turns/{turn_id}?wait=60", "GET /healthz") as made:
        assert stage.waiter.await_waiters(1)
        worker.finish(turn_id, "42")
        answers = made.recv(65536)
        while answers.count(b"HTTP/1.1 200 OK") < 2:
            answers += made.recv(65536)
    assert answers.index(b'"output_text":"42"') < answers.rindex(b"HTTP/1.1 200 OK")


def test_a_head_of_a_long_poll_waits_and_has_no_body(
    live: Live, submit: Submit, stage: WebStage, worker: PlayedWorker
) -> None:
    turn_id = submit()["id"]
    with raw(live, f"HEAD /v1/turns/{turn_id}?wait=60", "GET /v1/turns/turn_none") as made:
        assert stage.waiter.await_waiters(1)
        worker.finish(turn_id)
        answers = made.recv(65536)
        while b"not-found" not in answers:
            answers += made.recv(65536)
    head, _, rest = answers.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]) > 100
    assert rest.startswith(b"HTTP/1.1 404")


def test_a_submit_that_waits_is_answered_with_the_end(
    live: Live, stage: WebStage, connection: http.client.HTTPConnection
) -> None:
    headers = {"Content-Type": "application/json", "Prefer": "wait=30", "X-Request-Id": "mine"}
    connection.request("POST", "/v1/sessions/s/turns", '{"input": "x"}', headers)
    assert stage.waiter.await_waiters(1)
    with closing(connect(live)) as other:
        turn_id = get(other, "/v1/turns")[1]["data"][0]["id"]
    stage.worker.finish(turn_id, "42")
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["output_text"]) == (200, "42")
    given = {name: answer.headers[name] for name in ("Location", "Preference-Applied", "X-Request-Id", "Cache-Control")}
    assert given == {
        "Location": f"/v1/turns/{turn_id}",
        "Preference-Applied": "wait=30",
        "X-Request-Id": "mine",
        "Cache-Control": "no-store",
    }
    assert (answer.headers.get_all("Content-Type"), answer.headers["Retry-After"]) == (["application/json"], None)


def test_a_submit_that_waited_in_vain_is_a_202(connection: http.client.HTTPConnection) -> None:
    headers = {"Content-Type": "application/json", "Prefer": "wait=1"}
    connection.request("POST", "/v1/sessions/s/turns", '{"input": "x"}', headers)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["status"]) == (202, "queued")
    assert (answer.headers["Retry-After"], answer.headers["Preference-Applied"]) == ("1", "wait=1")


def test_a_turn_that_asks_for_a_person_is_answered(
    submit: Submit, stage: WebStage, worker: PlayedWorker, connection: http.client.HTTPConnection
) -> None:
    turn_id = submit()["id"]
    connection.request("GET", f"/v1/turns/{turn_id}?wait=60")
    assert stage.waiter.await_waiters(1)
    worker.start(turn_id)
    worker.ask_person(turn_id)
    assert json.loads(connection.getresponse().read())["status"] == "requires_action"


def test_a_turn_that_is_deleted_while_it_is_waited_for_is_a_404(
    submit: Submit, stage: WebStage, connection: http.client.HTTPConnection
) -> None:
    turn_id = submit("s")["id"]
    connection.request("GET", f"/v1/turns/{turn_id}?wait=60", headers={"X-Request-Id": "mine"})
    assert stage.waiter.await_waiters(1)
    stage.service.delete_session("default", "s")
    answer = connection.getresponse()
    problem = json.loads(answer.read())
    assert (answer.status, answer.headers.get_all("Content-Type")) == (404, ["application/problem+json"])
    assert (problem["instance"], problem["request_id"]) == (f"/v1/turns/{turn_id}", "mine")


def test_what_was_accepted_stays_accepted_if_the_database_breaks_down_meanwhile(
    stage: WebStage, connection: http.client.HTTPConnection
) -> None:
    headers = {"Content-Type": "application/json", "Prefer": "wait=30"}
    connection.request("POST", "/v1/sessions/s/turns", '{"input": "x"}', headers)
    assert stage.waiter.await_waiters(1)
    stage.database.is_down = True
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["status"]) == (202, "queued")


def test_a_client_that_leaves_gives_its_slot_back(live: Live, submit: Submit, stage: WebStage) -> None:
    turn_id = submit()["id"]
    for path in (f"/v1/turns/{turn_id}?wait=60", f"/v1/turns/{turn_id}/events") * 2:
        with ExitStack() as opened:
            for _ in range(30):
                opened.enter_context(raw(live, f"GET {path}"))
            assert stage.waiter.await_waiters(30)
        assert stage.waiter.await_waiters(0)


@pytest.mark.parametrize("error", [ConnectionResetError, ValueError])
def test_a_request_that_fails_behind_its_view_still_goes_on_and_gives_back_what_it_took(error: type[Exception]) -> None:
    told = list[str]()

    async def go_on(_: Exchange) -> None:
        told.append("given back")

    def app(environ: dict[str, Any], _: object) -> None:
        environ["loom.detach"](go_on, False)
        raise error

    async def main() -> None:
        made = SimpleNamespace(
            loop=asyncio.get_running_loop(),
            tasks=set[asyncio.Task[None]](),
            threads=SimpleNamespace(hand_over=lambda result: result()),
            wsgi_app=app,
            abort=lambda: told.append("closed"),
            write=lambda data: None,
            end=lambda data, is_last: None,
        )
        Exchange(made, {"REQUEST_METHOD": "GET"}, is_last=False).serve()  # type: ignore[arg-type]
        await asyncio.gather(*made.tasks)

    asyncio.run(main())
    assert told == ["closed", "given back"]


def test_a_client_that_reads_slowly_gets_all_and_holds_up_nobody(
    live: Live, submit: Submit, stage: WebStage, worker: PlayedWorker
) -> None:
    turn_id = submit()["id"]
    worker.start(turn_id)
    texts = [f"{n} " + "x" * 15_000 for n in range(200)]
    with ExitStack() as opened:
        slow, quick = (opened.enter_context(closing(connect(live))) for _ in range(2))
        for each in (slow, quick):
            each.request("GET", f"/v1/turns/{turn_id}/events")
        slow_answer, quick_answer = slow.getresponse(), quick.getresponse()
        assert stage.waiter.await_waiters(2)
        for text in texts:
            worker.say(turn_id, text)
        worker.finish(turn_id)
        for answer in (quick_answer, slow_answer):  # the slow one has taken nothing until the quick one has all
            lines = [line[6:] for line in answer.read().decode().split("\n") if line.startswith('data: {"text"')]
            assert [json.loads(line)["text"] for line in lines] == texts


def test_a_waiting_request_does_not_keep_the_server_from_stopping(
    stage: WebStage, submit: Submit, request: pytest.FixtureRequest
) -> None:
    server = HttpServer(stage.service)
    server.start()
    request.addfinalizer(server.stop)
    turn_id = submit()["id"]
    with (
        raw(Live(server), f"GET /v1/turns/{turn_id}?wait=60") as poll,
        raw(Live(server), f"GET /v1/turns/{turn_id}/events") as stream,
    ):
        assert stage.waiter.await_waiters(2)
        server.drain()
        assert stage.waiter.count == 0
        assert b'"status":"queued"' in poll.recv(65536)
        told = b""
        while piece := stream.recv(65536):
            told += piece
        assert told.endswith(b"0\r\n\r\n")


def test_a_key_that_ends_ends_its_streams(live: Live, submit: Submit, stage: WebStage) -> None:
    turn_id = submit()["id"]
    with raw(live, f"GET /v1/turns/{turn_id}/events") as stream:
        assert stage.waiter.await_waiters(1)
        stage.service.keys.has_ended = lambda _: True  # type: ignore[method-assign]
        told = b""
        while piece := stream.recv(65536):
            told += piece
    assert told.endswith(b"0\r\n\r\n")


def test_a_turns_end_is_not_told_under_a_key_that_ended_meanwhile(
    live: Live, submit: Submit, stage: WebStage, connection: http.client.HTTPConnection
) -> None:
    turn_id = submit()["id"]
    with closing(connect(live)) as poll:
        poll.request("GET", f"/v1/turns/{turn_id}?wait=60")
        assert stage.waiter.await_waiters(1)
        stage.service.keys.has_ended = lambda _: True  # type: ignore[method-assign]
        connection.request("POST", f"/v1/turns/{turn_id}/cancel")
        assert connection.getresponse().status == 202
        answer = poll.getresponse()
        assert (answer.status, json.loads(answer.read())["title"]) == (401, "Unauthorized")


def test_the_loop_rests_while_a_client_sends_more_behind_a_request_that_waits(
    live: Live, submit: Submit, stage: WebStage
) -> None:
    turn_id = submit()["id"]
    (loop,) = (each for each in threading.enumerate() if each.name == "loom-web" and each.ident)
    clock = time.pthread_getcpuclockid(loop.ident or 0)
    with raw(live, f"GET /v1/turns/{turn_id}?wait=2", "GET /healthz") as made:
        until(lambda: stage.waiter.count, 10, "it waits")
        before_s = time.clock_gettime(clock)
        assert made.recv(65536)
    assert time.clock_gettime(clock) - before_s < 0.5  # a loop that does not rest works all the time
