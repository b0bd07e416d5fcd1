"""One piece of work in several threads that begin together."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

WAIT_S = 300.0


def at_once(work: Callable[..., Any], rows: Iterable[Any]) -> list[Any]:
    """Call it with each row in a thread of its own, all at one moment; the results in the order of the rows.

    The first error of a thread is raised once all have ended.
    """
    given = list(rows)
    begin = threading.Barrier(len(given))

    def run(row: Any) -> Any:
        begin.wait(WAIT_S)
        return work(row)

    with ThreadPoolExecutor(len(given)) as pool:
        return list(pool.map(run, given, timeout=WAIT_S))
