"""An agent's file is edited under running sessions: they keep their version, in every process, until they are moved."""

import json
from pathlib import Path

import pytest

from tests.support.agents import add
from tests.support.messages_server import MessagesServer, Say
from tests.support.system import Json, System
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.takes(8)]

URL = "/v1/agents/herald"


def write(system: System, prompt: str) -> None:
    add(Path(system.environ["LOOM_AGENTS_DIR"]), "herald", {"backend": False, "tools": [], "system_prompt": prompt})


def versions(system: System) -> list[str]:
    answer = system.get(f"{URL}/versions").json
    return [each["version"] for each in answer.get("data", [])]


def answered(server: MessagesServer, system: System, session: str) -> tuple[str, str]:
    """The version that a session's next turn ran, and what of prompts the model was sent."""
    server.then(Say("Hear, hear."))
    turn: Json = system.ended(system.submit(session, "Speak.", agent="herald"))
    assert turn["status"] == "completed", turn
    request = json.dumps(server.requests[-1])
    return turn["agent_version"], next(word for word in ("BRONZE", "SILVER") if word in request)


def test_sessions_keep_their_version_through_an_edit_until_all_are_moved(
    server: MessagesServer, system: System
) -> None:
    write(system, "Say BRONZE.")
    until(lambda: versions(system) == ["1"], 20, "the agent is known")
    assert answered(server, system, "herald-1") == ("1", "BRONZE")
    write(system, "Say SILVER.")
    until(lambda: versions(system) == ["1-2", "1"], 20, "the edit is a version")
    for number in range(2, 6):  # so that every worker has met the new file
        assert answered(server, system, f"herald-{number}") == ("1-2", "SILVER")
    assert answered(server, system, "herald-1") == ("1", "BRONZE")
    assert versions(system) == ["1-2", "1"]
    updated = system.get("/v1/audit?kind=agent.updated&agent=herald").json["data"]
    assert [row["subject"] for row in updated] == ["1-2"]

    assert (
        "herald@1 (production), 4 sessions moved to it"
        in system.run("agents", "activate", "herald", "1", "--all-sessions").stdout
    )
    assert answered(server, system, "herald-2") == ("1", "BRONZE")
    assert answered(server, system, "herald-6") == ("1", "BRONZE")
    moved = system.patch("/v1/sessions/herald-6", {"agent": "herald@latest"}).json
    assert moved["agent_version"] == "1-2"
    assert answered(server, system, "herald-6") == ("1-2", "SILVER")
    [attributes] = {
        each["attributes"].get("gen_ai.agent.version")
        for each in system.get(f"/v1/turns/{system.get('/v1/turns?limit=1').json['data'][0]['id']}/trace").json["data"]
        if each["name"] == "agent.chat"
    }
    assert attributes == "1-2"
