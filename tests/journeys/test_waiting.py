"""A provider that hangs, or asks to wait: whoever looks sees so, and the turn's end says why."""

import threading
from collections.abc import Iterator

import pytest

from tests.support.messages_server import Hang, MessagesServer, failure
from tests.support.system import System
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(20)]


@pytest.fixture(scope="module")
def server() -> Iterator[MessagesServer]:
    with MessagesServer() as server:
        yield server


@pytest.fixture(scope="module")
def system(server: MessagesServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    home = tmp_path_factory.mktemp("waiting") / "home"
    environ = {"ANTHROPIC_BASE_URL": server.url, "LOOM_LLM_TIMEOUT_S": "12", "LOOM_TURN_TIMEOUT_S": "12"}
    with System(home, **environ) as system:
        yield system


def test_a_provider_that_asks_to_wait_is_seen_to_have_asked(server: MessagesServer, system: System) -> None:
    server.then(failure(429, "rate_limit_error", headers={"retry-after": "3600"}))
    turn_id = system.submit("busy", "Are you there?")
    until(lambda: system.turn(turn_id)["waiting"]["for"] == "rate_limit", 20, "it waits")
    waiting = system.turn(turn_id)["waiting"]
    assert (waiting["attempt"], waiting["next_try_at"] is not None) == (1, True)
    assert "rate_limit_error" in waiting["last_error"]
    assert system.post(f"/v1/turns/{turn_id}/cancel").status == 202
    assert system.ended(turn_id)["waiting"] is None


def test_a_provider_that_hangs_is_seen_while_it_hangs_and_named_at_the_end(
    server: MessagesServer, system: System
) -> None:
    server.then(Hang(threading.Event()), *[failure(503, "api_error")] * 30)
    turn_id = system.submit("hangs", "Are you there?")
    until(lambda: (system.turn(turn_id)["waiting"] or {}).get("attempt") == 1, 20, "its first request is out")
    waiting = system.turn(turn_id)["waiting"]
    assert (waiting["for"], waiting["last_error"], waiting["next_try_at"]) == ("model", None, None)
    behind = system.submit("hangs", "And now?")
    assert system.turn(behind)["waiting"]["for"] == "lane"
    assert 'loom_oldest_waiting_age_seconds{for="model"}' in system.get("/metrics").text
    until(lambda: system.turn(turn_id)["completed_at"] is not None, 60, "it has ended")
    ended = system.turn(turn_id)
    assert ended["waiting"] is None
    assert "The model's last error was: The model's provider is busy (api_error)." in ended["error"]["message"]
    logs = "".join(path.read_text() for path in (system.home / "logs").glob("worker-*.log"))
    [line] = [line for line in logs.splitlines() if turn_id in line and "waiting for" in line]
    assert "WARNING" in line
    assert "nothing came (attempt 1)" in line
