"""A Redis that has no room: what was accepted is kept, people are told why nothing moves, and all goes on by itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.system import System, plain_agent
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(25)]


@contextmanager
def full(loom: System) -> Iterator[None]:
    """Redis refuses all that takes memory."""
    with loom.redis() as client:
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
        client.config_set("maxmemory", "1mb")
        try:
            yield
        finally:
            client.config_set("maxmemory", "0")


def test_a_full_redis_loses_nothing_and_goes_on_by_itself(tmp_path: Path) -> None:
    agents = plain_agent(tmp_path / "agents")
    with System(tmp_path / "home", LOOM_MODEL="scripted-demo+1500ms", LOOM_AGENTS_DIR=agents) as loom:
        running = [loom.submit(f"r{n}", "hello") for n in range(4)]
        until(lambda: all(loom.turn(one)["status"] == "in_progress" for one in running), 30, "the turns run")
        with full(loom):
            # The row is what makes a turn accepted, not Redis: 202, and it waits.
            waiting = [loom.submit(f"w{n % 4}", "hello") for n in range(12)]
            told = until(lambda: _unready(loom), 30, "readyz tells of it")
            assert "Redis is full" in told
            assert loom.get("/v1/turns?limit=5").status == 200
            # Those that ran end: their answers are in the database.
            for one in running:
                assert loom.ended(one)["status"] == "completed"
        for one in waiting:
            assert loom.ended(one)["status"] == "completed"
        until(loom.is_ready, 45, "Loom is ready again")
        for n in range(4):
            said = [(message["turn_id"], message["role"]) for message in loom.messages(f"w{n}")]
            assert said == [(one, role) for one in waiting[n::4] for role in ("user", "assistant")]
        attempts = [loom.turn(one)["attempt"] for one in [*running, *waiting]]
        assert attempts == [1] * len(attempts), "nobody is charged for it"
        ids = [event.id for event in loom.events(waiting[0])]
        assert ids == list(range(1, len(ids) + 1))


def _unready(loom: System) -> str:
    answer = loom.get("/readyz")
    return answer.text if answer.status == 503 and "full" in answer.text else ""
