"""Python tools of a user's own on real workers: how many at once, how often, and what other workers know of them."""

from collections.abc import Iterator

import pytest

from tests.support.agents import written
from tests.support.engine import Engine
from tests.support.meeting import Meeting
from tests.support.messages_server import MessagesServer, Say
from tests.support.messages_wire import WireCall
from tests.support.tool_wire import data, results, tools
from tests.support.valkey import Valkey

pytestmark = [pytest.mark.heavy, pytest.mark.integration, pytest.mark.takes(10)]


@pytest.fixture(scope="module")
def engine(server: MessagesServer, valkey_server: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A worker whose agent ``plain`` has handmade tools."""
    place = tmp_path_factory.mktemp("python")
    agents = written(place / "agents", {"plain": {"backend": False, "tools": ["handmade.py"]}})
    with Engine(place / "home", valkey_server, ANTHROPIC_BASE_URL=server.url, LOOM_AGENTS_DIR=agents) as engine:
        engine.start_worker("first")
        yield engine


@pytest.fixture
def meeting() -> Iterator[Meeting]:
    with Meeting() as meeting:
        yield meeting


def meets(meeting: Meeting, *names: str) -> list[WireCall]:
    return [WireCall(f"toolu_{n}", "meet", {"port": meeting.port, "name": name}) for n, name in enumerate(names)]


def test_of_twelve_calls_ten_run_at_once_and_each_that_ends_makes_room_for_one(
    engine: Engine, server: MessagesServer, meeting: Meeting
) -> None:
    names = [f"n{number}" for number in range(12)]
    server.then(Say("", meets(meeting, *names)), Say("All met."))
    turn = engine.submit("twelve", "Meet.")
    guests = meeting.guests(10)
    running = "SELECT count(*) FROM calls WHERE turn_id = ? AND status = 'running'"
    assert engine.rows(running, turn.id) == [(10,)]
    assert meeting.is_empty()
    for _ in range(2):
        guests.pop(0).go_on("met")
        guests += meeting.guests(1)
        assert meeting.is_empty()
    assert {guest.name for guest in guests} >= {"n10", "n11"}
    for guest in guests:
        guest.go_on("met")
    ended = engine.ended(turn)
    assert ended.output_text == "All met."
    assert [(call.id, call.status) for call in ended.calls] == [(f"toolu_{n}", "completed") for n in range(12)]


def test_the_same_call_in_one_turn_is_answered_once_for_both(
    engine: Engine, server: MessagesServer, meeting: Meeting
) -> None:
    server.then(Say("", meets(meeting, "twin", "twin")), Say("Both met."))
    turn = engine.submit("twins", "Meet twice.")
    (guest,) = meeting.guests(1)
    guest.go_on("once for both")
    ended = engine.ended(turn)
    assert [data(block, turn.id) for block in results(server.requests[-1])] == ["once for both\n"] * 2
    assert (ended.output_text, meeting.is_empty()) == ("Both met.", True)


def test_of_21_calls_in_one_reply_the_last_is_not_run_and_the_model_told_why(
    engine: Engine, server: MessagesServer
) -> None:
    server.then(Say("", [WireCall(f"toolu_{n}", "count", {"n": n}) for n in range(21)]), Say("Counted."))
    turn = engine.submit("many", "Count.")
    assert [call.status for call in engine.ended(turn).calls] == ["completed"] * 20 + ["failed"]
    read = [data(block, turn.id) for block in results(server.requests[-1])]
    assert read == [*(str(n + 1) for n in range(20)), "Not run: at most 20 tool calls in one reply."]


def test_arguments_are_converted_only_without_loss_and_the_model_is_told_what_is_wrong_with_the_rest(
    engine: Engine, server: MessagesServer
) -> None:
    given: list[object] = ["41", 41.0, 41.5, "forty-one", None]
    server.then(Say("", [WireCall(f"toolu_{n}", "count", {"n": value}) for n, value in enumerate(given)]), Say("Two."))
    turn = engine.submit("lossless", "Count.")
    assert [call.status for call in engine.ended(turn).calls] == ["completed"] * 2 + ["failed"] * 3
    read = [data(block, turn.id) for block in results(server.requests[-1])]
    assert read[:2] == ["42", "42"]
    assert read[2:4] == ["/n: expected integer, got 41.5", '/n: expected integer, got "forty-one"']
    assert "required" in read[4]


def test_a_tool_that_broke_on_one_worker_is_still_tried_by_another(engine: Engine, server: MessagesServer) -> None:
    server.then(Say("", [WireCall(f"toolu_{n}", "broken", {}) for n in range(5)]), Say("Broken."))
    assert {call.worker for call in engine.ended(engine.submit("a", "Try five.")).calls} != {None}
    first = engine.workers["first"]
    first.terminate()
    assert first.wait(timeout=60) == 0
    engine.start_worker("second")
    server.then(Say("", [WireCall("toolu_6", "broken", {})]), Say("Without it."))
    turn = engine.submit("b", "Try once.")
    (tried,) = engine.ended(turn).calls
    assert (tried.status, tried.worker is None) == ("failed", False)
    assert "UNAVAILABLE" not in data(results(server.requests[-1])[0], turn.id)
    assert "broken" in tools(server.requests[-1])
