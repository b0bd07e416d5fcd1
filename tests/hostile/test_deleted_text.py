"""What was said in a session that is deleted reaches no model any more, whoever was about to send it."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.messages_server import Behaviour, MessagesServer, echo, failure
from tests.support.system import System, plain_agent
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(40)]

SECRET = "the-heron-flies-at-dawn"
LONGEST_RETRY_S = 6.0
"""Within this a compressor that was told to come back does so."""


def test_no_file_of_a_home_holds_what_a_deleted_user_said(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with MessagesServer(script=echo) as server:
        environ = {"ANTHROPIC_BASE_URL": server.url, "LOOM_AGENTS_DIR": plain_agent(tmp_path / "agents")}
        with System(home, **environ) as system:
            for n in range(3):
                system.ended(system.submit("s1", f"{SECRET} {n}", user="maria"))
            assert list(holding(home)), "it stood there"
            assert system.delete("/v1/users/maria").status == 200
            until(lambda: not list(holding(home)), 30, "no file holds it")


def holding(home: Path) -> Iterator[Path]:
    """The files below that hold the text."""
    for path in home.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file() and SECRET.encode() in path.read_bytes():
                yield path


def test_a_summary_that_is_tried_again_is_not_sent_once_its_session_is_deleted(tmp_path: Path) -> None:
    refused = threading.Event()

    def script(body: Any) -> Behaviour:
        if "tools" in body:
            return echo(body)
        refused.set()  # it is the compressor that asks
        return failure(529, "overloaded_error")

    with MessagesServer(script=script) as server:
        agents = plain_agent(tmp_path / "agents")
        environ = {"ANTHROPIC_BASE_URL": server.url, "LOOM_AGENTS_DIR": agents, "LOOM_L1_TOKENS": "100"}
        with System(tmp_path / "home", **environ) as system:
            for n in range(6):
                system.ended(system.submit("s1", f"{SECRET} {n}"))
            assert refused.wait(60), "the compressor was asked"
            assert system.delete("/v1/sessions/s1").status == 204
            sent, deleted_s = len(server.requests), time.monotonic()
            until(lambda: time.monotonic() - deleted_s > LONGEST_RETRY_S, 10, "every retry would have come")
            assert SECRET not in json.dumps(server.requests[sent:])
            assert system.ended(system.submit("s1", "hello"))["status"] == "completed"
