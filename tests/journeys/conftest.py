"""One Loom for all journeys that can share it, and its model: each test process starts it once.

A journey has sessions and agents of its own there, and may kill what is started again. What needs other settings, or
spoils something for good, has a ``system`` of its own in its file.
"""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agents import written
from tests.support.messages_server import MessagesServer
from tests.support.postgres import started
from tests.support.system import Json, System

WEBHOOK_SECRET = "whsec_" + base64.b64encode(b"the default secret of this home.").decode()
SHOP_SECRET = "k3y of the shop"
AGENTS: dict[str, Json] = {
    "default": {"config": {"patterns": {"enabled": True}}},
    "payer": {"backend": False, "tools": ["handmade.py"]},
    "maker": {"backend": False, "tools": ["handmade.py"]},
    "narrow": {"backend": False, "tools": ["handmade.py:letter"]},
    "watched": {
        "backend": False,
        "tools": ["handmade.py:count"],
        "guardrails": {"input": {"card": "redact"}},
        "judges": {"members": [{"name": "watched-polite", "type": "contains", "criteria": {"none": ["damn"]}}]},
        "memory": {"memory_compression": {"max_l1_messages": 2}},
    },
    "lead": {"backend": False, "tools": [], "may_call": ["aide"]},
    "aide": {"backend": False, "tools": []},
    "embedder": {
        "backend": False,
        "tools": {"builtin": []},
        "sessions": {
            "memory": {
                "summaries": {"enabled": False, "extract_facts": False},
                "embeddings": {"enabled": True, "model": "scripted/hash"},
            }
        },
    },
    "brief": {"backend": False, "tools": ["handmade.py:count"], "config": {"max_tool_executions": 8}},
    "keeper": {
        "backend": False,
        "tools": {"builtin": []},
        "sessions": {"memory": {"active_window": 2, "compaction": {"batch_size": 2}}},
    },
}


@pytest.fixture(scope="session", autouse=True)
def _store(request: pytest.FixtureRequest) -> Iterator[None]:
    """With ``--store postgresql`` each system has its database on a server."""
    if request.config.getoption("store") == "sqlite":
        yield
        return
    with started("no journey is made on it") as server:
        System.server = server.store_url
        yield
        System.server = None


@pytest.fixture(scope="session")
def shared_server() -> Iterator[MessagesServer]:
    with MessagesServer() as server:
        yield server


@pytest.fixture
def server(shared_server: MessagesServer) -> Iterator[MessagesServer]:
    """The model; what a test has queued and not used is gone with it."""
    yield shared_server
    shared_server.forget()


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's own patterns."""
    return tmp_path_factory.mktemp("library")


@pytest.fixture(scope="session")
def shared_system(
    shared_server: MessagesServer, library: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    place = tmp_path_factory.mktemp("shared")
    (place / "workflows").mkdir()
    environ = {
        "ANTHROPIC_BASE_URL": shared_server.url,
        "LOOM_AGENTS_DIR": written(place / "agents", AGENTS),
        "LOOM_WORKFLOWS_DIR": str(place / "workflows"),
        "LOOM_PATTERNS_DIR": str(library),
        "LOOM_PATTERNS_SHIPPED": "0",
        "LOOM_SECRET_SHOP": SHOP_SECRET,
        "LOOM_WEBHOOK_SECRET": WEBHOOK_SECRET,
        "LOOM_ALLOW_PRIVATE_WEBHOOKS": "1",
    }
    with System(place / "home", **environ) as system:
        yield system


@pytest.fixture
def system(shared_system: System) -> System:
    """The shared Loom with all its workers, also after a test that has killed some."""
    shared_system.settle()
    return shared_system


def paid(system: System, session: str) -> list[int]:
    """The amounts that were really paid in a session, in order."""
    path = Path(system.environ["LOOM_AGENTS_DIR"]) / "paid.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [line["amount"] for line in lines if line["session"] == session]
