"""Events of runs, as they happen and after."""

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.web_stage import Live
from tests.unit.web.flow import Flow, read
from tests.unit.web.test_events import Frame, read_events
from web.events import GONE


def test_an_ended_run_streams_all_that_happened_and_ends_with_itself(flow: Flow, ended_run: str) -> None:
    events = read(flow, ended_run)
    assert [event[0] for event in events] == list(range(1, 9))
    assert [event[1] for event in events] == [
        "run.started",
        "stage.started",
        "stage.completed",
        "approval.required",
        "approval.decided",
        "stage.started",
        "stage.completed",
        "run.completed",
    ]
    assert events[0][2] == {"run_id": ended_run, "workflow": "gated", "retry_of": None}
    assert (events[2][2]["id"], events[2][2]["output_text"]) == ("stages.0", "a draft")
    assert (events[3][2]["id"], events[3][2]["prompt"]) == ("stages.0.approval", "Good? a draft")
    assert events[4][2]["decision"] == "approve"
    assert events[-1][2] == flow.get(ended_run)


@pytest.mark.parametrize(("query", "header", "first"), [("?starting_after=2", "", 3), ("?starting_after=1", "6", 7)])
def test_a_reader_goes_on_where_it_stopped(flow: Flow, ended_run: str, query: str, header: str, first: int) -> None:
    assert read(flow, ended_run, query, **{"Last-Event-ID": header})[0][0] == first


def test_a_reader_who_has_all_gets_an_end_at_once(flow: Flow, ended_run: str) -> None:
    assert read(flow, ended_run, "?starting_after=8") == []


def test_a_reader_who_knows_more_than_there_is_begins_anew(flow: Flow, ended_run: str) -> None:
    reset, first, *_ = read(flow, ended_run, "?starting_after=99")
    assert (reset, first[:2]) == ((0, "stream.reset", {"run_id": ended_run}), (1, "run.started"))


def test_a_place_that_is_no_count_is_malformed(flow: Flow, ended_run: str) -> None:
    assert flow.client.get(f"/v1/runs/{ended_run}/events", headers={"Last-Event-ID": "x"}).status_code == 400


@dataclass
class Reader:
    """Reads a run's events from a real server."""

    connection: http.client.HTTPConnection
    answer: http.client.HTTPResponse
    events: Iterator[Frame]

    def next(self, *kinds: str) -> Frame:
        """The next events, which must be of these kinds; the last of them."""
        found = [next(self.events) for _ in kinds]
        assert [event[1] for event in found] == [*kinds]
        return found[-1]


@pytest.fixture
def reading(live: Live, flow: Flow) -> Iterator[tuple[str, Reader]]:
    """A run that waits for its first stage, and one who reads its events."""
    run_id = str(flow.start("gated")["id"])
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=60)
    connection.request("GET", f"/v1/runs/{run_id}/events")
    answer = connection.getresponse()
    yield run_id, Reader(connection, answer, read_events(answer))
    connection.close()


def test_each_event_leaves_the_server_at_once(flow: Flow, reading: tuple[str, Reader]) -> None:
    run_id, reader = reading
    reader.next("run.started", "stage.started")
    flow.answer(run_id, "a draft")
    reader.next("stage.completed", "approval.required")
    flow.decide(run_id, "approve")
    reader.next("approval.decided", "stage.started")
    flow.answer(run_id, "out")
    assert reader.next("stage.completed", "run.completed")[2] == flow.get(run_id)
    assert list(reader.events) == []


def test_readers_of_a_run_that_is_deleted_are_told_and_sent_home(flow: Flow, reading: tuple[str, Reader]) -> None:
    run_id, reader = reading
    reader.next("run.started", "stage.started")
    assert flow.client.delete(f"/v1/runs/{run_id}").status_code == 204
    assert reader.answer.read().endswith(GONE)
    flow.await_waiters(0)


def test_a_server_lets_who_waits_for_a_run_wait_without_a_thread(live: Live, flow: Flow) -> None:
    """Eight threads, and more who wait would still be served: those of turns and of runs share the slots."""
    run_id = flow.start("gated")["id"]
    waiting = [http.client.HTTPConnection("127.0.0.1", live.port, timeout=60) for _ in range(2)]
    for connection in waiting:
        connection.request("GET", f"/v1/runs/{run_id}?wait=60")
    flow.await_waiters(2)
    flow.answer(run_id, "a draft")
    for connection in waiting:
        assert json.loads(connection.getresponse().read())["status"] == "requires_action"
        connection.close()
    waiting[0].request(
        "POST", "/v1/workflows/fork/runs", "{}", {"Content-Type": "application/json", "Prefer": "wait=60"}
    )
    flow.await_waiters(1)
    flow.answer(flow.client.get("/v1/runs?workflow=fork").get_json()["data"][0]["id"], "a", "b")
    answer = waiting[0].getresponse()
    assert (answer.status, json.loads(answer.read())["status"]) == (200, "completed")
    waiting[0].close()


def test_a_reader_of_a_run_is_told_what_its_open_stages_wait_for(flow: Flow, asking_run: str) -> None:
    runs = flow.stage.service.runs
    for run_id, words in ((asking_run, "waiting for a person's approval"), (flow.start()["id"], "queued")):
        place = runs.waiter.source.begin("default", runs.run("default", run_id), after=0)[0]
        assert words in runs.waiter.in_words(place)
