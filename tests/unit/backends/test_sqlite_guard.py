"""The guard alone, without the check of the first word in front of it: every wall must hold by itself."""

import contextlib
import io
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from loom_worker.backends import sqlite_guard
from loom_worker.backends.sqlite_guard import FUNCTIONS, GuardRequest, Seen, answer, guard
from loom_worker.core.values.json import Json

WRITES_AND_ESCAPES = [
    "ATTACH 'file:other.db?mode=rwc' AS other",
    "ATTACH ':memory:' AS other",
    "DETACH main",
    "VACUUM",
    "VACUUM INTO 'copy.db'",
    "PRAGMA query_only=0",
    "PRAGMA writable_schema=ON",
    "PRAGMA journal_mode=WAL",
    "PRAGMA temp_store_directory='.'",
    "PRAGMA database_list",
    "PRAGMA data_version=3",
    "PRAGMA hard_heap_limit=0",
    "CREATE TABLE x (a)",
    "CREATE TEMP TABLE x (a)",
    "CREATE TEMP VIEW x AS SELECT 1",
    "CREATE VIRTUAL TABLE temp.x USING fts5(a)",
    "CREATE TEMP TRIGGER x AFTER INSERT ON orders BEGIN SELECT 1; END",
    "CREATE INDEX x ON orders (status)",
    "ALTER TABLE orders RENAME TO x",
    "DROP TABLE returns",
    "INSERT INTO stores VALUES (99, 'a', 'b', 'c')",
    "WITH a AS (SELECT 99) INSERT INTO stores SELECT 99, 'a', 'b', 'c' FROM a",
    "REPLACE INTO stores VALUES (1, 'a', 'b', 'c')",
    "UPDATE products SET list_price = 0 RETURNING id",
    "DELETE FROM payments",
    "ANALYZE",
    "REINDEX",
    "BEGIN IMMEDIATE",
    "SAVEPOINT a",
    "SELECT load_extension('x')",
    "SELECT fts3_tokenizer('simple')",
    "SELECT writefile('x', 'y')",
    "SELECT readfile('/etc/passwd')",
    "SELECT edit('x')",
    "SELECT randomblob(10)",
    "SELECT zeroblob(1000000000)",
    "SELECT sqlite_compileoption_get(1)",
    "SELECT * FROM pragma_database_list",
    "SELECT * FROM pragma_table_info('orders')",
    "SELECT count(*) FROM pragma_compile_options",
    "SELECT * FROM sqlite_dbpage",
    "SELECT * FROM dbstat",
    "SELECT * FROM fts5vocab",
    "SELECT 1; SELECT 2",
]


def order_of(path: Path, sql: str, *, seen: Seen | None = None) -> GuardRequest:
    uri = f"file:{path}?mode=ro"
    caps: Json = {"max_rows": 5, "max_bytes": 4096, "timeout_s": 30.0}
    return {"uri": uri, "sql": sql, "parameters": [], "seen": seen, **caps}  # type: ignore[typeddict-item]


def ask(path: Path, sql: str, *, timeout_s: float = 30.0) -> Json:
    return answer({**order_of(path, sql), "timeout_s": timeout_s})


@pytest.mark.cases("sql", WRITES_AND_ESCAPES)
def test_what_is_not_reading_is_denied(shop_path: Path, sql: str) -> None:
    before = shop_path.read_bytes()
    refused = ask(shop_path, sql)
    assert set(refused) == {"failure", "code"}
    assert shop_path.read_bytes() == before
    assert [each.name for each in shop_path.parent.iterdir()] == [shop_path.name]


def test_a_connection_that_could_write_is_still_denied_by_the_authorizer(tmp_path: Path) -> None:
    path = tmp_path / "open.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a)")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        guard(connection, timeout_s=5)
        for sql in ("INSERT INTO t VALUES (1)", "DROP TABLE t", "PRAGMA user_version=3", "VACUUM INTO 'x.db'"):
            with pytest.raises(sqlite3.DatabaseError, match="authoriz"):
                connection.execute(sql)


