"""How many plain turns eight threads write: `python -m bench.writers URL SECONDS COMMIT_MS NAME`.

On SQLite a commit takes COMMIT_MS longer while it holds the write lock, as on a slow disk; a server has a setting.
"""

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

from sqlalchemy import Connection

from loom_worker.runtime.metrics_flusher import EVERY_S
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import Lock
from loom_worker.store.engines.sqlite import SqliteEngine
from loom_worker.store.folding import Folding
from tests.unit.store.made import plain_turn

THREADS = 8


class _SlowDisk(Database):
    """Waits in each transaction that is to be durable."""

    commit_s = 0.0

    @contextmanager
    def write(self, *, durable: bool = False, lock: Lock, is_timed: bool = True) -> Iterator[Connection]:
        with super().write(durable=durable, lock=lock, is_timed=is_timed) as tx:
            yield tx
            if durable and isinstance(self.engine, SqliteEngine):
                time.sleep(self.commit_s)


def main(url: str, seconds: float, commit_ms: float, name: str) -> int:
    """How many turns came to their end; begins when a line comes on standard input."""
    with closing(_SlowDisk(url)) as database, ThreadPoolExecutor(THREADS) as threads:
        database.commit_s = commit_ms / 1000
        plain_turn(database, f"{name}-warm")
        print("ready", flush=True)
        sys.stdin.readline()
        until_s = time.monotonic() + seconds
        counts = [0] * THREADS

        def fold() -> None:
            folding = Folding(database)
            while time.monotonic() < until_s:
                time.sleep(0 if folding.fold() else EVERY_S)

        def write(place: int) -> None:
            while time.monotonic() < until_s:
                plain_turn(database, f"{name}-{threading.get_ident()}")
                counts[place] += 1

        folder = threading.Thread(target=fold)
        folder.start()
        list(threads.map(write, range(THREADS)))
        folder.join()
        return sum(counts)


if __name__ == "__main__":
    print(main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4]))
