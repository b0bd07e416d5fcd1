"""What clients may know of patterns, from real files and a real database."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest

from loom_worker.core.values.chat import Usage
from loom_worker.core.values.json import Json
from loom_worker.core.values.patterns import PatternUse
from loom_worker.patterns.live import LiveLibrary
from loom_worker.service.pattern_catalog import PatternCatalog
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.patterns import PatternUses, enter_uses
from tests.support.pattern_files import write
from tests.unit.store.made import NOW_MS

TOP = "name: top_n\ncategory: Ranking\nintents: [top ten customers, best products]\n"
WORST = "name: worst_n\ncategory: ranking\nbackend_type: rest\nintents: [worst ten customers]\n"
SPENT = Usage(input_tokens=100, cost_usd=Decimal("0.25"))


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
        with database.write(lock=WHOLE) as tx:
            enter_uses(tx, workspace, [use], is_success=is_success, spent=SPENT, now_ms=NOW_MS)


def now(catalog: PatternCatalog, pattern_id: str = "sql/top_n") -> PatternUse:
    return PatternUse(pattern_id, catalog.account("w1", pattern_id).pattern.digest, "matched")


def test_what_came_of_patterns_changes_no_match(catalog: PatternCatalog, database: Database) -> None:
    before = catalog.match("ten customers", 3, None)
    use(database, "w1", now(catalog, before[0].pattern.id), failed=40)
    use(database, "w1", now(catalog, before[1].pattern.id), succeeded=40)
    assert catalog.match("ten customers", 3, None) == before


def test_an_agent_gets_only_what_it_can_work_with(catalog: PatternCatalog) -> None:
    everything = {each.pattern.id for each in catalog.match("ten customers", 3, None)}
    assert everything == {"sql/top_n", "shop/eu/worst_n"}
    assert [each.pattern.id for each in catalog.match("ten customers", 3, "analyst")] == ["sql/top_n"]


def test_problems_name_files_by_their_place_in_the_library(root: Path, database: Database) -> None:
    (root / "sql" / "broken.yaml").write_text("name: [")
    library = LiveLibrary(root)
    told = [{"process": "w1", "errors": [f"{root}/sql/broken.yaml:1: no"]}]
    catalog = PatternCatalog(library, PatternUses(database), Around(), Around(told), Around())
    (problem,) = catalog.state().problems
    assert problem.startswith("sql/broken.yaml:")
    assert catalog.loaded() == [{"process": "w1", "errors": ["sql/broken.yaml:1: no"]}]
