"""A file of tools is edited while all processes run."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.support.agents import add
from tests.support.messages_server import MessagesServer, Say
from tests.support.messages_wire import WireCall
from tests.support.system import System
from tests.support.tool_wire import data, results
from tests.support.until import until

pytestmark = [pytest.mark.heavy, pytest.mark.journey, pytest.mark.takes(8)]

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
        (told,) = [each["description"] for each in first["tools"] if each["name"] == "seal"]
        return told, data(results(second)[0], turn["id"]).strip()

    old, new = ("The first seal.", "sealed by the first"), ("The second seal.", "sealed by the second")
    assert asked() == old
    (folder / "seal.py").write_text(TOOL.format(word="second"))

    def is_there() -> bool:
        found = asked()
        assert found in (old, (old[0], new[1]), new), "a call never runs an older version than the model was told of"
        return found == new

    until(is_there, 20, "the edit acts")
    assert [asked() for _ in range(4)] == [new] * 4
    (folder / "seal.py").write_text(TOOL.format(word="third") + "\ndef broken(:\n")

    def is_told() -> bool:
        assert asked() == new
        return f"{folder / 'seal.py'}:8: invalid syntax; the former version stays in use" in logs(system)

    until(is_told, 20, "the log says what is wrong and where")
    assert asked() == new
