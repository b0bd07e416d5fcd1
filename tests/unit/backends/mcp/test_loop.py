import asyncio
import threading
from concurrent.futures import CancelledError

import pytest

from loom_worker.backends.mcp.connection import Loop
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
