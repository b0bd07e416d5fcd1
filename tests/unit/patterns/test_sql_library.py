"""The patterns that ship with Loom do what they say."""

import re

import pytest

from loom_worker.patterns.library import load, packaged_root
from loom_worker.patterns.render import fill
from loom_worker.values.patterns import Pattern
from tests.support.tiny_shop import open_shop

PATTERNS = {pattern.id: pattern for pattern in load(packaged_root()).patterns if pattern.backend_type == "sql"}
TEMPLATES = [(pattern_id, name) for pattern_id, pattern in PATTERNS.items() for name in pattern.templates]


def rows(pattern_id: str, template: str, **values: str) -> list[tuple[object, ...]]:
    pattern = PATTERNS[pattern_id]
    defaults = {parameter.name: parameter.default or "" for parameter in pattern.parameters}
    return open_shop().execute(fill(pattern.templates[template], defaults | values)).fetchall()


@pytest.mark.parametrize(("pattern_id", "template"), TEMPLATES)
def test_every_template_gives_rows_with_its_defaults(pattern_id: str, template: str) -> None:
    assert rows(pattern_id, template)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_templates_and_parameters_agree(pattern: Pattern) -> None:
    used = {name for text in pattern.templates.values() for name in re.findall(r"\{\{\.?(\w+)\}\}", text)}
    assert used == {parameter.name for parameter in pattern.parameters}
    assert all(parameter.default is not None for parameter in pattern.parameters)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_a_pattern_says_when_and_how_to_use_it(pattern: Pattern) -> None:
    assert pattern.description
    assert pattern.best_practices
    assert len(pattern.intents) >= 4
    assert set(pattern.related_patterns) <= set(PATTERNS) - {pattern.id}


def test_cancelled_orders_and_other_years_do_not_count_as_revenue() -> None:
    ranked = rows("sql/top_n", "by_revenue", start="2025-01-01", end="2026-01-01", n="3")
    assert ranked == [("Red Tent", 1000.0, 20), ("Blue Tent", 320.0, 4), ("Desk Lamp", 90.0, 3)]


def test_two_returns_of_one_line_count_its_sales_once() -> None:
    tents = {row[0]: row for row in rows("sql/return_rate", "by_product")}
    assert tents["Blue Tent"] == ("Blue Tent", 4, 2, 50.0, 160.0)


def test_a_single_year_is_compared_with_the_one_before() -> None:
    compared = rows("sql/period_comparison", "year_over_year", start="2025-01-01", end="2026-01-01")
    assert compared == [("2025", 1450.0, 100.0, 1350.0, 1350.0)]


def test_a_product_that_never_sold_is_the_slowest() -> None:
    assert rows("sql/slow_movers", "least_sold")[0][:3] == ("Unsold Lamp", 0, 0.0)


def test_shares_add_up_to_the_whole() -> None:
    for pattern_id, template in (("share_of_total", "by_store"), ("category_breakdown", "by_category")):
        assert sum(float(str(row[-1])) for row in rows(f"sql/{pattern_id}", template)) == pytest.approx(100, abs=0.2)


def test_a_returning_customer_is_new_only_once() -> None:
    assert rows("sql/new_vs_returning", "per_year") == [("2024", 1, 0), ("2025", 2, 1), ("2026", 0, 1)]


def test_the_average_order_is_not_the_average_line() -> None:
    assert rows("sql/average_order_value", "overall", start="2025-03-01", end="2025-04-01") == [(1, 1040.0, 1040.0)]


def test_quarters_are_those_of_the_calendar() -> None:
    quarters = [row[0] for row in rows("sql/trend_over_time", "per_quarter", start="2025-01-01", end="2026-01-01")]
    assert quarters == ["2025-Q1", "2025-Q3", "2025-Q4"]


def test_the_product_that_crosses_the_line_belongs_to_a() -> None:
    assert [row[:2] for row in rows("sql/pareto_abc", "classes", start="2025-01-01", end="2026-01-01")] == [
        ("Red Tent", "A"),
        ("Blue Tent", "A"),
        ("Desk Lamp", "B"),
        ("Head Lamp", "C"),
    ]
