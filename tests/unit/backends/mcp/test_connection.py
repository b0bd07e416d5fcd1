import asyncio
import threading
from concurrent.futures import CancelledError

import pytest

from loom_worker.backends.mcp.connection import MAX_PAUSE_S, Loop, RestartDelays
from loom_worker.core.errors import ToolFailed


async def _where() -> str:
    return threading.current_thread().name


def test_work_runs_in_one_thread_that_is_started_when_needed() -> None:
    before = set(threading.enumerate())
    loop = Loop("loom-test")
    assert set(threading.enumerate()) == before
    assert {loop.submit(_where()).result(5) for _ in range(3)} == {"loom-test"}
    loop.close()
    assert set(threading.enumerate()) == before


def test_close_ends_what_still_runs_and_takes_no_more() -> None:
    loop = Loop("loom-test")
    endless = loop.submit(asyncio.Event().wait())
    loop.close()
    with pytest.raises(CancelledError):
        endless.result(5)
    with pytest.raises(ToolFailed, match="stopping") as failed:
        loop.submit(_where())
    assert failed.value.code == "UNAVAILABLE"
    loop.close()


def test_after_one_death_it_may_be_started_at_once() -> None:
    patience = RestartDelays()
    patience.died("it exited", 100.0)
    patience.check(100.0)


def test_after_more_deaths_the_pauses_double_up_to_a_minute() -> None:
    patience, pauses = RestartDelays(), []
    for _ in range(10):
        patience.died("it exited with status 1", 100.0)
        pauses.append(patience.not_before_s - 100.0)
    assert pauses == [0, 1, 2, 4, 8, 16, 32, MAX_PAUSE_S, MAX_PAUSE_S, MAX_PAUSE_S]
    with pytest.raises(ToolFailed, match="it exited with status 1; it is tried again in 60 s") as failed:
        patience.check(100.0)
    assert failed.value.code == "UNAVAILABLE"
    patience.check(100.0 + MAX_PAUSE_S)
