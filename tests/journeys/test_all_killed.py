"""`loom up` itself dies by SIGKILL, and is started again on the same home."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.messages_server import Behaviour, Hang, MessagesServer, Say, echo
from tests.support.messages_wire import WireCall, answer, sse
from tests.support.system import Json, System, alone, leftovers, plain_agent
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(35)]

ENDLESS_QUERY = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT COUNT(*) FROM c"
HALF = sse(answer("cut off in the middle"))


class Script:
    """Hangs in the middle of every answer until released, and then answers; ``Count.`` asks for an endless query."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def __call__(self, body: Json) -> Behaviour:
        if self.release.is_set():
            return echo(body)
        if "Count." in str(body["messages"][-1]):
            return Say("I count.", [WireCall("toolu_endless", "execute_sql", {"sql": ENDLESS_QUERY})])
        return Hang(self.release, HALF, after_bytes=len(HALF) // 2)


@pytest.fixture
def script() -> Iterator[Script]:
    script = Script()
    yield script
    script.release.set()


def loom_on(home: Path, server: MessagesServer) -> System:
    """A query may run for longer than nothing may be left running, and not so long that the last stop waits for it."""
    agents = plain_agent(home.with_name("agents"))
    return System(home, ANTHROPIC_BASE_URL=server.url, LOOM_AGENTS_DIR=agents, LOOM_TOOL_TIMEOUT_S="5")


def test_a_killed_supervisor_leaves_nothing_running_and_what_was_accepted_is_answered_after_the_next_start(
    script: Script, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("all") / "home"
    with MessagesServer(script=script) as server, loom_on(home, server) as system:
        on_last_attempt = system.submit("poison", "Stand alone.", max_attempts=2)
        system.kill(str(until(lambda: system.holder(on_last_attempt), 20, "its first attempt runs")))
        until(lambda: alone(home, on_last_attempt), 20, "its last attempt runs alone")
        running = system.submit("s", "first")
        until(lambda: system.holder(running), 20, "the first turn runs")
        queued = [system.submit("s", text) for text in ("second", "third")]
        counting = system.submit("counting", "Count.")
        until(lambda: system.tool_worker(counting), 20, "the endless query runs")

        system.kill_supervisor()
        until(lambda: not leftovers(home), 3, "nothing is left running")

        script.release.set()
        system.start()
        turns = [system.ended(turn_id) for turn_id in (running, *queued)]
        assert [turn["status"] for turn in turns] == ["completed"] * 3
        said = [(message["turn_id"], message["role"]) for message in system.messages("s")]
        assert said == [(turn["id"], role) for turn in turns for role in ("user", "assistant")]
        given_up = system.ended(on_last_attempt)
        assert (given_up["status"], given_up["reason"]) == ("failed", "dead")
