"""The patterns that ship with Loom do what they say: their SQL runs on the sample shop, and its figures are right."""

import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from itertools import pairwise
from statistics import fmean, median

import pytest

from loom_worker.backends.sqlite_guard import guard
from loom_worker.core.values.patterns import Pattern
from loom_worker.patterns.render import fill
from tests.support.sample_shop import TODAY, Sale, copy_shop, orders, sales, sign_ups
from tests.support.shipped_patterns import shipped
from tests.support.tiny_shop import open_shop

pytestmark = [pytest.mark.heavy, pytest.mark.takes(17)]

ALL = {pattern.id: pattern for pattern in shipped().patterns}
PATTERNS = {name: pattern for name, pattern in ALL.items() if pattern.backend_type in ("sql", "sqlite")}
TEMPLATES = [(pattern_id, name) for pattern_id, pattern in PATTERNS.items() for name in pattern.templates]
FULLY_TOLD = {name: ALL[name] for name in ALL if name.startswith(("timeseries/", "customers/", "data_quality/"))}
LAST_DAY = TODAY - timedelta(days=1)
BALANCE = "data_quality/totals_reconcile"


@pytest.fixture(scope="module")
def guarded_shop() -> Iterator[sqlite3.Connection]:
    """The sample shop as an agent meets it: only what the guard allows."""
    connection = copy_shop()
    guard(connection, timeout_s=300)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def open_sample_shop() -> Iterator[sqlite3.Connection]:
    connection = copy_shop()
    connection.execute("PRAGMA query_only=ON")
    yield connection
    connection.close()


@pytest.fixture
def spoiled() -> Iterator[sqlite3.Connection]:
    """A copy of the sample shop to put mistakes into."""
    connection = copy_shop()
    yield connection
    connection.close()


def sql(pattern_id: str, template: str, **values: str) -> str:
    pattern = PATTERNS[pattern_id]
    defaults = {parameter.name: parameter.default or "" for parameter in pattern.parameters}
    return fill(pattern.templates[template].text, defaults | values)


def rows(pattern_id: str, template: str, **values: str) -> list[tuple[object, ...]]:
    """What the template gives on the shop of a few rows."""
    return open_shop().execute(sql(pattern_id, template, **values)).fetchall()


def found(shop: sqlite3.Connection, pattern_id: str, template: str, **values: str) -> list[dict[str, object]]:
    """What the template gives on that shop, by names of columns."""
    cursor = shop.execute(sql(pattern_id, template, **values))
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def revenue_by(key: str, lines: Iterable[Sale]) -> dict[str, float]:
    """Sums of revenue by an attribute of the sales, written as text."""
    sums: defaultdict[str, float] = defaultdict(float)
    for line in lines:
        sums[str(getattr(line, key))] += line.revenue
    return dict(sums)


def near(value: object) -> object:
    return pytest.approx(value, abs=0.011)


@pytest.mark.parametrize(("pattern_id", "template"), TEMPLATES)
def test_every_template_gives_rows_with_its_defaults_and_with_its_examples(
    pattern_id: str, template: str, guarded_shop: sqlite3.Connection, open_sample_shop: sqlite3.Connection
) -> None:
    pattern = PATTERNS[pattern_id]
    shop = guarded_shop if pattern.backend_type == "sql" else open_sample_shop
    told = [{name: str(value) for name, value in example.parameters.items()} for example in pattern.examples]
    each = {parameter.name: parameter.example for parameter in pattern.parameters if parameter.example}
    for statement in dict.fromkeys(sql(pattern_id, template, **values) for values in ({}, each, *told)):
        assert shop.execute(statement).fetchone() is not None, statement


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_templates_and_parameters_agree(pattern: Pattern) -> None:
    used = {name for each in pattern.templates.values() for name in re.findall(r"\{\{\s*\.?(\w+)\s*\}\}", each.text)}
    assert used == {parameter.name for parameter in pattern.parameters}
    assert all(parameter.default is not None for parameter in pattern.parameters)
    assert all(set(example.parameters) <= used for example in pattern.examples)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_a_pattern_says_when_and_how_to_use_it(pattern: Pattern) -> None:
    assert pattern.description
    assert pattern.best_practices
    assert len(pattern.intents) >= 4
    assert set(pattern.related_patterns) <= set(ALL) - {pattern.id}


