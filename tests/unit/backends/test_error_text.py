import pytest
from sqlalchemy.exc import NoSuchModuleError, OperationalError, ProgrammingError

from loom_worker.backends.error_text import hint, near, translated, unknown
from loom_worker.backends.results import TooWide
from loom_worker.backends.schema import Table
from loom_worker.core.errors import ToolFailed

NO_SUCH = 'Binder Error: Referenced column "x" not found in FROM clause!\nCandidate bindings: "secret"\n\nLINE 1: x'
TIMEOUT = "canceling statement due to statement timeout"
NO_FUNCTION = 'Catalog Error: Scalar Function with name f does not exist!\nDid you mean "secret"?'


def failed(*arguments: object) -> OperationalError:
    return OperationalError("SELECT", None, Exception(*arguments))


@pytest.mark.cases(
    ("error", "said", "code"),
    [
        (ProgrammingError("SELECT", None, Exception(NO_SUCH)), "no such column: x", "INVALID_INPUT"),
        (ProgrammingError("SELECT", None, Exception(NO_FUNCTION)), "Catalog Error: Scalar Function", "INVALID_INPUT"),
        (failed(1054, "Unknown column 'x' in 'SELECT'"), "no such c", "INVALID_INPUT"),
        (failed(1969, "(max_statement_time exceeded)"), "took longer than 2 s", "DATABASE_ERROR"),
        (failed(TIMEOUT), "took longer", "DATABASE_ERROR"),
        (failed(1021, "Disk full"), "Disk full", "DATABASE_ERROR"),
        (OperationalError("x", None, Exception("gone"), connection_invalidated=True), "does not answer", "UNAVAILABLE"),
        (NoSuchModuleError("x"), "does not answer: NoSuchModuleError", "UNAVAILABLE"),
        (TooWide("too many columns"), "too many columns", "INVALID_INPUT"),
    ],
)  # fmt: skip
def test_a_complaint_is_told_in_the_databases_words_and_none_of_its_proposals(
    error: Exception, said: str, code: str
) -> None:
    with pytest.raises(ToolFailed, match=said) as caught, translated(2):
        raise error
    assert caught.value.code == code
    assert "secret" not in str(caught.value)


def test_a_server_that_cannot_be_reached_is_unavailable() -> None:
    with pytest.raises(ToolFailed, match="does not answer: connection refused") as caught, translated(2):
        raise OperationalError(None, None, Exception("connection refused"))
    assert caught.value.code == "UNAVAILABLE"


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
