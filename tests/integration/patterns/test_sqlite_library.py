"""The patterns for SQLite answer on the sample shop, by the very way an agent's SQL takes: the guarded execute_sql."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from loom_worker.backends.sql import SqlBackend
from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.agents import Scope
from loom_worker.demo import shop
from loom_worker.patterns.render import fill
from tests.support.callers import CALLER
from tests.support.shipped_patterns import shipped

pytestmark = [pytest.mark.heavy, pytest.mark.takes(8)]

PATTERNS = {pattern.id: pattern for pattern in shipped().patterns if pattern.backend_type == "sqlite"}
TEMPLATES = [(pattern_id, name) for pattern_id, pattern in PATTERNS.items() for name in pattern.templates]

Run = Callable[[str], list[list[Any]]]


@pytest.fixture(scope="module")
def shop_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shop") / "shop.db"
    shop.build(path, today=date(2026, 3, 1))
    return path


@pytest.fixture(scope="module")
def run(shop_path: Path) -> Iterator[Run]:
    with closing(SqlBackend(f"sqlite:///{shop_path}")) as backend:
        yield running(backend)


def running(backend: SqlBackend) -> Run:
    """What an agent's execute_sql gives, and nothing of it cut."""
    tool = next(tool for tool in backend.tools() if tool.spec.name == "execute_sql")

    def rows(sql: str) -> list[list[Any]]:
        result = json.loads(str(tool.run({"sql": sql}, CALLER)))
        assert not result["truncated"]
        found: list[list[Any]] = result["rows"]
        return found

    return rows


def filled(pattern_id: str, template: str, **values: str) -> str:
    """A template with its defaults, but for the values that are given."""
    pattern = PATTERNS[pattern_id]
    defaults = {parameter.name: parameter.default or "" for parameter in pattern.parameters}
    return fill(pattern.templates[template].text, defaults | values)


def test_the_library_is_whole() -> None:
    names = "date_spine json_columns pivot_table query_plan running_json_report schema_tour text_search"
    assert sorted(PATTERNS) == [f"sqlite/{name}" for name in names.split()]


@pytest.mark.parametrize(("pattern_id", "template"), TEMPLATES)
def test_every_template_gives_rows_with_its_defaults(run: Run, pattern_id: str, template: str) -> None:
    assert run(filled(pattern_id, template))


@pytest.mark.parametrize(("pattern_id", "template"), TEMPLATES)
def test_every_template_gives_rows_with_the_examples_of_its_parameters(
    run: Run, pattern_id: str, template: str
) -> None:
    values = {parameter.name: parameter.example for parameter in PATTERNS[pattern_id].parameters}
    assert run(filled(pattern_id, template, **values))


@pytest.mark.parametrize("pattern_id", PATTERNS)
def test_the_example_of_a_pattern_is_one_of_its_own_use(run: Run, pattern_id: str) -> None:
    pattern = PATTERNS[pattern_id]
    for example in pattern.examples:
        values = {name: str(value) for name, value in example.parameters.items()}
        assert values.keys() <= {parameter.name for parameter in pattern.parameters}
        assert run(filled(pattern_id, next(iter(pattern.templates)), **values))


def test_a_plan_tells_a_scan_from_a_search(run: Run) -> None:
    plans = {
        where: run(filled("sqlite/query_plan", "plan", statement=f"SELECT id FROM orders WHERE {where}"))[0][3]
        for where in ("customer_id = 7", "status = 'shipped'")
    }
    assert plans["customer_id = 7"].startswith("SEARCH orders USING COVERING INDEX orders_by_customer")
    assert plans["status = 'shipped'"].startswith("SCAN orders")


def test_where_an_agent_has_a_scope_a_plan_is_refused_in_the_words_the_pattern_tells(shop_path: Path) -> None:
    told = [error.error for error in PATTERNS["sqlite/query_plan"].common_errors]
    backend = SqlBackend(f"sqlite:///{shop_path}", scope=Scope(tables=("orders",)))
    with closing(backend), pytest.raises(ToolFailed) as refused:
        running(backend)(filled("sqlite/query_plan", "plan"))
    assert str(refused.value) in told


