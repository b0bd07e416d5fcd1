import pytest

from loom_worker.backends.hints import hint, near, unknown
from loom_worker.backends.schema import Table

ORDERS = Table("orders", (("id", "INTEGER"), ("total", "REAL"), ("placed_on", "DATE")), ("id",), ())
LINES = Table("lines", (("order_id", "INTEGER"), ("revenue", "")), (), (("order_id", "orders.id"),))


@pytest.mark.cases(
    ("message", "said"),
    [
        ("no such table: main.x", "no such table: x"),
        ('relation "sales.x" does not exist', "no such table: sales.x"),
        ('column "totl" does not exist', "no such column: totl"),
        ("column o.totl does not exist", "no such column: o.totl"),
        ("Table 'shop.x' doesn't exist", "no such table: x"),
        ("Unknown column 'o.totl' in 'SELECT'", "no such column: o.totl"),
        ("Catalog Error: Table with name x does not exist!", "no such table: x"),
        ('Binder Error: Referenced column "totl" not found in FROM clause!', "no such column: totl"),
        ('Binder Error: Table "o" does not have a column named "totl"', "no such column: totl"),
        ('syntax error at or near "FORM"', None),
        ("the column was told it does not exist", None),
    ],
)
def test_every_database_says_it_in_the_same_words(message: str, said: str | None) -> None:
    assert unknown(message) == said


def test_where_nothing_may_be_read_nothing_is_proposed() -> None:
    assert hint("no such table: x", "", ()) == "no such table: x; there are no tables you may read"


def test_the_likeliest_name_comes_first() -> None:
    assert near("Revnue", ["id", "revenue", "total"])[0] == "revenue"


@pytest.mark.cases(
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