@pytest.mark.parametrize("pattern", FULLY_TOLD.values(), ids=FULLY_TOLD)
def test_a_pattern_names_its_pitfalls_and_what_each_template_gives(pattern: Pattern) -> None:
    assert pattern.examples
    assert all(example.expected_result for example in pattern.examples)
    assert all(error.error and error.cause and error.solution for error in pattern.common_errors)
    assert pattern.common_errors
    assert all(template.description and template.output_format for template in pattern.templates.values())
    assert len(set(pattern.intents)) == len(pattern.intents) >= 8


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


def test_a_moving_average_is_the_mean_of_its_days(guarded_shop: sqlite3.Connection) -> None:
    daily = revenue_by("day", sales())
    shown = found(guarded_shop, "timeseries/moving_average", "daily", days="28", start="2025-01-01")
    for row in shown:
        last = date.fromisoformat(str(row["day"]))
        window = [daily.get(str(last - timedelta(days=back)), 0.0) for back in range(28)]
        assert row["moving_average"] == near(fmean(window))
    assert len(shown) == (TODAY - date(2025, 1, 1)).days


def test_days_without_a_sale_count_as_zero_in_a_moving_average() -> None:
    averages = {row[0]: row[1:] for row in rows("timeseries/moving_average", "daily", days="7")}
    assert averages["2025-03-02"] == (1040.0, near(1040 / 7))
    assert averages["2025-03-05"] == (0.0, near(1040 / 7))
    assert averages["2024-05-02"] == (0.0, None)


def test_a_year_to_date_begins_anew_each_january(guarded_shop: sqlite3.Connection) -> None:
    monthly = revenue_by("month", sales())
    for row in found(guarded_shop, "timeseries/running_total", "year_to_date"):
        month = str(row["month"])
        assert row["year_to_date"] == near(sum(monthly[m] for m in monthly if month[:4] <= m <= month))


def test_a_month_is_compared_with_the_same_month_a_year_before(guarded_shop: sqlite3.Connection) -> None:
    monthly = revenue_by("month", sales())
    compared = {row["month"]: row for row in found(guarded_shop, "timeseries/year_over_year", "same_month")}
    growth = 100 * (monthly["2025-11"] / monthly["2024-11"] - 1)
    assert compared["2025-11"]["change_percent"] == pytest.approx(growth, abs=0.051)
    assert compared["2024-11"]["change_percent"] is None
    assert compared[f"{LAST_DAY:%Y-%m}"]["data_until"] == str(LAST_DAY)


def test_a_running_year_is_compared_up_to_the_same_day(guarded_shop: sqlite3.Connection) -> None:
    by_year = {row["year"]: row for row in found(guarded_shop, "timeseries/year_over_year", "year_to_date")}
    until = sum(sale.revenue for sale in sales() if date(2025, 1, 1) <= sale.day <= LAST_DAY.replace(year=2025))
    assert by_year[2026]["year_before"] == by_year[2025]["revenue"] == near(until)


def test_a_weekday_is_averaged_over_the_calendar(guarded_shop: sqlite3.Connection) -> None:
    shown = found(guarded_shop, "timeseries/weekday_seasonality", "by_weekday")
    counted = Counter(at.strftime("%A") for _, _, at in orders())
    assert {row["weekday"]: row["events"] for row in shown} == counted
    assert sum(int(str(row["days"])) for row in shown) == (TODAY - date(2024, 1, 1)).days


def test_a_day_of_rare_revenue_is_the_first_anomaly(spoiled: sqlite3.Connection) -> None:
    spoiled.execute("INSERT INTO orders VALUES (99999, 1, 1, NULL, '2025-05-06 12:00:00', 'completed', 0)")
    spoiled.execute("INSERT INTO order_lines VALUES (99999, 99999, 1, 1000, 80.0, 0)")
    for template in ("against_recent_days", "against_same_weekday", "against_the_median"):
        assert found(spoiled, "timeseries/anomaly_days", template)[0]["day"] == "2025-05-06"


