from datetime import date

import pytest

from loom_worker.llm.demo import answer, missing_tables, read_result, read_task, read_today, unfenced
from loom_worker.llm.slots import Slots, read

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
NOTHING = Slots(None, None, "")


def test_the_query_has_what_the_question_said_and_defaults_elsewhere() -> None:
    slots = read("three best last year", date(2026, 11, 21))
    task = read_task(CONTEXT, slots.rest)
    assert task is not None
    assert "day >= '2025-01-01' AND day < '2026-01-01' LIMIT 3" in task.query(slots)
    assert "day >= '0001-01-01' AND day < '9999-12-31' LIMIT 10" in task.query(NOTHING)


def test_a_default_may_hold_brackets() -> None:
    task = read_task(CONTEXT, "how many units")
    assert task is not None
    assert task.query(NOTHING) == "SELECT COALESCE(a, b) FROM stock"


def test_the_tables_are_those_of_the_database_not_those_of_the_query() -> None:
    task = read_task(CONTEXT, "")
    assert task is not None
    assert task.tables() == ("order_lines", "products")


@pytest.mark.parametrize("context", ["", "Today is 2026-11-21.", '<pattern id="x/y">\n\nNo SQL\n\nText\n</pattern>'])
def test_no_pattern_with_sql_is_no_task(context: str) -> None:
    assert read_task(context, "") is None


@pytest.mark.parametrize(
    ("context", "today"),
    [(CONTEXT, date(2026, 11, 21)), ("", None), ("Today is 2026-13-45.", None), ("He said Today is 2026-11-21.", None)],
)
def test_today_is_read_from_its_own_line(context: str, today: date | None) -> None:
    assert read_today(context) == today


@pytest.mark.parametrize(
    ("rest", "query"),
    [
        ("best products", "LIMIT"),
        ("units sold", "stock"),
        ("quantity", "stock"),
        ("by the unit price per day", "stock"),
    ],
)
def test_the_question_chooses_the_template(rest: str, query: str) -> None:
    task = read_task(CONTEXT, rest)
    assert task is not None
    assert query in task.sql


def worded(columns: list[str], *rows: list[object], slots: Slots = NOTHING, truncated: bool = False) -> str:
    task = read_task(CONTEXT, "")
    assert task is not None
    return answer(task, slots, {"columns": columns, "rows": list(rows), "truncated": truncated})


def test_money_has_two_decimals_and_counts_have_none() -> None:
    text = worded(
        ["product", "revenue", "units", "share_percent"], ["Tent", 1234567, 3210.0, 12.345], ["Lamp", 1, 2, 3]
    )
    assert "1. Tent: revenue 1,234,567.00, units 3,210, share 12.3 %" in text
    assert "2. Lamp: revenue 1.00, units 2, share 3.0 %" in text


def test_a_single_row_of_figures_is_not_numbered() -> None:
    assert "\norders 3, average order value 5.50\n" in worded(["orders", "average_order_value"], [3, 5.5])


def test_a_missing_value_is_named_as_missing() -> None:
    assert "change none" in worded(["year", "change"], ["2025", None])


def test_no_rows_are_said_and_not_filled() -> None:
    assert "gave no rows" in worded(["product", "revenue"])


def test_many_rows_are_counted_instead_of_listed() -> None:
    text = worded(["product", "units"], *([f"p{n}", n] for n in range(60)), truncated=True)
    assert "40. p39" in text
    assert "p40" not in text
    assert "60 came back, cut" in text


def test_the_answer_names_pattern_and_period() -> None:
    slots = read("last year", date(2026, 11, 21))
    text = worded(["product", "units"], ["Tent", 1], slots=slots)
    assert 'For 2025-01-01 to 2025-12-31 (last year), by the pattern "Best sellers" (sql/top_n):' in text
    assert "Over all dates on record" in worded(["product", "units"], ["Tent", 1])


def test_what_the_pattern_cannot_take_is_told() -> None:
    slots = read("the 5 units of 2025", date(2026, 11, 21))
    task = read_task(CONTEXT, slots.rest)
    assert task is not None
    text = answer(task, slots, {"columns": ["a"], "rows": [["x"]]})
    assert "no place for the period (2025) and the number 5" in text


@pytest.mark.parametrize("content", ["", "Tool failed", "[]", '{"rows": 1}', "[Large dataset stored: ref_1]", "null"])
def test_a_text_that_is_no_table_is_no_result(content: str) -> None:
    assert read_result(content) is None


def test_missing_tables_are_those_the_database_did_not_list() -> None:
    listed = '{"tables": [{"name": "Orders", "columns": 3}]}'
    assert missing_tables(("orders", "products"), listed) == ("products",)


@pytest.mark.parametrize("content", ["", "no JSON", "[]", '{"tables": [1]}', '{"tables": null}'])
def test_an_unreadable_list_of_tables_blocks_nothing(content: str) -> None:
    assert missing_tables(("orders",), content) == ()


def test_a_result_is_read_inside_its_fence_with_or_without_a_note_behind_it() -> None:
    fenced = '<data kqrbcd>\n{"columns": ["n"], "rows": [[1]]}\n</data kqrbcd>'
    assert read_result(unfenced(fenced)) == read_result(unfenced(f"{fenced}\n[Loom: …]")) == read_result(fenced[14:-15])
    assert unfenced("plain") == "plain"
