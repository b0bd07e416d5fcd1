"""What the tools do with each kind of database."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import create_engine

from loom_worker.backends.sql import SqlBackend
from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.agents import Scope
from tests.support.mariadb import MariaDb
from tests.support.postgres import Postgres, ServerProcess
from tests.support.sql_attacks import CANARY
from tests.support.sql_world import SCOPE, World, ask
from tests.support.until import AT_ONCE_S

pytestmark = [pytest.mark.integration, pytest.mark.heavy, pytest.mark.takes(26)]


@pytest.fixture
def backend(world: World) -> Iterator[SqlBackend]:
    with closing(world.backend(timeout_s=10)) as made:
        yield made


@pytest.fixture
def scoped(world: World) -> Iterator[SqlBackend]:
    with closing(world.backend(scope=SCOPE, timeout_s=10)) as made:
        yield made


def rows(backend: SqlBackend, sql: str, **more: Any) -> Any:
    return json.loads(ask(backend, "execute_sql", sql=sql, **more))["rows"]


def refusal(backend: SqlBackend, sql: str, **more: Any) -> str:
    with pytest.raises(ToolFailed) as caught:
        ask(backend, "execute_sql", sql=sql, **more)
    assert caught.value.code == "INVALID_INPUT", caught.value
    return str(caught.value)


def test_tables_are_listed_and_described_with_their_keys(world: World, backend: SqlBackend) -> None:
    listed = [table["name"] for table in json.loads(ask(backend, "list_tables"))["tables"]]
    assert [name for name in listed if "." not in name] == sorted(
        ["all_secrets", "customers", "order_totals", "orders", "secrets", *(["numbers"] if "numbers" in listed else [])]
    )
    orders = json.loads(ask(backend, "get_schema", tables=["orders"]))["tables"][0]
    assert orders["primary_key"] == ["id"]
    assert orders["foreign_keys"] == ["customer_id -> customers.id"]
    assert [column["name"] for column in orders["columns"]] == ["id", "customer_id", "total"]
    assert backend.describe() == backend.describe()
    assert "orders(id INTEGER PK, customer_id INTEGER -> customers.id" in backend.describe().replace("(11)", "")


def test_another_schema_is_shown_by_its_name(world: World) -> None:
    if world.kind == "sqlite":
        pytest.skip("a SQLite file has one schema")
    schemas = {"mysql": ("shop", "hr")}.get(world.kind)
    with closing(world.backend(scope=Scope(schemas=schemas))) as backend:
        assert "hr.salaries(id" in backend.describe()
        assert rows(backend, "SELECT s.id FROM hr.salaries AS s JOIN orders AS o ON o.id = s.id") == [[1]]


def test_a_scope_of_schemas_hides_the_default_one(world: World) -> None:
    if world.kind == "sqlite":
        pytest.skip("a SQLite file has one schema")
    with closing(world.backend(scope=Scope(schemas=("hr",)))) as backend:
        assert [table["name"] for table in json.loads(ask(backend, "list_tables"))["tables"]] == ["hr.salaries"]
        assert refusal(backend, "SELECT id FROM orders").startswith("no such table: orders; tables: hr.salaries")


def test_what_is_out_of_scope_is_described_nowhere(scoped: SqlBackend) -> None:
    told = scoped.describe() + ask(scoped, "list_tables") + ask(scoped, "get_schema", tables=["customers", "orders"])
    assert not [word for word in ("secret", "email", "salaries") if word in told]
    with pytest.raises(ToolFailed, match="no such table: secrets; tables: ") as caught:
        ask(scoped, "get_schema", tables=["secrets"])
    assert "all_secrets" not in str(caught.value)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT name FROM customers ORDER BY id", [["Ada 100%"], ["Bo"]]),
        ("SELECT c.name, sum(o.total) AS sold FROM customers c JOIN orders o ON o.customer_id = c.id "
         "GROUP BY c.name ORDER BY sold DESC", [["Bo", 1100 - 100], ["Ada 100%", 1100]]),
        ("SELECT * FROM order_totals ORDER BY 1", [[1, 1100], [2, 1000]]),
        ("SELECT count(*) FROM customers WHERE name LIKE '%100%'", [[1]]),
        ("WITH big AS (SELECT customer_id, total FROM orders WHERE total > 190) SELECT * FROM big", [[1, 200]]),
        ("WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 4) SELECT sum(n) FROM c", [[10]]),
        ("SELECT id, rank() OVER (ORDER BY total DESC) AS place FROM orders ORDER BY place LIMIT 1", [[20, 1]]),
        ("SELECT c.id FROM customers c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id)", []),
        ("SELECT upper(coalesce(max(name), '')) -- the last\nFROM customers;", [["BO"]]),
        ("SELECT name AS who FROM customers GROUP BY name ORDER BY who DESC LIMIT 1", [["Bo"]]),
        ("SELECT id FROM customers UNION SELECT customer_id FROM orders ORDER BY 1", [[1], [2]]),
        ("SELECT v.a FROM (SELECT 1 AS a UNION ALL SELECT 2) AS v ORDER BY v.a", [[1], [2]]),
    ],
)  # fmt: skip
def test_ordinary_analysis_works_within_a_scope_of_columns(
    scoped: SqlBackend, sql: str, expected: list[list[object]]
) -> None:
    if "sum(o.total)" in sql:
        expected = [["Ada 100%", 1100], ["Bo", 1000]]
    found = [[int(cell) if isinstance(cell, float) else cell for cell in row] for row in rows(scoped, sql)]
    assert found == expected


def test_everything_readable_is_read_without_a_scope(backend: SqlBackend) -> None:
    assert rows(backend, "SELECT * FROM secrets") == [[1, CANARY]]
    assert rows(backend, "SELECT email FROM customers WHERE id = 1") == [[CANARY]]


def test_parameters_are_bound_by_name_and_by_place(backend: SqlBackend) -> None:
    by_name = "SELECT name FROM customers WHERE name = :who OR id = :id ORDER BY id"
    assert rows(backend, by_name, parameters={"who": "x' OR '1'='1", "id": 2}) == [["Bo"]]
    by_place = "SELECT id, ? AS said FROM customers WHERE name LIKE '%100%' AND id < ?"
    assert rows(backend, by_place, parameters=["50%s", 2]) == [[1, "50%s"]]
    assert rows(backend, "SELECT count(*) FROM customers WHERE name <> ':who' AND id <> :id", parameters={"id": 7}) == [
        [2]
    ]


def test_parameters_that_do_not_fit_are_refused(scoped: SqlBackend) -> None:
    assert "2 parameters" in refusal(scoped, "SELECT name FROM customers WHERE id = ?", parameters=[1, 2])
    assert ":nobody" in refusal(scoped, "SELECT name FROM customers WHERE id = 1", parameters={"nobody": 1})
    assert "parameter" in refusal(scoped, "SELECT name FROM customers WHERE id = :id")


def test_rows_and_bytes_are_capped_and_the_cap_is_told(world: World) -> None:
    with closing(world.backend(max_rows=3)) as backend:
        result = json.loads(ask(backend, "execute_sql", sql="SELECT id FROM orders ORDER BY id"))
        assert (result["rows"], result["row_count"], result["truncated"]) == ([[1], [2], [3]], 3, True)
    with closing(world.backend(max_result_bytes=120)) as backend:
        text = ask(backend, "execute_sql", sql="SELECT id FROM orders ORDER BY id")
        assert len(text.encode()) <= 120
        assert json.loads(text)["truncated"]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT totl FROM orders", "no such column: totl; columns of orders: total"),
        ("SELECT o.custmer_id FROM orders o", "custmer_id; columns of orders: customer_id"),
        ("SELECT id FROM ordres", "no such table: ordres; tables: orders"),
        ('SELECT sum("totl") FROM orders', "columns of orders: total"),
        ('SELECT "name" FROM "customers" WHERE "name" = "Bo"', "no such column: Bo (in double quotes it is a name"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(backend: SqlBackend, sql: str, said: str) -> None:
    assert said in refusal(backend, sql)


def test_hidden_columns_are_not_among_the_nearest(scoped: SqlBackend) -> None:
    said = refusal(scoped, "SELECT c.emial FROM customers c")
    assert "columns of customers: " in said
    assert "email" not in said
    assert "no such column: email" in refusal(scoped, "SELECT email FROM customers")


def test_a_name_in_double_quotes_is_a_name(scoped: SqlBackend) -> None:
    assert rows(scoped, 'SELECT count(*) AS "all of" FROM "orders" WHERE "total" > 10 ORDER BY "all of"') == [[19]]
    assert "no such column: email" in refusal(scoped, 'SELECT "email" FROM customers')


def test_a_plan_is_shown_where_nothing_is_hidden(backend: SqlBackend) -> None:
    assert rows(backend, "EXPLAIN SELECT id FROM orders WHERE total > 5")


def test_many_rows_come_whole(backend: SqlBackend) -> None:
    sql = "SELECT a.id, b.id AS other, 'a text of some length' AS text FROM orders a, orders b, orders c ORDER BY 1, 2"
    result = json.loads(ask(backend, "execute_sql", sql=sql))
    assert (result["row_count"], result["truncated"]) == (8000, False)


def test_a_table_made_after_the_schema_was_read_is_found(postgres: Postgres, mariadb: MariaDb) -> None:
    for url in (postgres.url, mariadb.url):
        with closing(SqlBackend(url)) as backend:
            before = backend.describe()
            engine = create_engine(url)
            with engine.begin() as connection:
                connection.exec_driver_sql("CREATE TABLE brand_new (a INTEGER)")
            try:
                assert rows(backend, "SELECT count(*) FROM brand_new") == [[0]]
                assert backend.describe() != before
            finally:
                with engine.begin() as connection:
                    connection.exec_driver_sql("DROP TABLE brand_new")
                engine.dispose()


def test_a_table_with_a_name_in_capitals_is_one_of_its_own(postgres: Postgres) -> None:
    engine = create_engine(postgres.url)
    with engine.begin() as connection:
        connection.exec_driver_sql('CREATE TABLE "Mixed" ("Case" INTEGER, plain INTEGER)')
        connection.exec_driver_sql('CREATE TABLE mixed ("Case" INTEGER)')
    try:
        with closing(SqlBackend(postgres.url, scope=Scope(tables=("Mixed",), columns=("Mixed.Case",)))) as backend:
            assert rows(backend, 'SELECT "Case" FROM "Mixed"') == []
            assert "no such table: mixed" in refusal(backend, 'SELECT "Case" FROM Mixed')
            assert "no such column: plain" in refusal(backend, 'SELECT plain FROM "Mixed"')
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql('DROP TABLE "Mixed", mixed')
        engine.dispose()


_CHILD = """
import json, sys
from loom_worker.backends.sql import SqlBackend
from tests.support.callers import CALLER
order = json.load(sys.stdin)
tool = next(tool for tool in SqlBackend.from_origin(order["origin"]).tools() if tool.spec.name == "execute_sql")
print(tool.run({"sql": "SELECT count(*) FROM orders"}, CALLER), flush=True)
"""


@contextlib.contextmanager
def child_of(backend: SqlBackend) -> Iterator["subprocess.Popen[str]"]:
    """A process that builds the same backend from a tool's origin and asks it."""
    command = [sys.executable, "-c", _CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        json.dump({"origin": backend.tools()[0].origin}, child.stdin)
        child.stdin.close()
        try:
            yield child
        finally:
            child.kill()


def test_a_child_process_builds_the_same_backend_from_the_origin(world: World, scoped: SqlBackend) -> None:
    if world.kind == "sqlite":
        assert scoped.tools()[2].origin is None
        return
    with child_of(scoped) as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline())["rows"] == [[20]]


