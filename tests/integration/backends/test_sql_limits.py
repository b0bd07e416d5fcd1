"""A query of a file has no more time and memory than it may have, and what it started ends with it."""

import contextlib
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loom_worker.backends.sql import SqlBackend
from loom_worker.core.errors import ToolFailed
from loom_worker.core.sqlite_driver import sqlite3
from tests.support.at_once import at_once
from tests.support.sql_world import ask

pytestmark = [pytest.mark.heavy, pytest.mark.takes(9)]

BIG_TEXT = "WITH x(s) AS MATERIALIZED (SELECT printf('%.*c', 990000, 'a')) "
DOUBLING = ", ".join(f"a{n} AS (SELECT x.q FROM a{n - 1} x, a{n - 1} y)" for n in range(1, 30))
SLOW = {
    "a cross join": "SELECT sum(a.id * b.id) FROM order_lines a, order_lines b, order_lines c",
    "a recursion without end": "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT max(n) FROM c",
    "a recursion that grows": "WITH RECURSIVE c(n) AS (SELECT 1 UNION SELECT n + 1 FROM c) SELECT count(*) FROM c",
    "a sort of everything": "SELECT a.id FROM order_lines a, order_lines b ORDER BY a.unit_price * b.quantity",
    "a search for a long text": BIG_TEXT + "SELECT instr(s, substr(s, 1, 490000) || 'b') FROM x",
    "a replacement of a long text": BIG_TEXT + "SELECT replace(s, substr(s, 1, 490000) || 'b', '') FROM x",
    "a trim by a long set": BIG_TEXT + "SELECT trim(s, printf('%.*c', 80000, 'b') || 'a') FROM x",
    "patterns of wildcards": BIG_TEXT + "SELECT " + ", ".join(["s GLOB '*[a]*aaaaaaaaaaaaaab'"] * 500) + " FROM x",
    "likes of wildcards": BIG_TEXT + "SELECT " + ", ".join(["s LIKE '%_aaaaaaaaaaaaaab'"] * 500) + " FROM x",
    "a plan that doubles": f"WITH a0 AS (SELECT 1 AS q), {DOUBLING} SELECT count(*) FROM a29",
}


def backend_of(path: Path, **settings: Any) -> SqlBackend:
    return SqlBackend(f"sqlite:///{path}", **settings)


def run(backend: SqlBackend, name: str, **arguments: object) -> Any:
    return json.loads(ask(backend, name, **arguments))


@pytest.mark.parametrize("attack", SLOW)
def test_nothing_runs_past_its_time(shop_path: Path, attack: str) -> None:
    before = hashlib.sha256(shop_path.read_bytes()).digest()
    with pytest.raises(ToolFailed, match=r"took longer|too much"):
        run(backend_of(shop_path, timeout_s=0.3), "execute_sql", sql=SLOW[attack])
    assert hashlib.sha256(shop_path.read_bytes()).digest() == before
    assert [each.name for each in shop_path.parent.iterdir()] == [shop_path.name]


def test_a_query_that_eats_memory_dies_alone(shop_path: Path) -> None:
    hungry = """WITH RECURSIVE c(n, s) AS (
        SELECT 1, printf('%.*c', 999000, 'a') UNION ALL SELECT n + 1, s || '' FROM c LIMIT 5000)
        SELECT * FROM c ORDER BY s"""
    with pytest.raises(ToolFailed, match="too much memory") as caught:
        run(backend_of(shop_path), "execute_sql", sql=hungry)
    assert caught.value.code == "DATABASE_ERROR"


def test_a_database_that_stays_locked_is_a_failure_of_the_database(tmp_path: Path) -> None:
    small = tmp_path / "small.db"
    with contextlib.closing(sqlite3.connect(small, isolation_level=None)) as writer:
        writer.execute("CREATE TABLE parent (a)")
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ToolFailed, match=r"locked|took longer") as caught:
            run(backend_of(small, timeout_s=0.4), "execute_sql", sql="SELECT count(*) FROM parent")
    assert caught.value.code == "DATABASE_ERROR"


def test_many_threads_may_ask_at_once(shop_path: Path) -> None:
    backend = backend_of(shop_path)

    def ask(number: int) -> tuple[int, int]:
        answer = run(backend, "execute_sql", sql=f"SELECT {number}")["rows"][0][0]
        return answer, len(run(backend, "list_tables")["tables"])

    assert at_once(ask, range(100, 108)) == [(number, 11) for number in range(100, 108)]
    backend.close()


def test_a_file_without_scope_never_loads_the_parser(shop_path: Path) -> None:
    program = "import sys; from loom_worker.backends.sql import SqlBackend; from tests.support.callers import CALLER\n"
    program += f"tools = SqlBackend('sqlite:///{shop_path}').tools(); tools[2].run({{'sql': 'SELECT 1'}}, CALLER)\n"
    program += "print('sqlglot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
