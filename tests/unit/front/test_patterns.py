"""What clients may know of patterns, from real files and a real database."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from loom_worker import wiring
from loom_worker.errors import NotFound, Unavailable
from loom_worker.front.patterns import PatternDesk
from loom_worker.knowledge import Knowledge
from loom_worker.patterns.live import LiveLibrary
from loom_worker.patterns.news import News
from loom_worker.settings import Settings
from loom_worker.skills.shelf import Skills
from loom_worker.store.database import Database
from loom_worker.store.ledger import Ledger
from loom_worker.store.patterns import PatternUses, enter_uses
from loom_worker.store.sessions import Sessions
from loom_worker.values.patterns import Effect, PatternMatch, PatternUse
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


def a_desk(root: Path, database: Database, *, learns: bool = True) -> PatternDesk:
    library = LiveLibrary(root, debounce_ms=0, on_update=lambda event: None, watches=False)
    uses = PatternUses(database)
    knowledge = Knowledge(library, Skills(root), uses, Ledger(database), Sessions(database), learns=learns)

    def match(workspace: str, question: str, k: int, agent: str | None) -> Sequence[PatternMatch]:
        return knowledge.match(workspace, question, k=k, kinds=None if agent is None else frozenset({"sql"}))

    return PatternDesk(library, uses, match, learns, processes=list)


@pytest.fixture
def desk(root: Path, database: Database) -> PatternDesk:
    return a_desk(root, database)


def use(database: Database, workspace: str, use: PatternUse, *, succeeded: int = 0, failed: int = 0) -> None:
    """So many turns that used it, ended so."""
    for is_success in (True,) * succeeded + (False,) * failed:
        with database.write() as tx:
            enter_uses(tx, workspace, [use], is_success=is_success, cost_usd=0.25, tokens=100, now_ms=NOW_MS)


def now(desk: PatternDesk, pattern_id: str = "sql/top_n") -> PatternUse:
    return PatternUse(pattern_id, desk.account("w1", pattern_id).pattern.digest, "matched")


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
    desk: PatternDesk, category: str | None, found: list[str]
) -> None:
    assert [each.id for each in desk.patterns(category)] == found


def test_a_broken_file_is_told_and_costs_only_itself(root: Path, database: Database) -> None:
    write(root, sql__broken="name: [\n")
    desk = a_desk(root, database)
    (problem,) = desk.state().problems
    assert problem.startswith("sql/broken.yaml:")
    assert len(desk.patterns()) == 3


def test_an_unknown_pattern_is_not_found(desk: PatternDesk) -> None:
    for pattern_id in ("", "top_n", "sql/", "sql/top_n/", "../sql/top_n", "sql/top_n\0", "\ud800", "a" * 300):
        with pytest.raises(NotFound):
            desk.account("w1", pattern_id)


def test_what_came_of_other_workspaces_turns_is_not_seen(desk: PatternDesk, database: Database) -> None:
    use(database, "w1", now(desk), succeeded=12)
    use(database, "w2", now(desk), failed=30)
    mine, others = desk.account("w1", "sql/top_n"), desk.account("w2", "sql/top_n")
    assert mine.effect == mine.all_time == Effect(12, 12, 0, 3.0, 1200, NOW_MS)
    assert (others.effect.uses, others.effect.succeeded) == (30, 0)
    assert desk.account("w3", "sql/top_n").effect == Effect()
    assert (mine.boost, others.boost) == (1.0, 1.0), "each is typical of its own workspace"


def test_a_rewritten_pattern_begins_anew_and_its_past_is_kept(
    desk: PatternDesk, database: Database, root: Path
) -> None:
    use(database, "w1", now(desk), failed=20)
    use(database, "w1", now(desk, "shop/us/notes"), succeeded=20)
    assert desk.account("w1", "sql/top_n").boost < 1
    write(root, sql__top=TOP + "description: Better words.\n")
    os.utime(root / "sql/top.yaml", (1, 1))
    desk.library.reload()
    use(database, "w1", now(desk), succeeded=1)
    account = desk.account("w1", "sql/top_n")
    assert (account.effect.uses, account.all_time.uses, account.boost) == (1, 21, 1.0)
    assert "fewer than 10" in account.why


def test_the_place_that_is_told_is_the_one_that_matching_gives(desk: PatternDesk, database: Database) -> None:
    use(database, "w1", now(desk), failed=40)
    use(database, "w1", now(desk, "shop/eu/worst_n"), succeeded=40)
    told = {each.id: desk.account("w1", each.id).boost for each in desk.patterns("ranking")}
    assert told == {"shop/eu/worst_n": 1.1, "sql/top_n": 0.9}
    assert {each.pattern.id: each.boost for each in desk.match("w1", "ten customers", 3, None)} == told
    assert {each.boost for each in desk.match("w2", "ten customers", 3, None)} == {1.0}


def test_where_outcomes_do_not_count_that_is_said(root: Path, database: Database) -> None:
    desk = a_desk(root, database, learns=False)
    use(database, "w1", now(desk), failed=20)
    use(database, "w1", now(desk, "shop/us/notes"), succeeded=20)
    account = desk.account("w1", "sql/top_n")
    assert (account.boost, account.effect.failed) == (1.0, 20)
    assert account.why.endswith("×1.00, as LOOM_PATTERNS_LEARN is off")
    assert {each.boost for each in desk.match("w1", "ten customers", 3, None)} == {1.0}


def test_an_agent_gets_only_what_it_can_work_with(desk: PatternDesk) -> None:
    everything = {each.pattern.id for each in desk.match("w1", "ten customers", 3, None)}
    assert everything == {"sql/top_n", "shop/eu/worst_n"}
    assert [each.pattern.id for each in desk.match("w1", "ten customers", 3, "analyst")] == ["sql/top_n"]


def test_without_its_database_the_library_is_still_known(desk: PatternDesk, database: Database) -> None:
    with database.write() as tx:
        tx.exec_driver_sql("ALTER TABLE pattern_uses RENAME TO away")
    assert len(desk.patterns()) == 3
    assert [each.boost for each in desk.match("w1", "best products", 1, None)] == [1.0]
    with pytest.raises(Unavailable):
        desk.account("w1", "sql/top_n")


def test_without_redis_only_the_workers_are_unknown(settings: Settings, root: Path) -> None:
    front = wiring.front(replace(settings, patterns=replace(settings.patterns, folder=root, is_shipped_added=False)))
    try:
        assert [each.pattern.id for each in front.patterns.match("w1", "best products", 1, "default")] == ["sql/top_n"]
        assert len(front.patterns.patterns()) == 3
        with pytest.raises(Unavailable):
            front.patterns.processes()
        listed = create_app(front).test_client().get("/v1/patterns").get_json()
        assert (len(listed["data"]), listed["processes"]) == (3, [])
    finally:
        front.close()


def test_each_process_tells_what_it_has_loaded(root: Path, database: Database, valkey: redis.Redis) -> None:
    news = News(valkey, process="w1")
    library = LiveLibrary(root, debounce_ms=0, on_update=news.tell, watches=False)
    desk = PatternDesk(library, PatternUses(database), lambda *_: (), True, lambda: news.processes(["w1", "w2"]))
    assert len(desk.patterns()) == 3
    (told,) = until(desk.processes, 10, "the process tells what it has")
    assert (told["process"], told["patterns"], told["errors"]) == ("w1", 3, [])


def test_problems_name_files_by_their_place_in_the_library(root: Path, database: Database) -> None:
    (root / "sql" / "broken.yaml").write_text("name: [")
    library = LiveLibrary(root, debounce_ms=0, on_update=lambda event: None, watches=False)
    told = [{"process": "w1", "errors": [f"{root}/sql/broken.yaml:1: no"]}]
    desk = PatternDesk(library, PatternUses(database), lambda *_: (), True, lambda: told)
    (problem,) = desk.state().problems
    assert problem.startswith("sql/broken.yaml:")
    assert desk.loaded() == [{"process": "w1", "errors": ["sql/broken.yaml:1: no"]}]
