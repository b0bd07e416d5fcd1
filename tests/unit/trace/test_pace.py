import sys

import pytest

from loom_worker.trace import pace
from loom_worker.trace.pace import MOST_PAUSE_S, Moment, pause_s


@pytest.mark.parametrize(
    ("idle_s", "own_s", "pause"),
    [
        (1.0, 0.1, 0.0),  # half of two processors is idle
        (0.2, 0.8, 0.0),  # or would be without us
        (0.7, 0.1, 0.1 * (1 / 0.08 - 1)),  # of 40 % of two processors a tenth
        (0.0, 0.01, 0.01 * (1 / 0.03 - 1)),
        (0.0, 0.0, 0.0),
        (0.0, 0.2, MOST_PAUSE_S),
    ],
)
def test_it_pauses_only_where_others_want_the_processor(idle_s: float, own_s: float, pause: float) -> None:
    before, after = Moment(5.0, 100.0, 1.0), Moment(6.0, 100.0 + idle_s, 1.0 + own_s)
    assert pause_s(before, after, processors=2) == pytest.approx(pause)


def test_where_nothing_is_known_it_does_not_pause() -> None:
    moment = Moment(5.0, 100.0, 1.0)
    assert [pause_s(*pair, processors=1) for pair in ((None, moment), (moment, None), (moment, moment))] == [0.0] * 3


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc/stat")
def test_the_clocks_of_this_machine_are_read() -> None:
    first, second = pace.now(), pace.now()
    assert first is not None
    assert second is not None
    assert second.at_s >= first.at_s
    assert second.idle_s >= first.idle_s > 0
    assert second.own_s >= first.own_s > 0
