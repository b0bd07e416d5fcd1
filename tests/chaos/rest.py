"""A world comes to rest: everything is delivered and given back, or it is named."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from redis import RedisError

from loom_worker.lanes import keys
from tests.chaos.client import Clients
from tests.chaos.world import World
from tests.support.until import within

QUEUES = ("turn", "tool", "judge", "workflow", "webhook", "summary", "trace")
SOON_MS = 40_000
"""A delivery that is due later is asked for anew: the third attempt comes after five minutes."""
AHEAD_S = 600.0
CALM_LOOKS = 5
"""Looks in a row that find nothing are rest: one alone may miss a message on its way from a queue to its worker."""
UNACKED = "unacknowledged messages"
OPEN_CHILDREN = "SELECT id, status FROM turns WHERE parent_turn_id IS NOT NULL AND completed_ms IS NULL"
KNOWN_FILES = ("loom.db", "shop.db", "valkey", "crashes", "blobs", "web.url", "pattern_index")
"""What may stand in a home; of databases also their -wal and -shm."""


class Rest:
    """Waits for one world's rest."""

    def __init__(self, world: World, clients: Clients) -> None:
        self._world, self._clients = world, clients
        self.replayed = 0
        """Deliveries that were asked for anew, because their next attempt was due late."""

    def come(self, timeout_s: float, *, is_patient: bool) -> tuple[str, ...]:
        """Wait; what is still there after timeout_s.

        Args:
            is_patient: False: messages whose worker was killed, and which Celery gives back much later, do not count.
        """

        calm = 0
        found: tuple[str, ...] = ()

        def is_calm() -> bool:
            nonlocal calm, found
            found = tuple(what for what in self._left() if is_patient or UNACKED not in what)
            calm = 0 if found else calm + 1
            return calm == CALM_LOOKS

        within(is_calm, timeout_s)
        return found

    def files(self) -> Iterator[str]:
        """Files in the home that are not known."""
        for path in self._world.home.iterdir():
            if path.name.removesuffix("-wal").removesuffix("-shm") not in KNOWN_FILES:
                yield f"file {path.name} in the home"

    def _left(self) -> Iterator[str]:
        yield from self._deliveries()
        yield from self._memories()
        yield from self._traces()
        yield from self._runs()
        yield from self._agents()
        yield from self._broker()

    def _deliveries(self) -> Iterator[str]:
        now_ms = time.time() * 1000
        for delivery_id, next_ms in self._world.rows("SELECT id, next_ms FROM outbox WHERE status = 'pending'"):
            if next_ms is None or float(str(next_ms)) > now_ms + SOON_MS:
                answer: Any = self._clients.ask("POST", f"/v1/deliveries/{delivery_id}/replay")
                self.replayed += answer is not None and answer.status < 300
            yield f"delivery {delivery_id} is pending"

    def _memories(self) -> Iterator[str]:
        query = "SELECT lane, due_ms, held_by FROM memory WHERE due_ms IS NOT NULL OR held_by IS NOT NULL"
        for lane, due_ms, held_by in self._world.rows(query):
            yield f"memory of lane {lane} is " + (f"held by {held_by}" if held_by else f"due since {due_ms} ms")

    def _traces(self) -> Iterator[str]:
        ((waiting,),) = self._world.rows("SELECT count(*) FROM trace_outbox")
        if waiting:
            yield f"{waiting} traces wait to be exported"

    def _runs(self) -> Iterator[str]:
        query = "SELECT id, due_ms FROM workflow_runs WHERE completed_ms IS NULL OR due_ms IS NOT NULL"
        for run_id, due_ms in self._world.rows(query):
            yield f"run {run_id} is " + (f"due since {due_ms} ms" if due_ms else "under way")

    def _agents(self) -> Iterator[str]:
        for message_id, turn_id in self._world.rows("SELECT id, turn_id FROM agent_messages WHERE status = 'taken'"):
            yield f"message {message_id} is taken by {turn_id}"
        for turn_id, status in self._world.rows(OPEN_CHILDREN):
            yield f"turn {turn_id}, which another one asked for, is {status}"

    def _broker(self) -> Iterator[str]:
        try:
            with self._world.redis() as client:
                for lane in client.zrange(keys.LEASES, 0, -1):
                    yield f"lease of lane {lane}"
                for key in client.scan_iter(f"{keys.PREFIX}lane:*", count=1000):
                    yield f"lane {key}"
                for key in client.scan_iter(f"{keys.PREFIX}lease:*", count=1000):
                    yield f"lease {key}"
                for queue in QUEUES:
                    if waiting := client.llen(f"loom:q:{queue}"):
                        yield f"{waiting} messages in queue {queue}"
                if unacked := client.hlen("loom:q:unacked") - _ahead(client):
                    yield f"{unacked} {UNACKED}"
        except RedisError as error:
            yield f"the broker does not answer: {error}"


def _ahead(client: Any) -> int:
    """Messages that a worker whose clock was ahead took with it: Celery gives them back when that time has come."""
    return int(client.zcount("loom:q:unacked_index", time.time() + AHEAD_S, "+inf"))


def crashes(home: Path) -> list[tuple[str, float]]:
    """(point, moment) of each death at a crash point."""
    folder = home / "crashes"
    found = folder.iterdir() if folder.exists() else ()
    return sorted((path.name.rpartition(".")[0], path.stat().st_mtime) for path in found)
