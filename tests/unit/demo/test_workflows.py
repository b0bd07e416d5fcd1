"""The workflows that ship with the shop, played with the engine and the demo model against figures of plain SQL."""

import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from loom_worker.agents.load import load as load_agents
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.values.workflows import agent_ids
from loom_worker.demo.rows import NO_LLM
from tests.support.shop_file import TODAY
from tests.unit.demo.played import Played, played, shipped

AMOUNT = "SUM(l.quantity * l.unit_price * (1 - l.discount))"
SALES = """
    FROM order_lines l JOIN orders o ON o.id = l.order_id JOIN customers c ON c.id = o.customer_id
    JOIN products p ON p.id = l.product_id JOIN categories g ON g.id = p.category_id JOIN stores s ON s.id = o.store_id
    WHERE o.status <> 'cancelled' AND o.ordered_at >= ? AND o.ordered_at < ?
"""
OCTOBER = ("2026-10-01", "2026-11-01")
LINE = re.compile(r"^\d+\. (.+?): revenue ([\d,.]+)", re.MULTILINE)
Row = tuple[str, float]


@pytest.fixture
def db(shop_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(shop_path)) as connection:
        yield connection


def revenue(db: sqlite3.Connection, days: tuple[str, str]) -> float:
    return float(db.execute(f"SELECT {AMOUNT} {SALES}", days).fetchone()[0] or 0)


def ranked(db: sqlite3.Connection, name: str, key: str, days: tuple[str, str], most: int) -> Iterable[Row]:
    """Names with their revenue, the highest first."""
    return db.execute(f"SELECT {name}, {AMOUNT} AS made {SALES} GROUP BY {key} ORDER BY made DESC LIMIT {most}", days)


def tells(text: str, rows: Iterable[Row]) -> bool:
    """Do numbered lines of the text, one after another, tell these rows? Sums of floats differ behind the cent."""
    wanted = list(rows)
    told = [(name, float(made.replace(",", ""))) for name, made in LINE.findall(text)]
    at = next((n for n, (name, _) in enumerate(told) if name == wanted[0][0]), len(told))
    found = told[at : at + len(wanted)]
    pairs = zip(found, wanted, strict=False)
    return len(found) == len(wanted) and all(one[0] == two[0] and abs(one[1] - two[1]) < 0.02 for one, two in pairs)


def of_month(year: int, month: int) -> tuple[str, str]:
    return f"{date(year, month, 1)}", f"{date(year, month + 1, 1)}"


def test_three_workflows_of_different_types_ship_with_agents_that_exist() -> None:
    found = shipped()
    types = {name: each.pattern.type for name, each in found.items()}
    assert types == {"sales-report": "pipeline", "shop-overview": "parallel", "sales-check": "conditional"}
    for each in found.values():
        known = load_agents(None).agents.keys() | each.agents.keys()
        assert {name for _, name in agent_ids(each.pattern)} <= known
        assert not each.needed, "it runs without any variables"
        assert "period" in each.variables


@pytest.mark.cases(
    ("period", "days"),
    [
        ("last month", OCTOBER),
        ("Q2 2025", ("2025-04-01", "2025-07-01")),
        ("2025", ("2025-01-01", "2026-01-01")),
        ("the last 30 days", ("2026-10-22", "2026-11-22")),
    ],
)
def test_a_report_holds_the_figures_of_its_period(db: sqlite3.Connection, period: str, days: tuple[str, str]) -> None:
    run = played("sales-report", db, TODAY, period=period)
    assert (run.end.status, run.end.message) == ("completed", "")
    report = str(run.end.output)
    orders = db.execute(f"SELECT COUNT(DISTINCT o.id) {SALES}", days).fetchone()[0]
    assert f"Totals\nRevenue, orders, {days[0]}" in report
    assert f"revenue {revenue(db, days):,.2f}, orders {orders:,}" in report
    assert tells(report, ranked(db, "g.name", "g.id", days, 10))
    assert tells(report, ranked(db, "p.name", "p.id", days, 5))
    assert tells(report, ranked(db, "c.name", "c.id", days, 5))


def test_a_report_is_checked_and_says_once_who_wrote_it(db: sqlite3.Connection) -> None:
    run = played("sales-report", db, TODAY)
    assert run.outputs["stages.4.validation"].startswith("Yes. Each figure of the report ")
    assert str(run.end.output).count(NO_LLM) == 1
    assert str(run.end.output).endswith(NO_LLM)
    assert all(run.outputs[f"stages.{n}"].endswith(NO_LLM) for n in range(4))
    assert "[totals]\nRevenue" in run.prompts["stages.1"], "the history stands beside each question"


