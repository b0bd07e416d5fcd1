import json
from pathlib import Path

from click.testing import CliRunner

from loom_worker.cli.growth import BOUNDS, EVENTS, SAMPLE, growth
from loom_worker.cli.main import main
from loom_worker.core.env import KNOWN
from loom_worker.core.settings import from_env
from loom_worker.store.database import Database
from loom_worker.store.prepare import prepare
from loom_worker.store.schema import metadata
from tests.support.valkey import Valkey
from tests.unit.store.made import said


def test_every_table_has_something_that_bounds_it_or_says_that_nothing_does() -> None:
    assert set(BOUNDS) == set(metadata.tables)
    assert {bound for bound in BOUNDS.values() if bound.startswith("LOOM_")} <= set(KNOWN)


def test_what_grows_is_listed_with_its_size_and_the_setting_that_bounds_it(tmp_path: Path) -> None:
    settings = from_env({"LOOM_HOME": str(tmp_path), "LOOM_CONVERSATION_DAYS": "30"})
    prepare(settings)
    database = Database(settings.database_url)
    said(database, turns=3)
    database.close()
    blob = settings.blobs.folder / "ab" / "one"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"x" * 2_500_000)
    found = {each.name: each for each in growth(settings)}
    assert found["messages"].size == "6 rows"
    assert found["messages"].bound == "LOOM_CONVERSATION_DAYS = 30"
    assert found["steps"].bound == "LOOM_JOURNAL_DAYS = 7"
    assert found["blobs on disk"].size == "2.5 MB"
    assert found["database"].bound == "given back by itself"


def test_doctor_prints_it_and_says_where_nothing_bounds_the_growth(tmp_path: Path) -> None:
    settings = from_env({"LOOM_HOME": str(tmp_path)})
    prepare(settings)
    result = CliRunner().invoke(main, ["doctor"], env={"LOOM_HOME": str(tmp_path)})
    lines = {line.split()[0]: line for line in result.stdout.partition("What grows")[2].splitlines() if line.split()}
    assert lines["messages"].endswith("nothing: LOOM_CONVERSATION_DAYS = 0")
    report = json.loads(CliRunner().invoke(main, ["doctor", "--json"], env={"LOOM_HOME": str(tmp_path)}).stdout)
    assert {"database", "logs", "usage"} <= {each["name"] for each in report["growth"]}


def test_the_memory_of_redis_is_told_by_kind_also_where_only_a_part_is_measured(tmp_path: Path) -> None:
    with Valkey() as valkey:
        with valkey.client() as client:
            client.mset({f"loom:events:{number}": "x" * 1000 for number in range(2 * SAMPLE)})
        settings = from_env({"LOOM_HOME": str(tmp_path), "LOOM_REDIS_URL": valkey.url})
        found = {each.name: each for each in growth(settings)}
    assert found["redis loom:events"].size.startswith(f"about {2 * SAMPLE:,} keys, ")
    assert found["redis loom:events"].bound == EVENTS
    assert found["redis"].size.endswith(" MB")