@pytest.mark.cases(
    ("sql", "rows"),
    [
        ("WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 4) SELECT sum(n) FROM c", [[10]]),
        ("SELECT id, rank() OVER (ORDER BY id DESC) FROM stores ORDER BY id LIMIT 1", [[1, 8]]),
        ("SELECT strftime('%Y-%m', '2026-11-21'), date('2026-01-31', '+1 day')", [["2026-11", "2026-02-01"]]),
        ("SELECT json_extract('{\"a\": [1, 2]}', '$.a[1]'), '{\"b\": 3}' ->> 'b'", [[2, 3]]),
        ("SELECT value FROM json_each('[5, 6]')", [[5], [6]]),
        ("SELECT group_concat(name, '|') FROM (SELECT name FROM categories ORDER BY id LIMIT 2)", [["Garden|Kitchen"]]),
        ("SELECT count(*) FROM (SELECT DISTINCT store_id FROM orders)", [[8]]),
        ("SELECT coalesce(NULL, upper(substr('abc', 2))), round(2.567, 1), iif(1, 'y', 'n')", [["BC", 2.6, "y"]]),
        ("SELECT 'Kettle' LIKE 'k%', 'Kettle' GLOB 'k*', instr('abc', 'c')", [[1, 0, 3]]),
        ("SELECT count(*) FILTER (WHERE id > 4), total(id), min(name) > '' FROM stores", [[4, 36.0, 1]]),
        ("SELECT id FROM stores INTERSECT SELECT 3", [[3]]),
        ("VALUES (1, 'a'), (2, 'b')", [[1, "a"], [2, "b"]]),
        ("SELECT count(*) > 5 FROM sqlite_master", [[1]]),
    ],
)
def test_ordinary_analysis_works(shop_path: Path, sql: str, rows: list[list[object]]) -> None:
    assert ask(shop_path, sql)["result"]["rows"] == rows


def test_a_full_text_table_and_a_view_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE VIRTUAL TABLE notes USING fts5(body)")
        connection.execute("INSERT INTO notes VALUES ('a loom weaves'), ('a kite flies')")
        connection.execute("CREATE VIEW short AS SELECT substr(body, 1, 6) AS start FROM notes")
    assert ask(path, "SELECT start FROM short ORDER BY 1")["result"]["rows"] == [["a kite"], ["a loom"]]
    found = ask(path, "SELECT body FROM notes WHERE notes MATCH 'loom' ORDER BY bm25(notes)")
    assert found.get("result", {}).get("rows") == [["a loom weaves"]], found


def test_an_endless_statement_is_stopped_by_the_deadline(shop_path: Path) -> None:
    endless = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT max(n) FROM c"
    assert ask(shop_path, endless, timeout_s=0.1) == {
        "failure": "the query took longer than 0.1 s: select or group less",
        "code": "DATABASE_ERROR",
    }


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT length(replace(printf('%.*c', 900000, 'x'), 'x', 'yy'))",
        "SELECT length(hex(hex(printf('%.*c', 300000, 'x'))))",
        "SELECT length(group_concat(email || name || city)) FROM customers, stores, categories",
        "SELECT " + "+".join("1" * 300),
        " UNION ALL ".join(["SELECT 1"] * 60),
        "SELECT '" + "x" * 100_001 + "'",
        "SELECT email LIKE '" + "%a" * 200 + "' FROM customers",
    ],
)
def test_bombs_meet_a_limit_and_not_the_machine(shop_path: Path, sql: str) -> None:
    assert ask(shop_path, sql)["code"] == "INVALID_INPUT"


@pytest.mark.parametrize("sql", ["SELECT printf('%1000000000d', 1)", "SELECT printf('%.*c', 2000000, 'x')"])
def test_a_text_of_a_width_beyond_the_limit_is_null(shop_path: Path, sql: str) -> None:
    assert ask(shop_path, sql, timeout_s=1)["result"]["rows"] == [[None]]


def test_text_that_is_not_utf_8_is_shown_as_far_as_it_can_be(shop_path: Path) -> None:
    assert ask(shop_path, "SELECT CAST(x'61ff62' AS TEXT)")["result"]["rows"] == [["a\ufffdb"]]


def test_a_file_that_is_no_database_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("hello " * 500)
    assert ask(tmp_path / "note.txt", "SELECT 1") == {"failure": "file is not a database", "code": "DATABASE_ERROR"}


