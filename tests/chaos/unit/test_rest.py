from dataclasses import dataclass
from typing import Any

import fakeredis
import pytest

from tests.chaos.rest import Rest

NOBODY: Any = None
BUSY = [("lane1", 1, None)]


@dataclass
class World:
    """A world whose memories are due or not, look by look, and for ever as in the last one."""

    looks: list[list[Any]]

    def redis(self) -> fakeredis.FakeRedis:
        return fakeredis.FakeRedis(decode_responses=True)

    def rows(self, query: str) -> list[Any]:
        if "count(*)" in query:
            return [(0,)]
        if "memory" not in query:
            return []
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


@pytest.mark.parametrize("looks", [[[]], [BUSY, []], [[], BUSY, []], [[], [], BUSY, [], []]])
def test_a_world_rests_once_nothing_is_found_for_some_looks(looks: list[list[Any]]) -> None:
    world: Any = World(looks)
    assert Rest(world, clients=NOBODY).come(30, is_patient=True) == ()
    assert world.looks == [[]]


def test_what_is_still_there_in_the_end_is_named() -> None:
    world: Any = World([[], BUSY])
    [left] = Rest(world, clients=NOBODY).come(0.1, is_patient=True)
    assert left == "memory of lane lane1 is due since 1 ms"
