"""Loom itself, all of `loom up` with Flower, as a peer of the others."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.peers.peer import Http, checked, versions
from bench.processes import cpu_ms_by_kind

if TYPE_CHECKING:
    from bench.system import System


@dataclass(frozen=True)
class Loom:
    """`loom up` with a model that answers at once."""

    name: str
    versions: str
    _system: "System"

    def submit(self, http: Http, session: str, text: str) -> str:
        answer = http.post(f"{self._system.url}/v1/sessions/{session}/turns", json={"input": text})
        return str(checked(answer, 202)["id"])

    def wait(self, http: Http, turn_id: str) -> None:
        while True:
            turn = checked(http.get(f"{self._system.url}/v1/turns/{turn_id}?wait=60"), 200)
            if turn["completed_at"]:
                assert turn["status"] == "completed", turn
                return

    def cpu_ms(self) -> float:
        return sum(cpu_ms_by_kind(self._system.home).values())


@contextmanager
def running() -> Iterator[Loom]:
    """Every commit that is promised to a client reaches the disk first."""
    from bench.system import SCRIPTED, System

    with System(**SCRIPTED, LOOM_SQLITE_SYNC="full") as system:
        yield Loom("Loom", versions(sys.executable, "loom-worker", "celery"), system)
