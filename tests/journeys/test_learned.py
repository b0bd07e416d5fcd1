"""A learned layer over the whole system: imported, activated, sent to the model, and the same for a session's life."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.messages_server import MessagesServer, Say
from tests.support.system import Json, System

pytestmark = [pytest.mark.journey, pytest.mark.takes(10)]

AGENT = "narrow"
PROMPTS = ("Name the harbour first.", "Name the captain first.")


@pytest.fixture
def versions(shared_system: System, tmp_path: Path) -> Iterator[System]:
    """Two versions of one agent, none of them active before or after."""
    for n, prompt in enumerate(PROMPTS, 1):
        file = tmp_path / f"prompt{n}.json"
        file.write_text(json.dumps([{"name": "system_prompt", "value": prompt, "gradients": ["Too vague."]}]))
        assert f"version {n}" in shared_system.run("learned", "import", str(file), "--agent", AGENT).stdout
    yield shared_system
    shared_system.post(f"/v1/agents/{AGENT}/learned/activate", {"version": 0})


def sent(server: MessagesServer, system: System, session: str) -> tuple[Json, str]:
    """The next turn of a session, and the system text that the model was sent for it."""
    server.then(Say("Done."))
    turn = system.ended(system.submit(session, "Which ship?", agent=AGENT))
    assert turn["status"] == "completed", turn
    return turn, json.dumps(server.requests[-1]["system"])


def test_a_session_keeps_its_version_and_new_ones_get_what_is_active(server: MessagesServer, versions: System) -> None:
    system = versions
    assert "begin with version 1" in system.run("learned", "activate", AGENT, "--version", "1").stdout
    turn, first = sent(server, system, "learned-1")
    assert (turn["learned_version"], PROMPTS[0] in first, "Too vague." in first) == (1, True, False)
    system.run("learned", "activate", AGENT, "--version", "2", "--share", "1")
    assert sent(server, system, "learned-1")[1] == first
    turn, other = sent(server, system, "learned-2")
    assert (turn["learned_version"], PROMPTS[1] in other, PROMPTS[0] in other) == (2, True, False)
    assert "learned version 1 in rom: 1 of 1 signatures" in system.run("sessions", "show", "learned-1").stdout
    listed = system.get(f"/v1/agents/{AGENT}/learned").json["data"]
    assert [(each["version"], each["scores"]["completed"]) for each in listed[:2]] == [(2, 1), (1, 2)]
    assert "begin with version 1" in system.run("learned", "rollback", AGENT).stdout
    assert sent(server, system, "learned-3")[0]["learned_version"] == 1
