"""Walks of docs/runbook.md, as an operator goes them; others are parts of the journeys that the page names."""

import threading
from collections.abc import Iterator

import pytest

from tests.support.messages_server import Hang, MessagesServer, Say
from tests.support.runbook import follow
from tests.support.system import System
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.takes(6)]


@pytest.fixture
def release() -> Iterator[threading.Event]:
    release = threading.Event()
    yield release
    release.set()


def test_a_stuck_lane_is_found_and_freed_as_the_runbook_says(
    server: MessagesServer, system: System, release: threading.Event
) -> None:
    server.then(Hang(release), Say("Here."))
    turn_id = system.submit("maria-42", "Are you there?")
    behind = system.submit("maria-42", "And now?")
    until(lambda: (system.turn(turn_id)["waiting"] or {}).get("attempt") == 1, 20, "its first request is out")
    assert behind in follow(system, "stuck lane, look")
    follow(system, "stuck lane, cancel", TURN=turn_id)
    assert system.ended(turn_id)["status"] == "cancelled"
    assert system.ended(behind)["output_text"] == "Here."
    follow(system, "stuck lane, logs", TURN=turn_id)
    follow(system, "slow turn, trace", TURN=behind)


@pytest.mark.heavy
def test_what_fills_a_disk_is_found_as_the_runbook_says(system: System) -> None:
    assert "loom.db" in follow(system, "full disk, look")
