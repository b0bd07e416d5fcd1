import json
import logging
from concurrent.futures import Future

import pytest

from loom_worker.backends.mcp.listing import ListedTool, ToolListing
from loom_worker.backends.mcp.servers import Known
from loom_worker.core.errors import ToolFailed, Unavailable

ONE = ToolListing((ListedTool("a", "", {"type": "object"}),))
TWO = ToolListing((*ONE.tools, ListedTool("b", "", {"type": "object"})))


class Stage:
    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.readings: list[Future[None]] = []
        self.is_down = False
        self.known = Known("k", "s", remember=self.remember, recall=self.recall, read=self.read, look_every_s=0.0)

    def remember(self, key: str, text: str) -> None:
        if self.is_down:
            raise Unavailable("no Redis")
        self.kept[key] = text

    def recall(self, key: str) -> str | None:
        if self.is_down:
            raise Unavailable("no Redis")
        return self.kept.get(key)

    def read(self) -> Future[None]:
        self.readings.append(Future())
        return self.readings[-1]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_what_is_remembered_starts_no_server(stage: Stage) -> None:
    stage.kept["k"] = json.dumps(ONE.as_json())
    assert stage.known.look() is None
    assert stage.known.listing == ONE
    assert stage.readings == []


def test_what_nobody_knows_is_read_once_however_many_ask(stage: Stage) -> None:
    waits = {stage.known.look() for _ in range(3)}
    assert len(stage.readings) == 1
    stage.known.found(ONE)
    stage.readings[0].set_result(None)
    (waited,) = waits
    assert waited is not None
    assert waited.done()
    assert stage.known.listing == ONE
    assert json.loads(stage.kept["k"]) == ONE.as_json()


def test_a_list_that_lapsed_holds_until_it_is_read_again(stage: Stage) -> None:
    stage.known.found(ONE)
    stage.kept.clear()
    assert stage.known.look() is not None
    stage.readings[0].set_exception(ToolFailed("it is down", "UNAVAILABLE"))
    assert stage.known.listing == ONE
    assert stage.known.problem == "it is down"
    stage.known.look()
    assert len(stage.readings) == 2


def test_what_another_process_read_is_taken_over(stage: Stage) -> None:
    stage.known.found(ONE)
    stage.kept["k"] = json.dumps(TWO.as_json())
    stage.known.look()
    assert stage.known.listing == TWO


def test_a_list_that_others_are_known_to_have_is_taken_over_at_once_and_no_server_is_asked(stage: Stage) -> None:
    assert stage.known.digest() is None
    stage.known.found(ONE)
    before = stage.known.digest()
    stage.kept["k"] = json.dumps(TWO.as_json())
    assert stage.known.digest() == before
    stage.known.renew()
    assert stage.known.listing == TWO
    assert stage.known.digest() != before
    stage.kept.clear()
    stage.known.renew()
    assert stage.known.listing == TWO
    assert stage.readings == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"tools": [[1]], "problems": []}', '{"tools": 3, "problems": []}'])
def test_a_memory_that_cannot_be_read_is_none(stage: Stage, text: str) -> None:
    stage.kept["k"] = text
    stage.known.look()
    assert len(stage.readings) == 1


def test_without_redis_tools_are_still_found(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.is_down = True
    stage.known.look()
    stage.known.found(ONE)
    stage.readings[0].set_result(None)
    assert stage.known.listing == ONE
    assert "no Redis" in caplog.text


def test_the_same_problem_is_logged_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        stage.known.look()
        stage.readings[-1].set_exception(ToolFailed("it is down"))
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
