import contextlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from loom_worker.backends.sql import SqlBackend
from loom_worker.core.errors import BadSettings, ToolFailed
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.values.agents import Scope
from tests.support.callers import CALLER
from tests.support.disks import unwritable


def backend_of(path: Path, **settings: Any) -> SqlBackend:
    return SqlBackend(f"sqlite:///{path}", **settings)


def run(backend: SqlBackend, name: str, **arguments: object) -> Any:
    """Check the arguments as the registry would, run the tool, read its JSON."""
    tool = next(tool for tool in backend.tools() if tool.spec.name == name)
    jsonschema.validate(arguments, dict(tool.spec.input_schema))
    return json.loads(tool.run(arguments, CALLER))


@pytest.fixture(scope="module")
def backend(shop_path: Path) -> Iterator[SqlBackend]:
    with contextlib.closing(backend_of(shop_path)) as made:
        yield made


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(
            """CREATE TABLE parent (a INTEGER, b TEXT, PRIMARY KEY (a, b));
               CREATE TABLE child (id INTEGER PRIMARY KEY, a INTEGER, b TEXT, odd,
                                   FOREIGN KEY (a, b) REFERENCES parent (a, b));
               CREATE VIEW both AS SELECT id, child.b FROM child JOIN parent USING (a);
               INSERT INTO parent VALUES (1, 'x');
               INSERT INTO child VALUES (1, 1, 'x', x'0102');"""
        )
    return path


def test_tables_are_listed_by_name_with_their_columns_counted(backend: SqlBackend) -> None:
    listed = run(backend, "list_tables")
    assert list(listed) == ["tables"]
    assert {"name": "orders", "columns": 7} in listed["tables"]
    names = [table["name"] for table in listed["tables"]]
    assert names == sorted(names)
    assert len(names) == 11


def test_a_schema_tells_columns_types_and_keys(backend: SqlBackend) -> None:
    assert run(backend, "get_schema", tables=["order_lines"]) == {
        "tables": [
            {
                "name": "order_lines",
                "columns": [
                    {"name": "id", "type": "INTEGER"},
                    {"name": "order_id", "type": "INTEGER"},
                    {"name": "product_id", "type": "INTEGER"},
                    {"name": "quantity", "type": "INTEGER"},
                    {"name": "unit_price", "type": "REAL"},
                    {"name": "discount", "type": "REAL"},
                ],
                "primary_key": ["id"],
                "foreign_keys": ["order_id -> orders.id", "product_id -> products.id"],
            }
        ]
    }


def test_composite_keys_views_and_columns_without_type_are_told(small: Path) -> None:
    tables = run(backend_of(small), "get_schema", tables=["parent", "child", "both", "child"])["tables"]
    assert [table["name"] for table in tables] == ["parent", "child", "both"]
    assert tables[0]["primary_key"] == ["a", "b"]
    assert tables[1]["foreign_keys"] == ["a -> parent.a", "b -> parent.b"]
    assert [column["name"] for column in tables[2]["columns"]] == ["id", "b"]


def test_a_query_answers_with_exactly_four_fields(backend: SqlBackend) -> None:
    assert run(backend, "execute_sql", sql="SELECT id, name FROM categories ORDER BY id LIMIT 2; -- two") == {
        "columns": ["id", "name"],
        "rows": [[1, "Garden"], [2, "Kitchen"]],
        "row_count": 2,
        "truncated": False,
    }


def test_the_best_sellers_of_last_year_are_found(backend: SqlBackend) -> None:
    sql = """
        WITH sold AS (
            SELECT l.product_id, sum(l.quantity * l.unit_price * (1 - l.discount)) AS revenue
            FROM order_lines l JOIN orders o ON o.id = l.order_id
            WHERE o.ordered_at >= '2025-01-01' AND o.ordered_at < '2026-01-01' GROUP BY 1)
        SELECT p.name, round(revenue, 2), rank() OVER (ORDER BY revenue DESC) AS place
        FROM sold JOIN products p ON p.id = product_id ORDER BY place LIMIT 3"""
    assert run(backend, "execute_sql", sql=sql)["rows"] == [
        ["Mossby Studio Microphone", 38610.6, 1],
        ["Dellmark Head Torch", 33577.05, 2],
        ["Larkmere Headphones", 33364.03, 3],
    ]