def test_a_missing_file_is_not_created(tmp_path: Path) -> None:
    assert ask(tmp_path / "none.db", "SELECT 1")["code"] == "DATABASE_ERROR"
    assert list(tmp_path.iterdir()) == []


def test_nothing_random_or_outside_the_statement_is_among_the_functions() -> None:
    assert not FUNCTIONS & {"random", "randomblob", "load_extension", "fts3_tokenizer", "readfile", "zeroblob"}


def test_the_program_answers_on_stdout(shop_path: Path) -> None:
    done = run_program(order_of(shop_path, "SELECT 1"), os.getpid())
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.load(io.BytesIO(done.stdout))["result"]["rows"] == [[1]]


def test_a_query_ends_long_before_its_time_once_whoever_asked_is_not_its_parent_any_more(shop_path: Path) -> None:
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT COUNT(*) FROM c"
    done = run_program(order_of(shop_path, endless), 1)
    assert json.load(io.BytesIO(done.stdout))["code"] == "DATABASE_ERROR"


def run_program(order: GuardRequest, parent_pid: int) -> subprocess.CompletedProcess[bytes]:
    program = "from loom_worker.backends.sqlite_guard import main; main()"
    command = [sys.executable, "-c", program, "", str(parent_pid)]
    return subprocess.run(command, input=json.dumps(order).encode(), capture_output=True, timeout=60)


def test_the_guard_loads_nothing_outside_the_standard_library_but_its_own_few_modules() -> None:
    program = f"import sys; sys.path.append({str(Path(sqlite_guard.__file__).parents[2])!r})\n"
    program += "before = set(sys.modules); import loom_worker.backends.sqlite_guard\n"
    program += "print(sorted({n for n in sys.modules if n.startswith('loom')}))\n"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert "errors" not in done.stdout
    assert "sqlite_guard" in done.stdout


@pytest.fixture
def scoped_path(tmp_path: Path) -> Path:
    path = tmp_path / "scoped.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(
            """CREATE TABLE secret (a); INSERT INTO secret VALUES (42);
               CREATE TABLE t (id INTEGER PRIMARY KEY, b, hid); INSERT INTO t VALUES (7, 'b', 'h');
               CREATE VIEW shown AS SELECT a + 1 AS a FROM secret;
               CREATE VIRTUAL TABLE notes USING fts5(body); INSERT INTO notes VALUES ('a loom weaves');"""
        )
    return path


SEEN: Seen = {"t": ["id", "b"], "shown": None, "notes": None}


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT id, b, count(*) FROM T", [[7, "b", 1]]),
        ("SELECT rowid FROM t", [[7]]),
        ("SELECT * FROM shown", [[43]]),
        ("SELECT body FROM notes WHERE notes MATCH 'loom'", [["a loom weaves"]]),
        ("SELECT value FROM json_each('[5]')", [[5]]),
        ("WITH x AS (SELECT b FROM t) SELECT * FROM x", [["b"]]),
    ],
)
def test_what_is_seen_can_be_read(scoped_path: Path, sql: str, rows: list[list[object]]) -> None:
    assert answer(order_of(scoped_path, sql, seen=SEEN))["result"]["rows"] == rows


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM t",
        "SELECT hid FROM t",
        "SELECT id FROM t ORDER BY hid",
        "SELECT count(*) FROM secret",
        "SELECT a FROM secret",
        "SELECT a FROM (SELECT a FROM secret) AS shown",
        "SELECT 1 FROM t WHERE 42 IN secret",
        "SELECT name FROM sqlite_master",
        "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM secret)",
    ],
)
def test_what_is_not_seen_is_denied_by_the_database_itself(scoped_path: Path, sql: str) -> None:
    refused = answer(order_of(scoped_path, sql, seen=SEEN))
    assert refused == {"failure": "this reads a table or column that may not be read", "code": "INVALID_INPUT"}


@pytest.mark.parametrize("value", [10**400, -(10**400), 2**63])
def test_a_parameter_that_sqlite_cannot_hold_is_an_answer_and_not_the_death_of_the_process(
    shop_path: Path, value: int
) -> None:
    said = answer({**order_of(shop_path, "SELECT ?"), "parameters": [value]})
    assert said["code"] == "INVALID_INPUT"
    assert "too large" in said["failure"]
