"""What the supervisor makes of a row of looks; each ``round`` is one, three seconds after the last."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from loom_worker.core.errors import Unavailable
from loom_worker.core.settings import LaneSettings
from loom_worker.lanes.lanes import Lanes
from loom_worker.lanes.lease_renewer import LeaseRenewer
from loom_worker.lanes.readiness import Readiness, WorkerState
from loom_worker.supervisor.decide import Row, Spec
from loom_worker.supervisor.health_check import (
    AWAY_LOOKS,
    LOOK_EVERY_S,
    REST_S,
    STILL_LOOKS,
    STUCK_LOOKS,
    Rounds,
    looking,
)
from tests.support.busy_threads import BusyThreads
from tests.support.valkey import Valkey

HOST = "here"
ONE = Row(Spec("worker-1", ("w",)), pid=11)
TWO = Row(Spec("worker-2", ("w",)), pid=12)
ROWS = (ONE, TWO, Row(Spec("web", ("w",)), pid=13), Row(Spec("beat", ("b",))))


def worker(pid: int, *, idle_s: float = 60.0, host: str = HOST, parent: int = 1) -> WorkerState:
    return WorkerState(f"{host}-{pid}-ab", host, frozenset({pid, parent}), threads=4, busy=0, idle_s=idle_s)


BOTH = (worker(11), worker(12))
STUCK = Readiness(BOTH, 16.0)
WELL = Readiness(BOTH, 0.0)


class Ward:
    """Rounds over rows, with what they see said by a test; None: Redis is away."""

    def __init__(self, rows: Sequence[Row] = ROWS) -> None:
        self.rows = tuple(rows)
        self.now_s = 1000.0
        self.sees: Readiness | None = WELL
        self.rounds = Rounds(self._look, host=HOST)

    def _look(self) -> Readiness:
        if self.sees is None:
            raise Unavailable("Redis did not answer")
        return self.sees

    def round(self, sees: Readiness | None, times: int = 1, *, after_s: float = LOOK_EVERY_S) -> list[tuple[str, str]]:
        """What is found in so many looks in a row."""
        self.sees, found = sees, []
        for _ in range(times):
            self.now_s += after_s
            found += [(one.remedy, one.name) for one in self.rounds.make(self.rows, self.now_s)]
        return found


@pytest.fixture
def ward() -> Ward:
    return Ward()


def test_a_worker_that_takes_no_turns_in_a_row_of_looks_is_asked_to_end(ward: Ward) -> None:
    assert ward.round(STUCK, STUCK_LOOKS - 1) == []
    assert ward.round(STUCK) == [("ask", "worker-1"), ("ask", "worker-2")]


def test_the_reason_names_the_age_of_the_doorbell(ward: Ward) -> None:
    ward.round(STUCK, STUCK_LOOKS - 1)
    found = ward.rounds.make(ward.rows, ward.now_s + LOOK_EVERY_S)
    assert found[0].why == "is alive but takes no turns (wake-ups unanswered for 16 s)"


def test_a_look_in_between_at_which_turns_are_taken_begins_the_count_anew(ward: Ward) -> None:
    for _ in range(5):
        assert ward.round(STUCK, STUCK_LOOKS - 1) == []
        assert ward.round(Readiness((worker(11), worker(12, idle_s=0.1)), 16.0)) == []


def test_between_two_looks_redis_is_not_asked(ward: Ward) -> None:
    assert ward.round(STUCK, 50, after_s=LOOK_EVERY_S / 100) == []
    assert ward.rounds.due_s > ward.now_s


def test_a_worker_that_is_ended_already_is_found_no_second_time(ward: Ward) -> None:
    ward.rows = (replace(ONE, remedy="ask"), TWO)
    assert ward.round(STUCK, 20) == [("ask", "worker-2")]


def test_one_that_was_replaced_in_vain_is_left_in_peace_for_a_while(ward: Ward) -> None:
    ward.round(STUCK, STUCK_LOOKS)
    ward.rows = (replace(ONE, pid=21), replace(TWO, pid=22))
    again = Readiness((worker(21), worker(22)), 90.0)
    assert ward.round(again, int(REST_S / LOOK_EVERY_S) - 1) == []
    assert ward.round(again, 2) == [("ask", "worker-1"), ("ask", "worker-2")]


def test_workers_of_other_machines_and_other_supervisors_are_none_of_ours(ward: Ward) -> None:
    others = Readiness((worker(11, host="there"), worker(99)), 16.0)
    assert ward.round(others, 20) == []


def test_a_child_that_only_watches_over_its_worker_is_known_by_it() -> None:
    ward = Ward([ONE])
    assert ward.round(Readiness((worker(77, parent=11),), 16.0), STUCK_LOOKS) == [("ask", "worker-1")]


def test_after_redis_was_away_nobody_is_blamed_before_he_can_have_reconnected(ward: Ward) -> None:
    ward.round(WELL)
    assert ward.round(None, 3) == []
    assert ward.round(STUCK, AWAY_LOOKS - 1) == []
    assert ward.round(STUCK) == [("ask", "worker-1"), ("ask", "worker-2")]


def test_while_redis_is_away_nobody_is_blamed(ward: Ward) -> None:
    ward.round(STUCK, STUCK_LOOKS - 1)
    assert ward.round(None, 100) == []


def test_a_redis_that_is_not_there_yet_delays_nothing(ward: Ward) -> None:
    ward.round(None, 5)
    assert ward.round(STUCK, STUCK_LOOKS) == [("ask", "worker-1"), ("ask", "worker-2")]


ONLY_TWO = Readiness((worker(12),), 0.0)


def test_a_heart_that_stands_still_beside_one_that_beats_means_a_hung_worker(ward: Ward) -> None:
    ward.round(WELL)
    assert ward.round(ONLY_TWO, STILL_LOOKS - 1) == []
    assert ward.round(ONLY_TWO) == [("kill", "worker-1")]


def test_a_heart_that_beats_again_was_not_still(ward: Ward) -> None:
    ward.round(WELL)
    for _ in range(3):
        assert ward.round(ONLY_TWO, STILL_LOOKS - 1) == []
        assert ward.round(WELL) == []


def test_a_worker_that_has_not_begun_to_beat_is_not_hung(ward: Ward) -> None:
    assert ward.round(ONLY_TWO, 10 * STILL_LOOKS) == []
    ward.round(WELL)
    ward.rows = (replace(ONE, pid=21), TWO)  # started again, and warming up
    assert ward.round(ONLY_TWO, 10 * STILL_LOOKS) == []


def test_where_no_heart_beats_at_all_it_is_not_the_workers(ward: Ward) -> None:
    ward.round(WELL)
    assert ward.round(Readiness((), 0.0), 10 * STILL_LOOKS) == []


def test_a_machine_that_slept_wakes_up_without_a_finding(ward: Ward) -> None:
    ward.round(WELL)
    for _ in range(3):
        assert ward.round(ONLY_TWO, STILL_LOOKS // 2, after_s=8 * 3600.0) == []
        ward.round(WELL)


def test_while_redis_is_away_no_heart_counts_as_still(ward: Ward) -> None:
    ward.round(WELL)
    ward.round(ONLY_TWO, STILL_LOOKS - 1)
    ward.round(None)
    assert ward.round(ONLY_TWO, STILL_LOOKS - 1) == []


def test_it_sees_what_a_keeper_tells_and_a_redis_that_is_down_as_unavailable(
    valkey_server: Valkey, valkey: redis.Redis, tmp_path: Path
) -> None:
    LeaseRenewer(valkey, Lanes(valkey, LaneSettings()), "w1", LaneSettings(), threads=BusyThreads(4, lambda: 1)).renew()
    (found,) = looking(valkey_server.url)().workers
    assert (found.name, found.threads, found.busy) == ("w1", 4, 1)
    with pytest.raises(Unavailable):
        looking(f"unix://{tmp_path}/none.sock")()
