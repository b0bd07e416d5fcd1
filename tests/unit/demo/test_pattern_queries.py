from datetime import date

import pytest

from loom_worker.demo.pattern_queries import (
    PatternQuery,
    choose,
    pattern_answer,
    read_queries,
)
from loom_worker.demo.rows import read_result, read_today, unfenced
from loom_worker.demo.slots import Slots, read

CONTEXT = """<pattern id="sql/top_n" score="0.41">

Best sellers

Ranks products.

Template by_revenue:
```sql
WITH t AS (SELECT * FROM order_lines), u AS (
  SELECT * FROM t
)
SELECT * FROM u JOIN products ON 1 WHERE day >= '{{start}}' AND day < '{{.end}}' LIMIT {{n}}
```

Template by_units:
```sql
SELECT {{expression}} FROM stock
```

Parameters:
- n (integer, default 10): How many (at most).
- start (date, default 0001-01-01)
- end (date, required, default 9999-12-31): Not included.
- expression (string, default COALESCE(a, b)): What: to show (or not).

Best practices:
- n (integer, default 99): no parameter.
</pattern>

Today is 2026-11-21."""
NOTHING = Slots(None, (), "")
REVENUE, UNITS = read_queries(CONTEXT)


def chosen(question: str) -> PatternQuery | None:
    slots = read(question, date(2026, 11, 21))
    found = choose((REVENUE, UNITS), slots.marked, slots)
    return found and found[0]


def test_the_query_has_what_the_question_said_and_defaults_elsewhere() -> None:
    slots = read("three best last year", date(2026, 11, 21))
    assert "day >= '2025-01-01' AND day < '2026-01-01' LIMIT 3" in REVENUE.query(slots)
    assert "day >= '0001-01-01' AND day < '9999-12-31' LIMIT 10" in REVENUE.query(NOTHING)
    assert UNITS.query(NOTHING) == "SELECT COALESCE(a, b) FROM stock", "a default may hold brackets"
    assert set(REVENUE.tables()) == {"order_lines", "products"}, "the query's own parts are no tables"


def test_a_query_says_its_columns_and_which_names_it_takes() -> None:
    query = PatternQuery(
        "x/y",
        "x",
        "SELECT g.name AS guest, COUNT(*) stays FROM guests AS g JOIN stays s ON s.guest = g.id "
        "WHERE g.town = '{{town}}' AND lower(s.kind) LIKE lower('{{ .kind }}') AND s.day >= '{{start}}' LIMIT {{n}}",
        {},
    )
    assert query.columns() == ("guest", "stays")
    assert query.text_slots() == {"town": ("guests", "town"), "kind": ("stays", "kind")}
    broken = PatternQuery("x/y", "x", "SELECT FROM (", {})
    assert (broken.columns(), broken.tables(), broken.text_slots()) == ((), (), {})


@pytest.mark.parametrize("context", ["", "Today is 2026-11-21.", '<pattern id="x/y">\n\nNo SQL\n\nText\n</pattern>'])
def test_no_pattern_with_sql_is_no_task(context: str) -> None:
    assert read_queries(context) == ()


@pytest.mark.cases(
    ("context", "today"),
    [(CONTEXT, date(2026, 11, 21)), ("", None), ("Today is 2026-13-45.", None), ("He said Today is 2026-11-21.", None)],
)
def test_today_is_read_from_its_own_line(context: str, today: date | None) -> None:
    assert read_today(context) == today


@pytest.mark.cases(
    ("question", "template"),
    [
        ("best sellers", REVENUE),
        ("Best sellers by revenue", REVENUE),
        ("best sellers by units", UNITS),
        ("top 3 best sellers", REVENUE),
        ("best 3 sellers in 2025", REVENUE),
        ("best sellers 3", None),
        ("3 best sellers in 2025 by revenue", REVENUE),
        ("best sellers in Berlin", None),
        ("best sellers, not by units", None),
        ("best sellers in 2024 and 2025", None),
        ("best sellers in 2025 by units", None),
        ("worst sellers", None),
        ("revenue", None),
        ("why best sellers", None),
        ("3 best sellers by units", None),
        ("", None),
    ],
)
def test_a_template_is_chosen_only_if_each_word_number_and_period_has_a_place_in_it(
    question: str, template: PatternQuery | None
) -> None:
    assert chosen(question.lower()) == template


