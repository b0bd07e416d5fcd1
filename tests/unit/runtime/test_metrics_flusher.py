"""The thread that stores what a process has counted."""

import threading
from decimal import Decimal

import pytest
from sqlalchemy import select

from loom_worker.core import metrics
from loom_worker.core.metric_recorder import Recorder
from loom_worker.core.values.chat import Usage
from loom_worker.runtime.metrics_flusher import MetricsFlusher
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.folding import Folding
from loom_worker.store.ledger import Charge, Ledger
from loom_worker.store.metric_values import FOLDED, MetricValues
from loom_worker.store.tables import workspace_depths
from tests.support.until import until
from tests.unit.store.made import WORKSPACE, submitted


def count(recorder: Recorder, times: int = 1) -> None:
    recorder.add(metrics.LEASES_LOST, (), 0, times)


def stored(database: Database) -> float:
    return MetricValues(database).all().get((metrics.LEASES_LOST, ()), [0.0])[0]


def renamed(database: Database, before: str, after: str) -> None:
    with database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql(f"ALTER TABLE {before} RENAME TO {after}")


def test_what_is_counted_is_stored_by_itself_and_the_rest_at_the_end(database: Database) -> None:
    recorder = Recorder()
    flusher = MetricsFlusher(MetricValues(database), Folding(database), recorder)
    count(recorder, 3)
    flusher.start()
    flusher.start()
    until(lambda: stored(database) == 3, 20, "the count is stored")
    count(recorder, 4)
    flusher.stop()
    assert stored(database) == 7
    assert "loom-metrics" not in {thread.name for thread in threading.enumerate()}
    flusher.stop()
    assert stored(database) == 7


def test_turns_are_folded_by_itself_and_the_rest_at_the_end(database: Database) -> None:
    flusher = MetricsFlusher(MetricValues(database), Folding(database), Recorder())
    submitted(database)
    flusher.start()
    until(lambda: depths(database) == {WORKSPACE: 1}, 20, "the depth is folded")
    submitted(database)
    flusher.stop()
    assert depths(database) == {WORKSPACE: 2}


def depths(database: Database) -> dict[str, int]:
    with database.read() as tx:
        return {row.workspace: row.turns for row in tx.execute(select(workspace_depths))}


def test_what_cannot_be_stored_is_kept_told_once_and_stored_later(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    flusher = MetricsFlusher(MetricValues(database), Folding(database), recorder)
    renamed(database, "metric_values", "gone")
    for _ in range(3):
        count(recorder)
        flusher.flush()
    assert len(caplog.records) == 1
    renamed(database, "gone", "metric_values")
    count(recorder)
    flusher.flush()
    assert stored(database) == 4


def test_a_process_in_which_nothing_happens_writes_nothing(database: Database) -> None:
    recorder = Recorder()
    flusher = MetricsFlusher(MetricValues(database), Folding(database), recorder)
    count(recorder)
    flusher.flush()
    assert recorder.take() == {}, "storing is no event of its own"


def test_the_ledger_of_an_older_loom_is_added_from_the_start(database: Database) -> None:
    used = Usage(input_tokens=10, llm_calls=1, cost_usd=Decimal("0.25"))
    for _ in range(7):
        Ledger(database).charge("lane", Charge("w", "s", "a", "m", used), now_ms=0)
    flusher = MetricsFlusher(MetricValues(database, folded_at_a_time=2), Folding(database), Recorder())
    flusher.start()
    until(lambda: folded(database) == 7, 20, "all entries are added")
    flusher.stop()
    assert MetricValues(database).all()[metrics.LLM_COST, ("m", "turn")] == [7 * 0.25]


def folded(database: Database) -> float:
    with database.read() as tx:
        return float(tx.exec_driver_sql("SELECT value FROM metric_values WHERE series = ?", (FOLDED,)).scalar() or 0)
