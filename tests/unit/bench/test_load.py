from pathlib import Path

import pytest

from bench.client import Client
from bench.load import until_idle
from bench.model import question
from tests.chaos.model_script import script_of


class Database:
    """A Loom of which only the answers to two queries are known."""

    home = Path("/nowhere")

    def __init__(self, unfinished: list[bool], failed: list[tuple[object, ...]]) -> None:
        self._unfinished = unfinished
        self._failed = failed

    def client(self) -> Client:
        raise NotImplementedError

    def rows(self, query: str, *_values: str) -> list[tuple[object, ...]]:
        if "GROUP BY" in query:
            return self._failed
        return [(1,)] if self._unfinished.pop(0) else []


def test_waiting_ends_when_nothing_is_unfinished() -> None:
    left = [True, True, False, True]
    until_idle(Database(left, []))
    assert left == [True]


def test_a_turn_that_did_not_complete_makes_the_measurement_fail() -> None:
    with pytest.raises(SystemExit, match="provider"):
        until_idle(Database([False], [("failed", "provider", 3)]))


def test_the_model_server_understands_the_questions() -> None:
    script = script_of(question(7, "wait=0.005"))
    assert (script.mark, script.wait_s) == ("T00007", 0.005)
    assert script_of(question(12_345, "tools=pause:1.0,pause:1.0")).rounds == (("pause:1.0", "pause:1.0"),)