def test_no_streak_is_longer_than_the_longest(guarded_shop: sqlite3.Connection) -> None:
    counted = Counter(at.date() for _, _, at in orders())
    longest = run = 0
    for number in range((TODAY - date(2024, 1, 1)).days):
        run = run + 1 if counted[date(2024, 1, 1) + timedelta(days=number)] >= 20 else 0
        longest = max(longest, run)
    assert found(guarded_shop, "timeseries/longest_streak", "active_days")[0]["days"] == longest


def test_a_visit_ends_with_the_first_long_pause(guarded_shop: sqlite3.Connection) -> None:
    by_store: defaultdict[int, list[datetime]] = defaultdict(list)
    for store, at in guarded_shop.execute("SELECT store_id, ordered_at FROM orders"):
        by_store[store].append(datetime.fromisoformat(at))
    visits = 0
    for times in by_store.values():
        times.sort()
        visits += 1 + sum(b - a > timedelta(minutes=30) for a, b in pairwise(times))
    values = {"actor_column": "store_id", "pause_minutes": "30"}
    (summary,) = found(guarded_shop, "timeseries/sessionization", "summary", **values)
    assert (summary["actors"], summary["visits"]) == (8, visits)


def test_each_category_has_its_own_best_product(guarded_shop: sqlite3.Connection) -> None:
    for row in found(guarded_shop, "timeseries/top_n_per_group", "products_per_category", k="1"):
        products = revenue_by("product", (sale for sale in sales() if sale.category == row["category"]))
        assert row["product"] == max(products, key=lambda name: products[name])
        assert row["percent_of_category"] == pytest.approx(
            100 * max(products.values()) / sum(products.values()), abs=0.051
        )


def test_a_funnel_counts_people_who_had_the_time(guarded_shop: sqlite3.Connection) -> None:
    days = timedelta(days=180)
    entered = {each: day for each, day in sign_ups().items() if date(2024, 1, 1) <= day <= LAST_DAY - days}
    bought = Counter(each for _, each, at in orders() if each in entered and at.date() < entered[each] + days)
    reached = [sum(bought[each] >= least for each in entered) for least in range(4)]
    steps = found(guarded_shop, "customers/conversion_funnel", "signup_to_third_order")
    assert [row["customers"] for row in steps] == reached


def test_a_lifetime_value_takes_refunds_and_the_cost_of_kept_goods_off(guarded_shop: sqlite3.Connection) -> None:
    (best, *_) = found(guarded_shop, "customers/lifetime_value", "by_customer", n="1")
    customer, *others = [
        each
        for each, name in guarded_shop.execute("SELECT id, name FROM customers")
        if name == best["customer"] and str(min(s.day for s in sales() if s.customer == each)) == best["first_order"]
    ]
    lines = {sale.line: sale.revenue for sale in sales() if sale.customer == customer}
    back = guarded_shop.execute("SELECT order_line_id, quantity, refund FROM returns").fetchall()
    returned = {line: sum(quantity for each, quantity, _ in back if each == line) for line in lines}
    cost = sum(
        (quantity - returned[line]) * unit_cost
        for line, quantity, unit_cost in guarded_shop.execute(
            "SELECT l.id, l.quantity, p.unit_cost FROM order_lines AS l, products AS p WHERE p.id = l.product_id"
        )
        if line in lines
    )
    revenue = sum(lines.values()) - sum(refund for line, _, refund in back if line in lines)
    assert (others, best["revenue"], best["value"]) == ([], near(revenue), near(revenue - cost))