@pytest.mark.cases(
    ("sql", "takes"),
    [
        ("SELECT 1 WHERE d >= '{{start}}' AND d < '{{end}}'", True),
        ("SELECT 1 WHERE y >= substr('{{start}}', 1, 4) AND d < '{{end}}'", False),
        ("SELECT 1 WHERE d < '{{end}}'", False),
        ("SELECT '{{start}}' WHERE d >= '{{start}}' AND d < '{{end}}'", False),
        ("SELECT 1", False),
    ],
)
def test_a_period_is_taken_only_by_a_template_that_restricts_days_to_it(sql: str, takes: bool) -> None:
    assert PatternQuery("x/y", "x", sql, {}).takes_period() is takes


def test_a_template_with_a_placeholder_that_nothing_fills_is_not_chosen() -> None:
    open_end = PatternQuery("x/y", "Rows of a table", "SELECT 1 AS rows FROM {{table}}", {}, "rows")
    assert choose((open_end,), "rows", NOTHING) is None


def worded(columns: list[str], *rows: list[object], slots: Slots = NOTHING, truncated: bool = False) -> str:
    return pattern_answer(REVENUE, slots, {"columns": columns, "rows": list(rows), "truncated": truncated})


@pytest.mark.cases(
    ("columns", "rows", "told"),
    [
        (
            ["product", "revenue", "units", "share_percent"],
            [["Tent", 1234567, 3210.0, 12.345], ["Lamp", 1, 2, 3]],
            "1. Tent: revenue 1,234,567.00, units 3,210, share 12.3 %\n2. Lamp: revenue 1.00, units 2, share 3.0 %",
        ),
        (["orders", "average_order_value"], [[3, 5.5]], "\norders 3, average order value 5.50\n"),
        (["year", "change"], [["2025", None]], "change none"),
        (["product", "revenue"], [], "gave no rows"),
    ],
)
def test_rows_are_told_as_they_are(columns: list[str], rows: list[list[object]], told: str) -> None:
    assert told in worded(columns, *rows)


def test_many_rows_are_counted_instead_of_listed() -> None:
    text = worded(["product", "units"], *([f"p{n}", n] for n in range(60)), truncated=True)
    assert "40. p39" in text
    assert "p40" not in text
    assert "60 came back, cut" in text


def test_the_answer_names_pattern_and_period() -> None:
    slots = read("last year", date(2026, 11, 21))
    text = worded(["product", "units"], ["Tent", 1], slots=slots)
    assert 'For 2025-01-01 to 2025-12-31 (last year), by the pattern "Best sellers" (sql/top_n), with n = 10:' in text
    assert "Over all dates on record" in worded(["product", "units"], ["Tent", 1])

    given = PatternQuery(
        "x/y", "x", "SELECT {{n}} WHERE d >= '{{start}}' AND d < '{{end}}'", {"n": "5", "start": "2025-01-01"}
    )
    text = pattern_answer(given, NOTHING, {"columns": ["a"], "rows": [["x"]]})
    assert text.startswith("From 2025-01-01 up to, not including, 9999-12-31, by the pattern")


@pytest.mark.cases("content", ["", "Tool failed", "[]", '{"rows": 1}', "[Large dataset stored: ref_1]", "null"])
def test_a_text_that_is_no_table_is_no_result(content: str) -> None:
    assert read_result(content) is None


def test_a_result_is_read_inside_its_fence_with_or_without_a_note_behind_it() -> None:
    fenced = '<data kqrbcd>\n{"columns": ["n"], "rows": [[1]]}\n</data kqrbcd>'
    assert read_result(unfenced(fenced)) == read_result(unfenced(f"{fenced}\n[Loom: …]")) == read_result(fenced[14:-15])
    assert unfenced("plain") == "plain"