def test_a_report_with_a_figure_that_no_answer_holds_ends_the_run(db: sqlite3.Connection) -> None:
    found = shipped()["sales-report"]
    said = {"stages.4": "Revenue was 123,456,789.00 in 2026.", "stages.4.retry.1": "Revenue was 987,654,321.00."}
    run = Played(found.pattern, db, TODAY, found.variables, said=said)
    assert (run.end.status, run.end.reason) == ("failed", "invalid-output")
    told = "No. These figures of the report do not stand in the answers: "
    assert run.outputs["stages.4.validation"] == f"{told}123456789.00."
    assert run.outputs["stages.4.retry.1.validation"] == f"{told}987654321.00."


def test_a_period_that_cannot_be_read_is_refused_in_the_report_and_brings_no_figure(db: sqlite3.Connection) -> None:
    run = played("sales-report", db, TODAY, period="the good old days")
    report = str(run.end.output)
    assert report.count("I have no answer, as I do not guess: ") == 4
    assert not any(line[:2] == "1." for line in report.splitlines())


def test_an_overview_sums_up_what_was_found(db: sqlite3.Connection) -> None:
    run = played("shop-overview", db, TODAY)
    days = ("2026-08-21", "2026-11-22")
    summary = str(run.end.output)
    assert run.end.status == "completed"
    assert tells(summary, ranked(db, "g.name", "g.id", days, 3))
    assert tells(summary, ranked(db, "c.name", "c.id", days, 3))
    assert [line for line in summary.splitlines() if line.startswith("…")] == [
        "… and 7 more lines.",
        "… and 2 more lines.",
        "… and 7 more lines.",
    ]
    unsold = db.execute(f"SELECT name FROM products WHERE id NOT IN (SELECT p.id {SALES})", days).fetchall()
    assert unsold
    assert all(f"{name}: list price" in summary for (name,) in unsold)
    assert [line for line in summary.splitlines() if line in ("Sales", "Customers", "Assortment", "Returns")]
    assert summary.count(NO_LLM) == 1


def test_an_overview_shows_what_was_returned_most_often(db: sqlite3.Connection) -> None:
    sql = """SELECT p.name, COUNT(*) AS times, SUM(r.refund) FROM returns r JOIN order_lines l ON l.id = r.order_line_id
             JOIN products p ON p.id = l.product_id WHERE r.returned_on >= '2026-08-21' AND r.returned_on < '2026-11-22'
             GROUP BY p.id ORDER BY times DESC, p.name LIMIT 3"""
    summary = str(played("shop-overview", db, TODAY).end.output)
    for n, (name, times, refunds) in enumerate(db.execute(sql), start=1):
        line = next(line for line in summary.splitlines() if line.startswith(f"{n}. {name}: returns {times}, "))
        assert line.endswith(f"refunds {refunds:,.2f}")


@pytest.mark.cases("month", range(2, 11))
def test_the_branch_that_is_taken_is_that_of_the_figures(db: sqlite3.Connection, month: int) -> None:
    now, before = (
        revenue(db, of_month(2026, month)),
        revenue(db, of_month(*((2026, month - 1) if month > 1 else (2025, 12)))),
    )
    run = played("sales-check", db, TODAY, period=f"{date(2026, month, 1):%B %Y}")
    assert run.end.status == "completed"
    assert run.outputs["condition"] == ("rose" if now > before else "dropped")
    change = f"revenue {now:,.2f} against revenue {before:,.2f} ({100 * (now - before) / before:+,.1f} %)"
    assert f"Sales {run.outputs['condition']}: {change}." in str(run.end.output)
    assert ("branch.merge" in run.outputs) is (now < before)


def test_after_a_drop_the_largest_losses_come_first(db: sqlite3.Connection) -> None:
    days, before = of_month(2026, 8), of_month(2026, 7)
    output = str(played("sales-check", db, TODAY, period="August 2026").end.output)
    for column, key in (("g.name", "g.id"), ("s.name", "s.id")):
        made: list[dict[Any, float]] = [
            dict(db.execute(f"SELECT {column}, {AMOUNT} {SALES} GROUP BY {key}", each).fetchall())
            for each in (days, before)
        ]
        lost = sorted(made[1].keys() | made[0].keys(), key=lambda name: made[0].get(name, 0) - made[1].get(name, 0))
        assert tells(output, [(name, made[0][name]) for name in lost[:3]])


@pytest.mark.cases("period", ["the last 30 days", "January 2024", "Atlantis", "January 2031"])
def test_where_the_figures_decide_nothing_the_months_are_shown(db: sqlite3.Connection, period: str) -> None:
    run = played("sales-check", db, TODAY, period=period)
    assert run.end.status == "completed"
    assert run.outputs["condition"].startswith("Undecided.")
    assert f"2026-10: revenue {revenue(db, OCTOBER):,.2f}" in str(run.end.output)
