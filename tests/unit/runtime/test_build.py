"""The one place that builds objects: cheap to import, and whole when built."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from loom_worker.core.settings import Settings
from loom_worker.core.values.notifications import Event
from loom_worker.core.values.turns import NewTurn
from loom_worker.events.rebuild import queued
from loom_worker.lanes import keys
from loom_worker.runtime import build
from loom_worker.service.service import Service
from loom_worker.tasks import worker
from tests.support.processes import stop
from tests.support.until import until
from tests.support.valkey import Valkey

HEAVY = (
    *("sklearn", "anthropic", "tiktoken", "numpy", "alembic"),
    *("opentelemetry.sdk.trace", "opentelemetry.exporter", "google.protobuf", "rich"),
)
TURN_QUEUE = "loom:q:turn"


@pytest.fixture
def live(settings: Settings, valkey_server: Valkey, valkey: redis.Redis) -> Settings:
    """Settings of a home with its database made, on the running Valkey."""
    return replace(settings, redis_url=valkey_server.url)


@pytest.fixture
def service(live: Settings) -> Iterator[Service]:
    service = build.service(live)
    yield service
    service.close()


@pytest.fixture(scope="module")
def imported() -> dict[str, Any]:
    """What a new process says of itself after it imported the module, and after it asked for its parts."""
    ask = f"""
import json, sys, threading
import loom_worker.runtime.build
from loom_worker.tasks import worker
said = {{"threads": threading.active_count()}}
try:
    worker.current()
except RuntimeError:
    said["has_parts"] = False
else:
    said["has_parts"] = True
print(json.dumps(said | {{"loaded": [name for name in {HEAVY!r} if name in sys.modules]}}))
"""
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True, timeout=60)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.heavy
def test_importing_it_loads_no_library_that_costs_seconds(imported: dict[str, Any]) -> None:
    assert imported["loaded"] == []


def test_building_a_front_loads_no_library_that_costs_seconds(live: Settings) -> None:
    program = f"""
import sys
from loom_worker.runtime import build
from loom_worker.core.settings import from_env
service = build.service(from_env({{"LOOM_HOME": sys.argv[1], "LOOM_REDIS_URL": sys.argv[2]}}))
service.agents(); service.tools("default", "default"); service.close()
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    command = [sys.executable, "-c", program, str(live.home), live.redis_url]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


def test_importing_it_opens_and_starts_nothing(imported: dict[str, Any]) -> None:
    assert imported["threads"] == 1


def test_a_process_that_was_not_started_has_no_parts(imported: dict[str, Any]) -> None:
    assert not imported["has_parts"]


def test_an_accepted_turn_is_put_on_its_lane_and_its_log_opened(service: Service, valkey: redis.Redis) -> None:
    turn, _ = service.submit("default", "s1", NewTurn("How many?"), agent=None)
    until(lambda: valkey.llen(TURN_QUEUE), 5, "the wake-up is on the queue")
    assert valkey.zrange(keys.lane(turn.lane), 0, -1) == [turn.id]
    assert valkey.hget(keys.lease(turn.lane), "state") == "kicked"
    place, _ = service.waiter.source.begin("default", turn, after=0)
    assert next(service.waiter.events_now(place)) == Event(1, "turn.queued", queued(turn))


def test_no_message_on_the_queue_shows_what_the_user_wrote(service: Service, valkey: redis.Redis) -> None:
    service.submit("default", "s1", NewTurn("My secret is plugh."), agent=None)
    until(lambda: valkey.llen(TURN_QUEUE), 5, "the wake-up is on the queue")
    assert all("plugh" not in str(valkey.dump(key)) for key in valkey.keys("*"))
    assert len(str(valkey.lindex(TURN_QUEUE, 0))) < 1024


def test_a_front_accepts_turns_while_redis_is_down(settings: Settings) -> None:
    service = build.service(settings)
    turn, _ = service.submit("default", "s1", NewTurn("How many?"), agent=None)
    assert service.turn("default", turn.id).status == "queued"
    assert any(problem.startswith("redis") for problem in service.health.problems())
    service.close()


@pytest.mark.heavy
def test_a_redis_that_stands_still_is_told_in_time_and_hides_nothing_else(settings: Settings) -> None:
    with Valkey() as server, closing(build.service(replace(settings, redis_url=server.url))) as service:
        assert all(service.figures.all()["known"].values())
        assert server.process is not None
        stop(server.process.pid)
        began_s = time.monotonic()
        assert any(problem.startswith("redis") for problem in service.health.problems())
        assert time.monotonic() - began_s < 2
        known = service.figures.all()["known"]
        assert time.monotonic() - began_s < 5
    assert {name for name, is_known in known.items() if not is_known} == {"workers", "results"}


def test_readiness_names_what_is_missing(service: Service, live: Settings) -> None:
    assert service.health.problems() == ("workers: none that takes turns is alive",)
    process = build.start(live)
    process.worker.turns.renewer.renew()
    assert service.health.problems() == ()
    assert service.queue_stats("default")["workers"] == 1
    process.stop()
    assert service.health.problems() == ("workers: none that takes turns is alive",)


def test_a_front_without_a_database_is_not_ready(live: Settings, tmp_path: Path) -> None:
    empty = build.service(replace(live, database_url=f"sqlite:///{tmp_path}/empty.db"))
    assert any(problem.startswith("database") for problem in empty.health.problems())
    empty.close()
    empty.close()


def test_a_started_process_finds_its_parts_by_name_and_can_stop_twice(live: Settings) -> None:
    process = build.start(live)
    assert worker.current() is process.worker
    process.stop()
    process.stop()


def test_no_two_processes_have_the_same_name(live: Settings) -> None:
    one, two = (build.alone(live).worker.turns for _ in range(2))
    assert one.name != two.name
    assert one.is_isolated


def test_a_webhook_names_the_turn_where_it_is_found(live: Settings, service: Service) -> None:
    turn, _ = service.submit("default", "s1", NewTurn("How many? " * 9_000), agent=None)
    assert f"http://127.0.0.1:8000/v1/turns/{turn.id}" in build.alone(live).worker.turns.bodies.of(turn)
