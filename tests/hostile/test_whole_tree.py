"""`loom up` and its whole tree are killed while turns run; the next start needs no help."""

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.messages_server import Behaviour, Hang, MessagesServer, echo
from tests.support.messages_wire import answer, sse
from tests.support.processes import killed_at_the_end
from tests.support.system import START_S, Json, System, kill, leftovers, loom, plain_agent
from tests.support.until import until
from tests.support.webhook_receiver import unused_port

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(70)]

HALF = sse(answer("cut off in the middle"))
QUESTIONS = ("first", "second", "third")
SESSIONS = ("a", "b")
MILESTONES = ("webhook.secret", "loom.db", "shop.db", "valkey", "logs/web.log")
"""Of a first start, about in the order in which they come to be."""


class Script:
    """Hangs in the middle of every answer until released, and then answers."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def __call__(self, body: Json) -> Behaviour:
        return echo(body) if self.release.is_set() else Hang(self.release, HALF, after_bytes=len(HALF) // 2)


@pytest.fixture(scope="module")
def script() -> Script:
    return Script()


@pytest.fixture(scope="module")
def system(script: Script, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """One for all: what one test killed and started again is what the next one kills."""
    folder = tmp_path_factory.mktemp("tree")
    with (
        MessagesServer(script=script) as server,
        System(
            folder / "home", ANTHROPIC_BASE_URL=server.url, LOOM_AGENTS_DIR=plain_agent(folder / "agents")
        ) as system,
    ):
        yield system
        script.release.set()


def supervisor_then_children(system: System) -> None:
    children = system.children
    system.kill_supervisor()
    for pid in children.values():
        kill(pid)


def children_then_supervisor(system: System) -> None:
    """It has begun to restart the first ones when its own turn comes."""
    before = system.output.count(" ended (SIGKILL)")
    for pid in system.children.values():
        kill(pid)
    until(lambda: system.output.count(" ended (SIGKILL)") > before, 20, "it sees them die")
    system.kill_supervisor()


def all_at_once(system: System) -> None:
    pids = leftovers(system.home)
    for pid in pids:
        kill(pid)
    system.kill_supervisor()


@pytest.mark.parametrize("murder", [supervisor_then_children, children_then_supervisor, all_at_once])
def test_after_the_death_of_the_whole_tree_its_commands_say_so_and_a_start_goes_on_with_every_turn(
    system: System, script: Script, murder: Callable[[System], None]
) -> None:
    script.release.clear()
    sessions = [f"{session}-{murder.__name__}" for session in SESSIONS]
    turns = [[system.submit(session, text) for text in QUESTIONS] for session in sessions]
    for first, *_ in turns:
        until(lambda turn_id=first: system.holder(turn_id), 20, "the first turn of each session runs")
    murder(system)
    until(lambda: not leftovers(system.home), 10, "nothing is left running")
    assert_told_dead(system)
    script.release.set()
    system.start()
    for session, ids in zip(sessions, turns, strict=True):
        assert [system.ended(turn_id)["status"] for turn_id in ids] == ["completed"] * len(ids)
        assert told(system, session) == [
            (turn_id, role, text)
            for turn_id, question in zip(ids, QUESTIONS, strict=True)
            for role, text in (("user", question), ("assistant", f"echo: {question}"))
        ]
    assert system.run("status").returncode == 0


def test_one_that_is_started_again_at_the_moment_of_its_death_takes_the_same_port_and_home(
    system: System, script: Script
) -> None:
    script.release.clear()
    running = system.submit("again", "first")
    until(lambda: system.holder(running), 20, "the turn runs")
    old = set(leftovers(system.home))
    system.kill_supervisor()
    script.release.set()
    system.start(port=urlsplit(system.url).port)
    assert system.ended(running)["status"] == "completed"
    assert [role for _, role, _ in told(system, "again")] == ["user", "assistant"]
    assert old & set(leftovers(system.home)) == set()


def test_a_first_start_that_is_killed_at_any_stage_is_followed_by_one_that_works(tmp_path: Path) -> None:
    with MessagesServer() as server:
        agents = plain_agent(tmp_path / "agents")
        system = System(tmp_path / "home", ANTHROPIC_BASE_URL=server.url, LOOM_AGENTS_DIR=agents)
        for milestone in MILESTONES:
            up = subprocess.Popen(
                loom("up", "--port", str(unused_port())), env=system.environ, stdout=subprocess.DEVNULL
            )
            with killed_at_the_end(up.pid):
                until(lambda name=milestone: (system.home / name).exists(), START_S, f"{milestone} is there")
            assert up.wait() == -signal.SIGKILL
        secret, password = ((system.home / name).read_text().strip() for name in ("webhook.secret", "flower.password"))
        with system:
            assert system.ended(system.submit("s", "hello"))["status"] == "completed"
            assert (secret in system.output, password in system.output) == (False, False)
            assert f"{system.home}/webhook.secret" in system.output


def assert_told_dead(system: System) -> None:
    """What the killed one left is there, and nobody is taken in by it."""
    assert (system.home / "up.json").exists()
    status, stop = system.run("status"), system.run("stop")
    assert (status.returncode, stop.returncode) == (1, 0)
    assert status.stdout.startswith("Loom is not running")
    assert stop.stdout.startswith("Loom is not running")


def told(system: System, session: str) -> list[tuple[str, str, str]]:
    """Turn, role and text of each message of a session, oldest first."""
    return [(message["turn_id"], message["role"], text_of(message)) for message in system.messages(session)]


def text_of(message: Json) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
