"""What clients may know of patterns, from real files and a real database."""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import redis

from loom_worker.core.errors import NotFound, Unavailable
from loom_worker.core.settings import Settings
from loom_worker.core.values.json import Json
from loom_worker.core.values.patterns import Effect, PatternUse
from loom_worker.patterns.events import LibraryEvents
from loom_worker.patterns.live import LiveLibrary
from loom_worker.runtime import build
from loom_worker.service.pattern_catalog import PatternCatalog
from loom_worker.store.database import Database
from loom_worker.store.patterns import PatternUses, enter_uses
from tests.support.pattern_files import write
from tests.support.until import until
from tests.unit.store.made import NOW_MS
from web.app import create_app

TOP = "name: top_n\ncategory: Ranking\nintents: [top ten customers, best products]\n"
WORST = "name: worst_n\ncategory: ranking\nbackend_type: rest\nintents: [worst ten customers]\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "patterns"
    return write(folder, sql__top=TOP, shop__eu__worst=WORST, shop__us__notes="name: notes\ncategory: text\n")


@dataclass
class Around:
    """What a catalog asks besides its library: agents that work on SQL, and what two workers have loaded."""

    loaded: Sequence[Json] = ()

    def kinds(self, _agent: str) -> frozenset[str]:
        return frozenset({"sql"})

    def alive(self) -> frozenset[str]:
        return frozenset({"w1", "w2"})

    def processes(self, _alive: Collection[str]) -> Sequence[Json]:
        return self.loaded


def a_catalog(root: Path, database: Database) -> PatternCatalog:
    return PatternCatalog(LiveLibrary(root), PatternUses(database), Around(), Around(), Around())


@pytest.fixture
def catalog(root: Path, database: Database) -> PatternCatalog:
    return a_catalog(root, database)


def use(database: Database, workspace: str, use: PatternUse, *, succeeded: int = 0, failed: int = 0) -> None:
    """So many turns that used it, ended so."""
    for is_success in (True,) * succeeded + (False,) * failed:
        with database.write() as tx:
            enter_uses(tx, workspace, [use], is_success=is_success, cost_usd=0.25, tokens=100, now_ms=NOW_MS)


def now(catalog: PatternCatalog, pattern_id: str = "sql/top_n") -> PatternUse:
    return PatternUse(pattern_id, catalog.account("w1", pattern_id).pattern.digest, "matched")


@pytest.mark.cases(
    ("category", "found"),
    [
        (None, ["shop/eu/worst_n", "shop/us/notes", "sql/top_n"]),
        ("ranking", ["shop/eu/worst_n", "sql/top_n"]),
        ("SQL", ["sql/top_n"]),
        ("shop", ["shop/eu/worst_n", "shop/us/notes"]),
        ("shop/us", ["shop/us/notes"]),
        ("sho", []),
        ("eu", []),
    ],
)
def test_patterns_are_listed_by_category_library_or_folder(
    catalog: PatternCatalog, category: str | None, found: list[str]
) -> None:
    assert [each.id for each in catalog.patterns(category)] == found


def test_a_broken_file_is_told_and_costs_only_itself(root: Path, database: Database) -> None:
    write(root, sql__broken="name: [\n")
    catalog = a_catalog(root, database)
    (problem,) = catalog.state().problems
    assert problem.startswith("sql/broken.yaml:")
    assert len(catalog.patterns()) == 3


def test_an_unknown_pattern_is_not_found(catalog: PatternCatalog) -> None:
    for pattern_id in ("", "top_n", "sql/", "sql/top_n/", "../sql/top_n", "sql/top_n\0", "\ud800", "a" * 300):
        with pytest.raises(NotFound):
            catalog.account("w1", pattern_id)


def test_what_came_of_other_workspaces_turns_is_not_seen(catalog: PatternCatalog, database: Database) -> None:
    use(database, "w1", now(catalog), succeeded=12)
    use(database, "w2", now(catalog), failed=30)
    mine, others = catalog.account("w1", "sql/top_n"), catalog.account("w2", "sql/top_n")
    assert mine.effect == mine.all_time == Effect(12, 12, 0, 3.0, 1200, NOW_MS)
    assert (others.effect.uses, others.effect.succeeded) == (30, 0)
    assert catalog.account("w3", "sql/top_n").effect == Effect()


def test_a_rewritten_pattern_begins_anew_and_its_past_is_kept(
    catalog: PatternCatalog, database: Database, root: Path
) -> None:
    use(database, "w1", now(catalog), failed=20)
    write(root, sql__top=TOP + "description: Better words.\n")
    os.utime(root / "sql/top.yaml", (1, 1))
    catalog.library.reload()
    use(database, "w1", now(catalog), succeeded=1)
    account = catalog.account("w1", "sql/top_n")
    assert (account.effect.uses, account.all_time.uses) == (1, 21)


def test_what_came_of_patterns_changes_no_match(catalog: PatternCatalog, database: Database) -> None:
    before = catalog.match("ten customers", 3, None)
    use(database, "w1", now(catalog, before[0].pattern.id), failed=40)
    use(database, "w1", now(catalog, before[1].pattern.id), succeeded=40)
    assert catalog.match("ten customers", 3, None) == before


def test_an_agent_gets_only_what_it_can_work_with(catalog: PatternCatalog) -> None:
    everything = {each.pattern.id for each in catalog.match("ten customers", 3, None)}
    assert everything == {"sql/top_n", "shop/eu/worst_n"}
    assert [each.pattern.id for each in catalog.match("ten customers", 3, "analyst")] == ["sql/top_n"]


def test_without_its_database_the_library_is_still_known(catalog: PatternCatalog, database: Database) -> None:
    with database.write() as tx:
        tx.exec_driver_sql("ALTER TABLE pattern_uses RENAME TO away")
    assert len(catalog.patterns()) == 3
    assert len(catalog.match("best products", 1, None)) == 1
    with pytest.raises(Unavailable):
        catalog.account("w1", "sql/top_n")


def test_without_redis_only_the_workers_are_unknown(settings: Settings, root: Path) -> None:
    service = build.service(replace(settings, patterns=replace(settings.patterns, folder=root, is_shipped_added=False)))
    try:
        assert [each.pattern.id for each in service.patterns.match("best products", 1, "default")] == ["sql/top_n"]
        assert len(service.patterns.patterns()) == 3
        with pytest.raises(Unavailable):
            service.patterns.loaded()
        listed = create_app(service).test_client().get("/v1/patterns").get_json()
        assert (len(listed["data"]), listed["processes"]) == (3, [])
    finally:
        service.close()


def test_each_process_tells_what_it_has_loaded(root: Path, database: Database, valkey: redis.Redis) -> None:
    events = LibraryEvents(valkey, process="w1")
    library = LiveLibrary(root, listener=events)
    catalog = PatternCatalog(library, PatternUses(database), Around(), events, Around())
    assert len(catalog.patterns()) == 3
    (told,) = until(catalog.loaded, 10, "the process tells what it has")
    assert (told["process"], told["patterns"], told["errors"]) == ("w1", 3, [])


def test_problems_name_files_by_their_place_in_the_library(root: Path, database: Database) -> None:
    (root / "sql" / "broken.yaml").write_text("name: [")
    library = LiveLibrary(root)
    told = [{"process": "w1", "errors": [f"{root}/sql/broken.yaml:1: no"]}]
    catalog = PatternCatalog(library, PatternUses(database), Around(), Around(told), Around())
    (problem,) = catalog.state().problems
    assert problem.startswith("sql/broken.yaml:")
    assert catalog.loaded() == [{"process": "w1", "errors": ["sql/broken.yaml:1: no"]}]