def test_rows_are_capped_and_the_cap_is_told(shop_path: Path) -> None:
    result = run(backend_of(shop_path, max_rows=7), "execute_sql", sql="SELECT * FROM order_lines")
    assert (result["row_count"], len(result["rows"]), result["truncated"]) == (7, 7, True)


def test_bytes_are_capped_and_the_cap_is_told(shop_path: Path) -> None:
    backend = backend_of(shop_path, max_rows=10_000, max_result_bytes=3000)
    tool = backend.tools()[2]
    text = tool.run({"sql": "SELECT * FROM customers"}, CALLER)
    assert 2500 < len(text.encode()) <= 3000
    assert json.loads(text)["truncated"]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT quantty FROM order_lines", "no such column: quantty; columns of order_lines: quantity, "),
        ("SELECT l.pryce FROM orders o JOIN order_lines l", "no such column: l.pryce; columns of order_lines: unit_p"),
        ("SELECT * FROM costumers", "no such table: costumers; tables: customers, "),
        ("SELECT FROM orders", 'near "FROM": syntax error'),
    ],
)
def test_a_mistake_is_answered_with_what_would_have_been_right(backend: SqlBackend, sql: str, expected: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        run(backend, "execute_sql", sql=sql)
    assert str(caught.value.args[0]).startswith(expected)
    assert caught.value.code == "INVALID_INPUT"


QUOTING = """CREATE TABLE invoice (id INTEGER PRIMARY KEY, total REAL, "a ""b"" `c` [d", country TEXT);
    INSERT INTO invoice VALUES (1, 5, 'odd', 'Brazil'), (2, 2, 'odd', 'say "totall"');
    CREATE VIEW brazil AS SELECT id, "a text" AS said FROM invoice WHERE country = "Brazil";"""
UNKNOWN = {
    "Totall": 'SELECT sum("Totall") FROM invoice',
    'the "total"': 'SELECT count(*) FROM invoice WHERE "the ""total""" = \'Brazil\'',
    "to`tal": 'SELECT /* "id" */ \'"id"\', "id", "to`tal" AS "id" FROM invoice -- "id"',
    "id": 'WITH "t t" AS (SELECT "total" FROM invoice) SELECT "id" FROM "t t" ORDER BY "total"',
    "$.a": "SELECT json_extract('{}', \"$.a\") FROM invoice WHERE country LIKE '%a%'",
}
KNOWN = (
    ('SELECT "a ""b"" `c` [d", sum("total") + 1 FROM "invoice"', ['a "b" `c` [d', 'sum("total") + 1'], ["odd", 8]),
    ('SELECT sum(id) OVER "w w" AS "s s" FROM invoice WINDOW "w w" AS (ORDER BY "id") ORDER BY "s s"', ["s s"], [1]),
    ('SELECT "i"."rowid" AS n FROM invoice "i" WHERE country = \'say "totall"\'', ["n"], [2]),
    ("SELECT * FROM brazil", ["id", "said"], [1, "a text"]),
)


@pytest.mark.parametrize("scope", [Scope(), Scope(tables=("invoice", "brazil"))])
def test_a_name_in_double_quotes_is_never_taken_for_a_text(tmp_path: Path, scope: Scope) -> None:
    backend = backend_of(tmp_path / "quoting.db", scope=scope)
    with contextlib.closing(sqlite3.connect(tmp_path / "quoting.db")) as connection:
        connection.executescript(QUOTING)
    for name, sql in UNKNOWN.items():
        with pytest.raises(ToolFailed) as caught:
            run(backend, "execute_sql", sql=sql)
        said = f"no such column: {name} (in double quotes it is a name; a text stands in single quotes); columns of "
        assert str(caught.value).startswith(said)
    for sql, columns, first in KNOWN:
        found = run(backend, "execute_sql", sql=sql)
        assert (found["columns"], found["rows"][0]) == (columns, first)


def test_names_of_columns_that_leave_no_room_for_a_row_are_refused(shop_path: Path) -> None:
    wide = "SELECT " + ", ".join(f"1 AS {'c' * 85}{n}" for n in range(200))
    with pytest.raises(ToolFailed, match="200 columns do not fit"):
        run(backend_of(shop_path, max_result_bytes=16 * 1024), "execute_sql", sql=wide)


def test_an_unknown_table_is_answered_with_the_likeliest_one(backend: SqlBackend) -> None:
    with pytest.raises(ToolFailed, match="no such table: product; tables: products, ") as caught:
        run(backend, "get_schema", tables=["orders", "product"])
    assert caught.value.code == "INVALID_INPUT"


@pytest.mark.parametrize("sql", ["DROP TABLE orders", "SELECT 1; SELECT 2", "ATTACH 'x' AS y", "VACUUM INTO 'x.db'"])
def test_what_writes_or_escapes_is_refused_before_it_reaches_the_database(backend: SqlBackend, sql: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        run(backend, "execute_sql", sql=sql)
    assert caught.value.code == "INVALID_INPUT"


def test_a_missing_file_is_named_and_not_made(tmp_path: Path) -> None:
    backend = backend_of(tmp_path / "gone.db")
    for ask in (
        backend.describe,
        lambda: run(backend, "list_tables"),
        lambda: run(backend, "execute_sql", sql="SELECT 1"),
    ):
        with pytest.raises(ToolFailed, match=r"gone\.db: no such file"):
            ask()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_a_failure_and_no_crash(tmp_path: Path) -> None:
    (tmp_path / "note.db").write_text("hello " * 500)
    with pytest.raises(ToolFailed, match="not a database") as caught:
        backend_of(tmp_path / "note.db").describe()
    assert caught.value.code == "DATABASE_ERROR"


def test_a_file_that_appears_or_changes_later_is_read_as_it_is_then(tmp_path: Path) -> None:
    path = tmp_path / "a b % c#.db"
    backend = SqlBackend(f"sqlite:///{path}")
    with pytest.raises(ToolFailed):
        backend.describe()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE first (a)")
        assert [table["name"] for table in run(backend, "list_tables")["tables"]] == ["first"]
        connection.execute("CREATE TABLE second (a)")
    assert run(backend, "execute_sql", sql="SELECT count(*) FROM second")["rows"] == [[0]]


def test_a_database_in_wal_mode_is_read_while_another_writes(small: Path) -> None:
    backend = backend_of(small)
    with contextlib.closing(sqlite3.connect(small, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO parent VALUES (2, 'y')")
        assert run(backend, "execute_sql", sql="SELECT count(*) FROM parent")["rows"] == [[1]]
        writer.execute("COMMIT")
        assert run(backend, "execute_sql", sql="SELECT count(*) FROM parent")["rows"] == [[2]]


def test_a_database_in_wal_mode_is_read_where_nothing_may_be_written_or_its_reader_is_told(small: Path) -> None:
    copy = small.parent / "copy"
    copy.mkdir()
    with contextlib.closing(sqlite3.connect(small, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("INSERT INTO parent VALUES (2, 'y')")
        for end in ("", "-wal"):
            (copy / f"left.db{end}").write_bytes(Path(f"{small}{end}").read_bytes())
    (copy / "whole.db").write_bytes(small.read_bytes())
    (copy / "whole.db-wal").touch()
    with unwritable(copy):
        assert "parent(a INTEGER PK" in backend_of(copy / "whole.db").describe()
        assert run(backend_of(copy / "whole.db"), "execute_sql", sql="SELECT count(*) FROM parent")["rows"] == [[2]]
        with pytest.raises(ToolFailed, match=r"changes in left\.db-wal"):
            backend_of(copy / "left.db").describe()


URLS = {
    "shop.db": ("shop.db", "shop.db?mode=ro", "../{here.name}/./shop.db?nolock=1", "file:shop.db?mode=ro&uri=true"),
    "two.db": ("{here}/two.db", "file:{here}/two.db?mode=rwc&uri=true", "file://localhost{here}/two.db?uri=true"),
    "why?.db": ("why?.db", "why?.db?mode=ro", "why%3F.db", "file:why%3F.db?uri=true&immutable=1"),
    "100% #1 ö&b=c [d].db": ("100% #1 ö&b=c [d].db", "file:100%25%20%231%20ö&b=c [d].db?mode=ro&uri=true"),
}


def test_a_url_names_its_file_whatever_stands_in_its_path(tmp_path: Path) -> None:
    for name, paths in URLS.items():
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as connection, connection:
            connection.execute("CREATE TABLE t (a)")
        for path in paths:
            backend = SqlBackend(f"sqlite:///{path.format(here=tmp_path)}", folder=tmp_path)
            assert run(backend, "list_tables") == {"tables": [{"name": "t", "columns": 1}]}
            assert run(backend, "execute_sql", sql="SELECT count(*) FROM t")["rows"] == [[0]]
    assert {each.name for each in tmp_path.iterdir()} == set(URLS)
    for name in (".", "gone.db", "n" * 300):
        with pytest.raises(BadSettings, match=re.escape(str(tmp_path / name))):
            SqlBackend(f"sqlite:///{name}", folder=tmp_path).check()


def test_a_closed_backend_opens_again_when_used(shop_path: Path) -> None:
    backend = backend_of(shop_path)
    before = backend.describe()
    backend.close()
    backend.close()
    assert backend.describe() == before


def test_the_description_is_the_same_in_every_process_and_names_every_table(small: Path) -> None:
    assert backend_of(small).describe() == (
        "SQL dialect: sqlite. Tables (PK: primary key, ->: refers to):\n"
        "both(id INTEGER, b TEXT)\n"
        "child(id INTEGER PK, a INTEGER -> parent.a, b TEXT -> parent.b, odd)\n"
        "parent(a INTEGER PK, b TEXT PK)"
    )


def test_a_schema_too_large_for_a_result_asks_for_fewer_tables(small: Path) -> None:
    with pytest.raises(ToolFailed, match="ask for fewer"):
        run(backend_of(small, max_result_bytes=300), "get_schema", tables=["parent", "child", "both"])


def test_a_list_too_large_for_a_result_says_that_it_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "wide.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        tables = "".join(f"CREATE TABLE table_{number:03} (a);" for number in range(60))
        connection.executescript(f"BEGIN; {tables} COMMIT;")
    listed = run(backend_of(path, max_result_bytes=1000), "list_tables")
    assert listed["truncated"]
    assert 10 < len(listed["tables"]) < 60


@pytest.mark.cases(
    ("url", "said"),
    [
        ("nonsense", "expected a SQLAlchemy URL"),
        ("sqlite://", "expected a file"),
        ("sqlite:///:memory:", "expected a file"),
        ("sqlite:///file::memory:?uri=true", "expected a file"),
        ("sqlite:///file:x?mode=memory&uri=true", "expected a file"),
        ("mssql+pyodbc://sa:secret@host/db", "mssql is not served"),
        ("://sa:secret@", "expected a SQLAlchemy URL"),
    ],
)
def test_a_url_that_cannot_be_served_is_refused_at_once_and_without_its_password(url: str, said: str) -> None:
    with pytest.raises(BadSettings, match=said) as caught:
        SqlBackend(url)
    assert "LOOM_BACKEND_URL" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "package"),
    [
        ("postgresql+psycopg://u:secret@localhost/x", "psycopg"),
        ("mysql+pymysql://u:secret@localhost/x", "pymysql"),
        ("duckdb:////data/x.duckdb", "duckdb-engine"),
    ],
)
def test_a_missing_driver_is_named_with_the_package_that_brings_it(
    url: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("psycopg", "pymysql", "duckdb_engine"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BadSettings, match=f"LOOM_BACKEND_URL.*pip install '{package}") as caught:
        SqlBackend(url).describe()
    assert "secret" not in str(caught.value)


SCOPE = Scope(tables=("customers", "orders"), columns=("customers.id", "customers.country"))


@pytest.fixture(scope="module")
def scoped(shop_path: Path) -> SqlBackend:
    return backend_of(shop_path, scope=SCOPE)


def test_a_scope_hides_tables_and_columns_from_every_tool(scoped: SqlBackend) -> None:
    assert run(scoped, "list_tables") == {
        "tables": [{"name": "customers", "columns": 2}, {"name": "orders", "columns": 7}]
    }
    assert "email" not in scoped.describe() + str(run(scoped, "get_schema", tables=["customers"]))
    found = run(scoped, "execute_sql", sql="SELECT country, count(*) FROM customers GROUP BY 1 ORDER BY 1 LIMIT 1")
    assert found["row_count"] == 1


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT email FROM customers", "no such column: email; columns of customers: "),
        ("SELECT * FROM customers", "instead of * name some of: id, country"),
        ("SELECT name FROM stores", "no such table: stores; tables: "),
        ("SELECT sql FROM sqlite_master", "no such table: sqlite_master; tables: "),
        ("EXPLAIN QUERY PLAN SELECT 1", "EXPLAIN may not be used here"),
        ("SELECT id FROM orders WHERE 1 IN stores", "may not be read"),
    ],
)
def test_what_is_out_of_scope_is_as_if_it_were_not_there(scoped: SqlBackend, sql: str, said: str) -> None:
    with pytest.raises(ToolFailed, match=re.escape(said)) as caught:
        run(scoped, "execute_sql", sql=sql)
    assert caught.value.code == "INVALID_INPUT"


@pytest.mark.parametrize("scope", [Scope(), SCOPE])
def test_parameters_are_bound_by_name_or_place(shop_path: Path, scope: Scope) -> None:
    backend = backend_of(shop_path, scope=scope)
    by_name = "SELECT count(*) FROM customers WHERE id = :id OR country = :land"
    assert run(backend, "execute_sql", sql=by_name, parameters={"id": 1, "land": "' OR 1=1 --"})["rows"] == [[1]]
    by_place = "SELECT ? || '?' FROM customers WHERE id = ?"
    assert run(backend, "execute_sql", sql=by_place, parameters=["x", 2])["rows"] == [["x?"]]
    with pytest.raises(ToolFailed) as caught:
        run(backend, "execute_sql", sql="SELECT ?", parameters=[1, 2])
    assert caught.value.code == "INVALID_INPUT"


TOO_MUCH = ["9" * 400, "-" + "9" * 400, "9223372036854775808", "1e400", "-1e400", '"\\ud800"']
"""JSON that no driver takes for a value."""


@pytest.mark.cases("scope", [Scope(), SCOPE])
@pytest.mark.cases("text", TOO_MUCH)
def test_a_parameter_that_no_database_takes_is_told_to_the_model_by_its_name(
    shop_path: Path, scope: Scope, text: str
) -> None:
    backend, value = backend_of(shop_path, scope=scope), json.loads(text)
    for sql, parameters in (("SELECT :x FROM customers", {"x": value}), ("SELECT ? FROM customers", [value])):
        with pytest.raises(ToolFailed, match=r"parameter '(x|1)' (is|contains)") as caught:
            run(backend, "execute_sql", sql=sql, parameters=parameters)
        assert caught.value.code == "INVALID_INPUT"


@pytest.mark.parametrize("scope", [Scope(), SCOPE])
def test_a_statement_with_half_of_a_character_is_refused(shop_path: Path, scope: Scope) -> None:
    with pytest.raises(ToolFailed, match="half of a character") as caught:
        run(backend_of(shop_path, scope=scope), "execute_sql", sql="SELECT '\ud800' FROM customers")
    assert caught.value.code == "INVALID_INPUT"


def test_sql_that_the_parser_does_not_know_runs_where_there_is_no_scope(backend: SqlBackend) -> None:
    strange = "SELECT id FROM orders NOT INDEXED WHERE id NOTNULL ORDER BY id NULLS LAST LIMIT 2, 1"
    assert run(backend, "execute_sql", sql=strange)["row_count"] == 1


def test_tools_of_one_file_share_a_group_that_names_no_folder(shop_path: Path) -> None:
    groups = {tool.group for tool in backend_of(shop_path).tools()}
    assert len(groups) == 1
    assert re.fullmatch(r"sql:shop\.db:[0-9a-f]{8}", groups.pop())
    other = SqlBackend("postgresql+psycopg://u:secret@db.example:5433/sales").tools()[0]
    assert other.group == "sql:db.example:5433:sales"


def test_a_file_has_a_child_of_its_own_and_a_server_needs_one(shop_path: Path) -> None:
    assert backend_of(shop_path).tools()[2].origin is None
    url = "postgresql+psycopg://u:secret@db.example/sales"
    tools = SqlBackend(url, scope=SCOPE, max_rows=5, timeout_s=3).tools()
    origin = json.loads(json.dumps(tools[2].origin))
    assert origin["kind"] == "sql"
    again = SqlBackend.from_origin(origin).tools()
    assert [(tool.spec, tool.origin, tool.timeout_s, tool.group) for tool in again] == [
        (tool.spec, tool.origin, tool.timeout_s, tool.group) for tool in tools
    ]
