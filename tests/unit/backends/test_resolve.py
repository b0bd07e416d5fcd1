import pytest

from loom_worker.backends.parse import Missing, judge, parse
from loom_worker.backends.schema import Table, TableCatalog, narrow
from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.agents import Scope
from tests.support.sql_attacks import SPIES, Attack

KINDS = ("postgresql", "mysql", "duckdb")


def table(name: str, *columns: str, schema: str = "main", is_default: bool = True) -> Table:
    return Table(name, tuple((column, "INTEGER") for column in columns), (), (), schema, is_default)


TABLES = (
    table("customers", "id", "name", "email"),
    table("orders", "id", "customer_id", "total", "email"),
    table("order_totals", "customer_id", "total"),
    table("secrets", "id", "token"),
    table("all_secrets", "token"),
    table("salaries", "id", "pay", schema="hr", is_default=False),
)
SCOPE = Scope(tables=("customers", "orders", "order_totals"), columns=("customers.id", "customers.name"))


def catalog(kind: str, scope: Scope = SCOPE) -> TableCatalog:
    return narrow(TABLES, scope, kind)


def verdict(sql: str, kind: str, scope: Scope = SCOPE) -> str:
    """Empty for what may run, else what is said against it."""
    try:
        judge(parse(sql, kind).tree, catalog(kind, scope))
    except (Missing, ToolFailed) as error:
        return str(error)
    return ""


@pytest.mark.cases("kind", KINDS)
@pytest.mark.cases(
    "sql",
    [
        "SELECT id, name FROM customers",
        "SELECT c.name, o.email FROM customers AS c JOIN orders AS o ON o.customer_id = c.id",
        "SELECT o.* FROM orders o",
        "SELECT * FROM order_totals",
        "SELECT count(*) FROM customers",
        "SELECT * FROM (SELECT id, name FROM customers) AS x",
        "WITH x AS (SELECT id FROM customers), y AS (SELECT * FROM x) SELECT * FROM y JOIN x ON x.id = y.id",
        "SELECT name FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id)",
        "SELECT name, (SELECT max(total) FROM orders WHERE customer_id = customers.id) AS best FROM customers",
        "SELECT name AS who, count(*) AS n FROM customers GROUP BY name ORDER BY n DESC, who",
        "SELECT upper(name) AS who FROM customers ORDER BY who",
        "SELECT id FROM customers UNION ALL SELECT total FROM orders ORDER BY 1",
        "SELECT x.email FROM (SELECT email FROM orders) AS x",
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 9) SELECT n, name FROM c, customers",
        "SELECT id FROM customers JOIN (SELECT customer_id AS id FROM orders) o USING (id)",
        "WITH p AS (SELECT id, name AS n FROM customers), q AS (SELECT p.* FROM p) SELECT n FROM q ORDER BY n, id",
        "SELECT rank() OVER (PARTITION BY name ORDER BY id) FROM customers",
    ],
)
def test_what_may_be_read_is_read(sql: str, kind: str) -> None:
    assert verdict(sql, kind) == ""


@pytest.mark.cases("attack", SPIES, ids=lambda attack: attack.name)
def test_a_spy_is_refused_before_it_reaches_a_server(attack: Attack) -> None:
    for kind in set(attack.kinds) & set(KINDS):
        if attack.name != "explain":  # which the backend refuses wherever there is a scope
            assert verdict(attack.sql, kind), kind


@pytest.mark.cases("attack", SPIES, ids=lambda attack: attack.name)
def test_nothing_that_is_said_against_a_spy_names_what_it_did_not_name_itself(attack: Attack) -> None:
    for kind in set(attack.kinds) & set(KINDS):
        said = verdict(attack.sql, kind)
        for name in ("email", "secrets", "token", "salaries"):
            assert name not in said.lower() or name in attack.sql.lower()


@pytest.mark.cases(
    ("sql", "said"),
    [
        ("SELECT id FROM secrets", "no such table: secrets"),
        ("SELECT id FROM main.secrets", "no such table: main.secrets"),
        ("SELECT email FROM customers", "no such column: email"),
        ("SELECT c.email FROM customers c", "no such column: email"),
        ("SELECT * FROM customers", "not all columns of customers may be read: instead of * name some of: id, name"),
        ("WITH orders AS (SELECT 1) SELECT * FROM orders", "name the WITH otherwise: orders is a table"),
        ("SELECT c.id FROM customers c NATURAL JOIN orders", "join by ON with columns that may be read"),
    ],
)
def test_a_refusal_says_what_would_be_right(sql: str, said: str) -> None:
    assert verdict(sql, "postgresql") == said


def test_an_inner_hidden_column_is_not_taken_for_an_outer_visible_one() -> None:
    assert verdict("SELECT (SELECT email FROM customers LIMIT 1) FROM orders", "postgresql") == "no such column: email"


def test_a_with_is_known_only_after_it_stands() -> None:
    scope = Scope(tables=("customers", "orders"))
    assert verdict("WITH a AS (SELECT * FROM b), b AS (SELECT 1 AS x) SELECT * FROM a", "postgresql", scope)
    assert verdict("SELECT * FROM (WITH b AS (SELECT 1 AS x) SELECT * FROM b) q, b", "postgresql", scope)
    assert verdict("WITH b AS (SELECT 1 AS x), a AS (SELECT * FROM b) SELECT * FROM a", "postgresql", scope) == ""


def test_postgresql_folds_what_is_not_quoted_and_mysql_nothing() -> None:
    everything = Scope()
    assert verdict("SELECT ID FROM ORDERS", "postgresql", everything) == ""
    assert verdict('SELECT id FROM "ORDERS"', "postgresql", everything) == "no such table: ORDERS"
    assert verdict("SELECT id FROM ORDERS", "mysql", everything) == "no such table: ORDERS"
    assert verdict('SELECT id FROM "ORDERS"', "duckdb", everything) == ""


def test_another_schema_is_read_by_its_name_alone() -> None:
    everything = Scope()
    assert verdict("SELECT pay FROM hr.salaries", "postgresql", everything) == ""
    assert verdict("SELECT pay FROM salaries", "postgresql", everything) == "no such table: salaries"
    assert verdict("SELECT pay FROM x.hr.salaries", "postgresql", everything) == "no such table: x.hr.salaries"
    assert verdict("SELECT 1 FROM information_schema.tables", "postgresql", everything)
