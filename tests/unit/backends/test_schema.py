import pytest

from loom_worker.backends.schema import MAX_DESCRIPTION_CHARS, Table, describe, hint, near

ORDERS = Table("orders", (("id", "INTEGER"), ("total", "REAL"), ("placed_on", "DATE")), ("id",), ())
LINES = Table("lines", (("order_id", "INTEGER"), ("revenue", "")), (), (("order_id", "orders.id"),))


def test_a_table_is_one_line_with_its_keys() -> None:
    assert ORDERS.line() == "orders(id INTEGER PK, total REAL, placed_on DATE)"
    assert LINES.line() == "lines(order_id INTEGER -> orders.id, revenue)"


def test_a_large_schema_names_the_tables_it_cannot_describe() -> None:
    tables = [
        Table(f"t{number:04}", tuple((f"column_{n}", "TEXT") for n in range(20)), (), ()) for number in range(200)
    ]
    text = describe(tables, "sqlite")
    assert len(text) < 2.5 * MAX_DESCRIPTION_CHARS
    assert "t0000(column_0 TEXT" in text
    assert "t0199" in text.splitlines()[-1]
    assert text.splitlines()[-1].startswith("Further tables")


def test_the_likeliest_name_comes_first() -> None:
    assert near("Revnue", ["id", "revenue", "total"])[0] == "revenue"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("no such column: revnue", "no such column: revnue; columns of lines: revenue, "),
        ("no such column: o.totl", "no such column: o.totl; columns of orders: total, "),
        ("no such table: order", "no such table: order; tables: orders, lines"),
        ('near "FORM": syntax error', 'near "FORM": syntax error'),
    ],
)
def test_a_hint_names_what_was_probably_meant(message: str, said: str) -> None:
    assert hint(message, "SELECT x FROM orders o JOIN lines l", (LINES, ORDERS)).startswith(said)


def test_only_tables_of_the_statement_are_proposed() -> None:
    assert "orders" not in hint("no such column: totl", "SELECT totl FROM lines", (LINES, ORDERS))
    assert hint("no such column: x", "SELECT x", (LINES, ORDERS)) == "no such column: x"
