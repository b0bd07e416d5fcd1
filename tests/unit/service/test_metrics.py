"""Figures over all workspaces."""

from typing import Any

from loom_worker.core.errors import Unavailable
from loom_worker.core.values.json import Json
from loom_worker.service.metrics import Figures, Health, collected
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from tests.unit.store import made


def figures_of(database: Database) -> Figures:
    nothing: Any = None
    return Figures(Health(database, nothing), nothing, nothing, nothing, nothing)


def test_figures_are_of_all_workspaces(database: Database) -> None:
    made.submitted(database, workspace="one")
    made.submitted(database, workspace="two")
    figures = figures_of(database).of_turns()
    assert (figures["queued"], figures["lanes"], figures["lane_depth"], figures["memory_due"]) == (2, 2, 1, 0)


def test_figures_that_cannot_be_had_keep_no_others_from_being_told(database: Database) -> None:
    def away() -> Json:
        raise Unavailable("Redis did not answer")

    sources = {"turns": figures_of(database).of_turns, "workers": away, "breakers": lambda: {"breakers": {}}}
    figures = collected(sources)
    assert figures["known"] == {"turns": True, "workers": False, "breakers": True}
    assert (figures["queued"], figures["breakers"], "workers" in figures) == (0, {}, False)
    with database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("ALTER TABLE turns RENAME TO gone")
    assert collected(sources) == {"known": {"turns": False, "workers": False, "breakers": True}, "breakers": {}}