def test_customers_of_a_month_are_lost_when_they_stay_away(guarded_shop: sqlite3.Connection) -> None:
    month, days = date(2025, 3, 1), timedelta(days=180)
    active = {customer for _, customer, at in orders() if month - days <= at.date() < month}
    stayed = {customer for _, customer, at in orders() if month <= at.date() < month + days}
    rates = {row["month"]: row for row in found(guarded_shop, "customers/churned_customers", "rate_per_month")}
    assert (rates["2025-03"]["active"], rates["2025-03"]["lost"]) == (len(active), len(active - stayed))


def test_the_usual_pause_is_the_median_of_all(guarded_shop: sqlite3.Connection) -> None:
    by_customer: defaultdict[int, list[datetime]] = defaultdict(list)
    for _, customer, at in orders():
        by_customer[customer].append(at)
    pauses = [(b - a) / timedelta(days=1) for t in by_customer.values() for a, b in pairwise(t)]
    (row,) = found(guarded_shop, "customers/purchase_interval", "overall")
    assert row["pauses"] == len(pauses)
    assert row["median_days"] == pytest.approx(median(pauses), abs=0.051)
    assert row["p90_days"] == pytest.approx(sorted(pauses)[-(-9 * len(pauses) // 10) - 1], abs=0.051)


def test_cohorts_share_all_revenue_among_them(guarded_shop: sqlite3.Connection) -> None:
    shown = found(guarded_shop, "customers/cohort_revenue", "list")
    assert sum(float(str(row["revenue"])) for row in shown) == pytest.approx(sum(s.revenue for s in sales()), abs=1)
    first = {row["cohort"]: row["buyers"] for row in shown if row["quarter_of_life"] == 0}
    assert sum(int(str(buyers)) for buyers in first.values()) == len({sale.customer for sale in sales()})


def test_a_one_time_buyer_has_one_order_and_had_time_for_more(guarded_shop: sqlite3.Connection) -> None:
    counted = Counter(customer for _, customer, _ in orders())
    limit = LAST_DAY - timedelta(days=60)
    once = [customer for _, customer, at in orders() if counted[customer] == 1 and at.date() <= limit]
    assert len(found(guarded_shop, "customers/one_time_buyers", "list", n="9999")) == len(once)
    shares = found(guarded_shop, "customers/one_time_buyers", "share_by_quarter")
    assert sum(int(str(row["bought_once"])) for row in shares) == len(once)


def test_a_row_entered_twice_is_surplus(spoiled: sqlite3.Connection) -> None:
    keys = {"table": "orders", "key_columns": "customer_id, ordered_at"}
    assert found(spoiled, "data_quality/duplicate_rows", "summary", **keys)[0]["surplus_rows"] == 0
    spoiled.execute(
        "INSERT INTO orders SELECT 99999, customer_id, 2, 1, ordered_at, status, 0 FROM orders WHERE id = 7"
    )
    assert found(spoiled, "data_quality/duplicate_rows", "surplus_rows", **keys) == [
        {"surplus_total": 1, "copy_number": 2, "original_id": 7, "surplus_id": 99999}
    ]


def test_another_spelling_is_a_near_duplicate(spoiled: sqlite3.Connection) -> None:
    spoiled.execute("INSERT INTO stores VALUES (9, 'loomfield MITTE.', 'Berlin', 'Germany')")
    first = found(spoiled, "data_quality/duplicate_rows", "near_duplicates", table="stores", text_column="name")[0]
    assert (first["plain"], first["spellings"], first["row_total"]) == ("loomfieldmitte", 2, 2)


def test_nulls_blanks_and_stand_ins_are_all_missing(spoiled: sqlite3.Connection) -> None:
    spoiled.execute("UPDATE customers SET city = CASE id WHEN 1 THEN '  ' ELSE 'N/A' END WHERE id <= 3")
    columns = {"table": "customers", "column_1": "city", "column_2": "email", "column_3": "name"}
    by_name = {
        row["column_name"]: row for row in found(spoiled, "data_quality/missing_values", "per_column", **columns)
    }
    assert (by_name["city"]["blanks"], by_name["city"]["placeholders"]) == (1, 2)
    assert by_name["email"]["missing_percent"] == 0


def test_a_slipped_decimal_point_is_an_outlier(spoiled: sqlite3.Connection) -> None:
    spoiled.execute("UPDATE order_lines SET unit_price = unit_price * 1000 WHERE id = 4711")
    (product,) = spoiled.execute("SELECT product_id FROM order_lines WHERE id = 4711").fetchone()
    assert found(spoiled, "data_quality/numeric_outliers", "rows")[0]["row_id"] == 4711
    worst = found(spoiled, "data_quality/numeric_outliers", "within_groups")[0]
    assert worst["group_value"] == product
    assert float(str(worst["times_the_median"])) > 900


def test_a_reference_to_nothing_is_an_orphan_and_none_is_not(spoiled: sqlite3.Connection) -> None:
    spoiled.execute("UPDATE orders SET promotion_id = 77 WHERE id IN (10, 11)")
    relation = {"child_column": "promotion_id", "parent_table": "promotions"}
    assert found(spoiled, "data_quality/orphaned_rows", "missing_keys", **relation) == [
        {"orphan_total": 2, "missing_key": 77, "child_rows": 2}
    ]
    worst = found(spoiled, "data_quality/orphaned_rows", "all_relations")[0]
    assert (worst["relation"], worst["orphans"]) == ("orders.promotion_id -> promotions", 2)


def test_a_store_that_took_over_half_of_the_orders_is_drift(spoiled: sqlite3.Connection) -> None:
    spoiled.execute("UPDATE orders SET store_id = 2 WHERE date(ordered_at) >= '2025-11-14' AND id % 2 = 0")
    (verdict,) = found(spoiled, "data_quality/distribution_drift", "verdict")
    first = found(spoiled, "data_quality/distribution_drift", "shares")[0]
    assert first["value"] == "2"
    assert 40 < float(str(verdict["moved_percent"])) < 55


def test_bad_addresses_impossible_days_and_foreign_codes_are_found(spoiled: sqlite3.Connection) -> None:
    spoiled.execute("UPDATE customers SET email = 'ida at example.com' WHERE id = 1")
    spoiled.execute("UPDATE orders SET ordered_at = '2025-02-30 10:00:00' WHERE id = 1")
    spoiled.execute("UPDATE products SET sku = 'gar-1001' WHERE id = 1")
    emails = found(spoiled, "data_quality/invalid_formats", "emails")
    assert [row["bad_rows"] for row in emails] == [0, 1, 1, 1, 0]
    dates = found(spoiled, "data_quality/invalid_formats", "dates")
    assert [row["bad_rows"] for row in dates] == [0, 0, 1, 0, 0]
    (codes,) = found(spoiled, "data_quality/invalid_formats", "codes")
    assert (codes["not_fitting"], codes["example"]) == (1, "gar-1001")


def test_a_week_that_was_not_loaded_is_a_gap(spoiled: sqlite3.Connection) -> None:
    spoiled.execute("DELETE FROM orders WHERE date(ordered_at) BETWEEN '2025-02-03' AND '2025-02-09'")
    assert found(spoiled, "data_quality/freshness", "gaps") == [
        {"gap_total": 1, "first_missing": "2025-02-03", "last_missing": "2025-02-09", "days_missing": 7}
    ]
    (age,) = found(spoiled, "data_quality/freshness", "age", as_of="2026-02-16")
    assert age["age_days"] == 6


def test_a_lost_payment_breaks_the_balance(spoiled: sqlite3.Connection) -> None:
    assert not sum(int(str(row["disagreeing_orders"])) for row in found(spoiled, BALANCE, "by_month"))
    (largest,) = spoiled.execute("SELECT order_id FROM payments ORDER BY amount DESC LIMIT 1").fetchone()
    spoiled.execute("DELETE FROM payments WHERE order_id = ?", (largest,))
    first = found(spoiled, BALANCE, "greatest_differences")[0]
    assert (first["order_id"], first["verdict"]) == (largest, "unpaid")
    sides = {row["finding"]: row["cases"] for row in found(spoiled, BALANCE, "one_sided")}
    assert sides["order without a payment"] == 1