def test_the_tour_tells_every_reference_of_the_schema(run: Run) -> None:
    found = {tuple(row) for row in run(filled("sqlite/schema_tour", "references"))}
    assert found == {
        ("employees", "stores"),
        ("order_lines", "orders"),
        ("order_lines", "products"),
        ("orders", "customers"),
        ("orders", "promotions"),
        ("orders", "stores"),
        ("payments", "orders"),
        ("products", "categories"),
        ("products", "suppliers"),
        ("returns", "order_lines"),
    }


def test_the_written_count_counts_every_table(run: Run) -> None:
    ((statement,),) = run(filled("sqlite/schema_tour", "count_statement"))
    counts = {str(table): total for table, total in run(statement)}
    assert len(counts) == 11
    assert counts["orders"] == run("SELECT COUNT(*) FROM orders")[0][0]


def test_pragmas_are_refused_as_the_tour_says(run: Run) -> None:
    for sql in ("PRAGMA table_info(orders)", "SELECT * FROM pragma_table_info('orders')"):
        with pytest.raises(ToolFailed, match="read-only"):
            run(sql)


def test_a_document_that_is_no_json_is_counted_and_spoils_nothing(run: Run) -> None:
    whole = """SELECT 1 AS id, '{"segment": "a", "tags": [1, 1]}' AS payload"""
    source = f"({whole} UNION ALL SELECT 2, '' UNION ALL SELECT 3, NULL)"
    assert run(filled("sqlite/json_columns", "validity", source=source)) == [[3, 1, 1, 1]]
    assert run(filled("sqlite/json_columns", "field_values", source=source)) == [["a", "text", 1]]
    assert run(filled("sqlite/json_columns", "array_items", source=source)) == [[1, 2, 1]]


def test_days_on_which_nothing_happened_are_there_with_zero(run: Run) -> None:
    period = {"table": "returns", "time_column": "returned_on", "start": "2025-01-01", "end": "2026-01-01"}
    days = run(filled("sqlite/date_spine", "per_day", **period))
    empty = [day for day, total in days if total == 0]
    assert (len(days), days[0][0], days[-1][0]) == (365, "2025-01-01", "2025-12-31")
    assert sum(total for _, total in days) == sum(
        total for _, total in run(filled("sqlite/date_spine", "per_month", **period))
    )
    assert run(filled("sqlite/date_spine", "empty_days", **period)) == [[365, len(empty), ",".join(empty)]]
    assert empty


def test_the_columns_of_a_pivot_add_up_to_its_total(run: Run) -> None:
    for _, *quarters, total in run(filled("sqlite/pivot_table", "quarters_across")):
        assert sum(quarters) == pytest.approx(total, abs=0.03)
    ((statement,),) = run(filled("sqlite/pivot_table", "any_columns"))
    pivot = run(statement)
    assert len(pivot) == 8
    assert all(sum(row[1:-1]) == row[-1] for row in pivot)


def test_the_documents_of_a_report_are_json_in_their_order_and_tell_the_whole_of_their_group(run: Run) -> None:
    found = [json.loads(document) for (document,) in run(filled("sqlite/running_json_report", "per_category", n="3"))]
    totals = {row[0]: row[-1] for row in run(filled("sqlite/pivot_table", "quarters_across"))}
    assert {each["category"]: each["revenue"] for each in found} == pytest.approx(totals)
    for each in found:
        revenues = [product["revenue"] for product in each["products"]]
        assert [product["place"] for product in each["products"]] == [1, 2, 3]
        assert revenues == sorted(revenues, reverse=True)


def test_a_search_takes_wildcards_for_what_they_are(run: Run) -> None:
    assert run(filled("sqlite/text_search", "in_column", words="%")) == []
    hits = run(filled("sqlite/text_search", "in_column", words="KETTLE", table="products"))
    assert hits
    assert all(re.search("kettle", row[1], re.IGNORECASE) for row in hits)


def test_rows_with_both_words_come_first(run: Run) -> None:
    ranked = run(filled("sqlite/text_search", "ranked", table="products", words="kettle", second_word="corvane"))
    assert ranked[0][1:] == ["Corvane Kettle", 2, 1]
    assert {row[2] for row in ranked[1:]} == {1}
