"""Workers that are alive but take no turns are told from those that only wait for a model, and replaced."""

import threading
from collections.abc import Iterator

import pytest

from loom_worker.core.settings import embedded_url
from loom_worker.lanes.readiness import AFTER_S, read_readiness, stuck
from tests.support.celery_app import app_at
from tests.support.messages_server import Hang, MessagesServer
from tests.support.messages_wire import answer, sse
from tests.support.system import System, plain_agent
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(60)]

TAKERS = ("worker-1", "worker-2")


@pytest.fixture(scope="module")
def server() -> Iterator[MessagesServer]:
    with MessagesServer() as server:
        yield server


@pytest.fixture(scope="module")
def system(server: MessagesServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Two workers for turns, with one thread each."""
    place = tmp_path_factory.mktemp("consuming")
    environ = {"ANTHROPIC_BASE_URL": server.url, "LOOM_AGENTS_DIR": plain_agent(place / "agents")}
    with System(place / "home", LOOM_WORKER_CONCURRENCY="1", **environ) as system:
        yield system


def test_workers_whose_threads_all_wait_for_the_model_are_ready_and_left_alone(
    server: MessagesServer, system: System
) -> None:
    release, before = threading.Event(), system.children
    body = sse(answer("slow but sure"))
    server.then(*[Hang(release, body, after_bytes=len(body) // 2)] * 2)
    slow = [system.submit(f"slow-{number}", "?") for number in range(2)]
    until(lambda: len(server.requests) >= 2, 20, "both threads wait for the model")
    queued = [system.submit(f"queued-{number}", "?") for number in range(3)]
    statuses = set()

    def waited_s() -> float:
        statuses.add(system.get("/readyz").status)
        with system.redis() as client:
            return read_readiness(client).unclaimed_s

    # What would be a verdict on idle workers, and what the supervisor needs to act on one.
    until(lambda: waited_s() > AFTER_S + 10, AFTER_S + 30, "the wake-ups of the others go unanswered")
    assert statuses == {200}
    release.set()
    assert {system.ended(turn_id)["status"] for turn_id in slow + queued} == {"completed"}
    assert system.children == before


def test_workers_that_take_no_turns_are_named_and_replaced_and_the_turn_is_answered(system: System) -> None:
    before = system.children
    control = app_at(embedded_url(system.home), system.home).control

    def deaf() -> list[str]:
        replies = control.cancel_consumer("turn", reply=True, timeout=5.0, limit=len(TAKERS) + 1)
        told = [name for reply in replies for name, said in reply.items() if "ok" in said]
        takers = [name for name in told if name.partition("@")[0] in TAKERS]
        return takers if len(takers) == len(TAKERS) else []

    takers = until(deaf, 30, "both workers have stopped consuming")
    inspect = control.inspect(takers, timeout=5.0, limit=len(TAKERS))

    def at_rest() -> bool:
        # What they took before may wait for their threads, and a thread that has run it looks for another lane itself.
        told = inspect.reserved() or {}, inspect.active() or {}  # a task goes from the first to the second
        return all(len(each) == len(TAKERS) and not any(each.values()) for each in told)

    until(at_rest, 30, "they have nothing left to run")
    turn_id = system.submit("unheard", "Does anybody listen?")

    def refusal() -> str:
        answer = system.get("/readyz")
        return answer.json["detail"] if answer.status == 503 else ""

    detail = until(refusal, AFTER_S + 30, f"told as not ready, with {turn_id} waiting")
    assert system.turn(turn_id)["status"] == "queued"
    assert "alive but not consuming" in detail
    assert all(f"-{before[name]}-" in detail for name in TAKERS)
    with system.redis() as client:
        assert len(stuck(read_readiness(client))) == len(TAKERS)

    assert system.ended(turn_id)["status"] == "completed"
    assert all(f"{name} is alive but takes no turns" in system.output for name in TAKERS)
    until(
        lambda: all(system.children.get(name, pid) != pid for name, pid in before.items() if name in TAKERS), 10, "new"
    )
    assert {name: pid for name, pid in system.children.items() if name not in TAKERS} == {
        name: pid for name, pid in before.items() if name not in TAKERS
    }
    until(system.is_ready, 20, "it is ready again")
