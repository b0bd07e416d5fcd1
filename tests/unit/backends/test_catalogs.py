import threading

from loom_worker.backends.catalogs import Catalogs
from loom_worker.backends.scope import Catalog

EMPTY = Catalog("sqlite", (), {})


def test_a_catalog_is_read_once_until_it_is_old_or_dropped() -> None:
    reads: list[float] = []
    now = [0.0]

    def read() -> Catalog:
        reads.append(now[0])
        return EMPTY

    catalogs = Catalogs(read, ttl_s=60, clock=lambda: now[0])
    for now[0] in (0.0, 59.0, 60.0, 61.0, 100.0):
        assert catalogs.get() is EMPTY
    assert reads == [0.0, 61.0]
    catalogs.drop()
    catalogs.get()
    assert reads == [0.0, 61.0, 100.0]


def test_threads_that_ask_at_once_wait_for_one_reading() -> None:
    reads: list[int] = []
    together = threading.Barrier(8)

    def read() -> Catalog:
        reads.append(1)
        return EMPTY

    catalogs = Catalogs(read)

    def ask() -> None:
        together.wait(10)
        catalogs.get()

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert reads == [1]