def hanging(server: ServerProcess, url: str) -> None:
    with closing(SqlBackend(url, timeout_s=1)) as backend:
        with server.frozen(), child_of(backend) as child:
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(2)
            child.kill()
            child.wait(60)
        assert rows(backend, "SELECT 1") == [[1]]


def test_a_server_that_hangs_costs_a_child_and_nothing_else(postgres: Postgres) -> None:
    hanging(postgres, postgres.url)


def test_a_mariadb_that_hangs_is_given_up_even_without_a_child(mariadb: MariaDb) -> None:
    with closing(SqlBackend(mariadb.url, timeout_s=0.5)) as backend:
        assert rows(backend, "SELECT 1") == [[1]]
        start = time.monotonic()
        with mariadb.frozen(), pytest.raises(ToolFailed):
            ask(backend, "execute_sql", sql="SELECT 2")
        assert time.monotonic() - start < AT_ONCE_S
        assert rows(backend, "SELECT 3") == [[3]]


def test_a_server_that_is_not_there_is_unavailable_and_its_password_unsaid() -> None:
    for driver in ("postgresql+psycopg", "mysql+pymysql"):
        backend = SqlBackend(f"{driver}://loom:s3cret@127.0.0.1:1/shop")
        with pytest.raises(ToolFailed, match="does not answer") as caught:
            ask(backend, "execute_sql", sql="SELECT 1")
        assert caught.value.code == "UNAVAILABLE"
        assert "s3cret" not in str(caught.value)
        assert "s3cret" not in backend.tools()[0].group
