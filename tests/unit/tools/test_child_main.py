import io
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from loom_worker.backends.documents.backend import DocumentsBackend
from loom_worker.backends.sql import SqlBackend
from loom_worker.core.errors import LoomError
from loom_worker.core.values.json import Json
from loom_worker.tools import child_main, targets
from loom_worker.tools.pool import Child, Program, packed, unpacked
from tests.support.callers import CALLER

FILE = '''
from loom_worker.tools.declare import Caller, tool

loads = []

@tool
def who(caller: Caller, greeting: str = "Hello") -> str:
    """Greet."""
    loads.append(1)
    return f"{greeting}, {caller.session_id}, {len(loads)}"
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "greet.py").write_text(FILE)
    return tmp_path


def request(folder: Path, tool: str = "who", file: str = "greet.py", **arguments: object) -> Json:
    return {
        "origin": targets.origin(file, folder, targets.read(folder / file)),
        "tool": tool,
        "arguments": arguments,
        "caller": {name: getattr(CALLER, name) for name in CALLER.__slots__},
        "max_bytes": 1000,
        "tells_start": False,
    }


def nothing() -> None:
    pass


def test_a_tool_is_built_once_and_told_to_begin_each_time(folder: Path) -> None:
    shop, began = child_main.ToolServer(), list[int]()
    contents = [shop.answer(request(folder), lambda: began.append(1))["content"] for _ in range(2)]
    assert contents == ["Hello, s1, 1", "Hello, s1, 2"]
    assert began == [1, 1]


def test_the_version_that_is_asked_for_runs_whatever_has_become_of_its_file(folder: Path) -> None:
    shop, path = child_main.ToolServer(), folder / "greet.py"
    old = request(folder)
    assert shop.answer(old, nothing)["content"] == "Hello, s1, 1"
    path.write_text(FILE.replace("Hello", "Hi"))
    new = request(folder)
    assert shop.answer(old, nothing)["content"] == "Hello, s1, 2"
    assert shop.answer(new, nothing)["content"] == "Hi, s1, 1"
    path.unlink()
    for known in (old, new):  # a worker sends each version's text once
        del known["origin"]["source"]
    assert shop.answer(new, nothing)["content"] == "Hi, s1, 2"
    assert shop.answer(old, nothing)["content"] == "Hello, s1, 3"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tool": "what"}, "there is no tool 'what' any more; tools: who"),
        ({"origin": {"kind": "magic"}}, "unknown kind 'magic'"),
        ({"origin": {"kind": "python"}}, "KeyError: 'target'"),
    ],
)
def test_a_tool_that_cannot_be_built_is_a_fault_and_never_begins(folder: Path, change: Json, said: str) -> None:
    began: list[int] = []
    found = child_main.ToolServer().answer(request(folder) | change, lambda: began.append(1))
    assert (found["status"], found["is_fault"]) == ("failed", True)
    assert said in found["content"]
    assert began == []


def test_the_tools_of_backends_are_built_from_their_origins(tmp_path: Path) -> None:
    sql = SqlBackend("postgresql+psycopg://u:p@127.0.0.1:1/db")
    documents = DocumentsBackend(tmp_path, tmp_path / "index")
    for backend in (sql, documents):
        tools = backend.tools()
        assert tools[0].origin is not None
        assert [each.spec for each in child_main.build(tools[0].origin)] == [each.spec for each in tools]
    sql.close()


def test_an_origin_of_no_known_kind_is_refused() -> None:
    with pytest.raises(LoomError, match="unknown kind"):
        child_main.build({})


def talk(messages: list[Json]) -> list[Any]:
    """What a child answers until it is told no more."""
    read_end, write_end = os.pipe()
    try:
        done = subprocess.run(
            [*child_main.command(), str(read_end)],
            input=b"".join(map(packed, messages)),
            pass_fds=(read_end,),
            start_new_session=True,
            capture_output=True,
            check=True,
            timeout=60,
        )
    finally:
        os.close(read_end)
        os.close(write_end)
    stream = io.BytesIO(done.stdout)
    return list(iter(lambda: unpacked(stream.read), None))


def test_a_child_answers_each_request_in_turn_and_ends_with_its_stdin(folder: Path) -> None:
    first, second = request(folder) | {"tells_start": True}, request(folder, greeting="Hi")
    answers = talk([first, second])
    assert answers[0] == {}
    assert [each["content"] for each in answers[1:]] == ["Hello, s1, 1", "Hi, s1, 2"]


def test_a_child_whose_worker_is_gone_already_does_not_begin(folder: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(write_end)
    try:
        done = subprocess.run(
            [*child_main.command(), str(read_end)],
            stdin=subprocess.DEVNULL,
            pass_fds=(read_end,),
            start_new_session=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(read_end)
    assert done.returncode == 1


def test_a_module_in_the_workers_folder_stands_in_for_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "json.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(folder)
    child = Child(Program("users", child_main.command(), os.environ))
    try:
        child.ask(request(folder), 30.0)
        assert child.answer(30.0, 10_000)["content"] == "Hello, s1, 1"
    finally:
        child.end()
    assert child.status == -9
