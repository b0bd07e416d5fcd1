"""A file of tools is edited while all processes run."""

import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.support.agents import add
from tests.support.messages_server import Hang, MessagesServer, Say
from tests.support.messages_wire import WireCall
from tests.support.system import Json, System
from tests.support.tool_wire import data, results
from tests.support.until import until

pytestmark = [pytest.mark.heavy, pytest.mark.journey, pytest.mark.takes(8)]

AT_ONCE = 4
TURN_WORKERS = 2
TOOL = '''from loom_worker.tools.declare import tool

@tool
def seal() -> str:
    """The {word} seal."""
    return "sealed by the {word}"
'''


@pytest.fixture
def folder(system: System) -> Iterator[Path]:
    """Of all agents; one of them has the tool that is edited."""
    folder = Path(system.environ["LOOM_AGENTS_DIR"])
    (folder / "seal.py").write_text(TOOL.format(word="first"))
    add(folder, "clerk", {"backend": False, "tools": ["seal.py"]})
    until(lambda: '"clerk"' in system.get("/v1/agents").text, 20, "the agent is known")
    yield folder
    for name in ("clerk.yaml", "seal.py"):
        (folder / name).unlink()


def told(request: Json) -> str:
    """What the model is told of the tool."""
    (description,) = [each["description"] for each in request["tools"] if each["name"] == "seal"]
    return str(description)


def seen_by_all(server: MessagesServer, system: System, description: str) -> None:
    """Have each worker tell the model of the tool: one that never had a version of it has none to stay with."""
    workers: set[str] = set()

    def have_all_told() -> bool:
        before, released = len(server.requests), threading.Event()
        server.then(*[Hang(released)] * AT_ONCE)  # while they hang, a worker that has a turn is not given them all
        turns = [system.submit(f"held-{before}-{n}", "Look.", agent="clerk") for n in range(AT_ONCE)]
        until(lambda: len(server.requests) == before + AT_ONCE, 20, "all turns run")
        released.set()
        assert {told(request) for request in server.requests[before:]} == {description}
        for turn in map(system.ended, turns):
            spans: list[Json] = system.get(f"/v1/turns/{turn['id']}/trace").json["data"]
            workers.update(span["attributes"]["loom.worker"] for span in spans if span["name"] == "turn.run")
        return len(workers) == TURN_WORKERS

    until(have_all_told, 20, "each worker has run a turn with the tool")


def logs(system: System) -> str:
    return "".join(path.read_text() for path in (system.home / "logs").glob("*.log"))


def test_an_edit_acts_in_every_process_and_a_broken_one_in_none(
    server: MessagesServer, system: System, folder: Path
) -> None:
    sessions = count()

    def asked() -> tuple[str, str]:
        """What the model is told of the tool by one process, and what the tool says in another."""
        server.then(Say("", [WireCall("toolu_1", "seal", {})]), Say("Done."))
        turn = system.ended(system.submit(f"seal-{next(sessions)}", "Seal it.", agent="clerk"))
        assert turn["status"] == "completed", turn
        first, second = server.requests[-2:]
        return told(first), data(results(second)[0], turn["id"]).strip()

    old, new = ("The first seal.", "sealed by the first"), ("The second seal.", "sealed by the second")
    seen_by_all(server, system, old[0])
    assert asked() == old
    (folder / "seal.py").write_text(TOOL.format(word="second"))

    def is_there() -> bool:
        found = asked()
        assert found in (old, (old[0], new[1]), new), "a call never runs an older version than the model was told of"
        return found == new

    until(is_there, 20, "the edit acts")
    seen_by_all(server, system, new[0])
    assert asked() == new
    (folder / "seal.py").write_text(TOOL.format(word="third") + "\ndef broken(:\n")

    def is_told() -> bool:
        assert asked() == new
        return f"{folder / 'seal.py'}:8: invalid syntax; the former version stays in use" in logs(system)

    until(is_told, 20, "the log says what is wrong and where")
    assert asked() == new
