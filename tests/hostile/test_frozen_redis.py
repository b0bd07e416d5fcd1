"""Valkey stands still for longer than a lease lasts while replies of the model come in."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.messages_server import Hang, MessagesServer
from tests.support.messages_wire import answer, sse
from tests.support.processes import stop
from tests.support.system import System, plain_agent, spoken
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(40)]

FROZEN_S = 6.0
"""Twice a lease, and longer than one question to Redis may take."""


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Stop a process for FROZEN_S, or longer if the block takes longer."""
    stop(pid)
    thaws_s = time.monotonic() + FROZEN_S
    try:
        yield
        until(lambda: time.monotonic() > thaws_s, FROZEN_S + 1, "Valkey has stood still long enough")
    finally:
        os.kill(pid, signal.SIGCONT)


def test_replies_that_come_while_redis_stands_still_are_used_and_not_asked_for_again(tmp_path: Path) -> None:
    texts = [f"reply number {number}" for number in range(3)]
    releases = [threading.Event() for _ in texts]
    with MessagesServer() as server:
        environ = {"ANTHROPIC_BASE_URL": server.url, "LOOM_AGENTS_DIR": plain_agent(tmp_path / "agents")}
        with System(tmp_path / "home", **environ) as system:
            turns = []
            for number, (text, release) in enumerate(zip(texts, releases, strict=True)):
                body = sse(answer(text))
                server.then(Hang(release, body, after_bytes=len(body) // 2))
                turns.append(system.submit(f"s{number}", "go"))
                until(lambda: len(server.requests) == len(turns), 20, "the reply has begun")
            with frozen(system.children["valkey"]):
                for release in releases[:2]:
                    release.set()  # whole while Redis stands still; the third one only afterwards
            releases[2].set()
            ended = [system.ended(turn) for turn in turns]
            assert len(server.requests) == 3
            assert [(turn["status"], turn["output_text"]) for turn in ended] == [("completed", text) for text in texts]
            assert [(turn["attempt"], turn["usage"]["llm_calls"]) for turn in ended] == [(1, 1)] * 3
            assert [spoken(list(system.events(turn))) for turn in turns] == texts
