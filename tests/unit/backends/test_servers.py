"""How a server is asked: SQLite stands in for one, as the transaction's shape is the same on all."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, make_url
from sqlalchemy.exc import OperationalError

from loom_worker.backends import servers
from loom_worker.backends.servers import SERVERS, Server, server_engine, server_query
from loom_worker.errors import BadSettings, ToolFailed
from loom_worker.values.json import Json


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setitem(dict_of_servers(), "sqlite", Server("none", begin=("PRAGMA busy_timeout = {ms}",)))
    made = create_engine(f"sqlite:///{tmp_path / 'server.db'}")
    with made.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (a TEXT)")
        connection.exec_driver_sql("INSERT INTO t VALUES ('x%y'), ('z')")
    yield made
    made.dispose()


def dict_of_servers() -> dict[str, Server]:
    assert isinstance(SERVERS, dict)
    return SERVERS


def ask(engine: Engine, sql: str) -> Json:
    return server_query(engine, sql, max_rows=10, max_bytes=1000, timeout_s=2.5)


def test_a_percent_sign_is_no_placeholder(engine: Engine) -> None:
    assert ask(engine, "SELECT a FROM t WHERE a LIKE '%x%'")["rows"] == [["x%y"]]


def test_what_a_statement_changed_is_rolled_back(engine: Engine) -> None:
    assert ask(engine, "UPDATE t SET a = 'gone' RETURNING a")["row_count"] == 2
    assert ask(engine, "SELECT a FROM t ORDER BY a")["rows"] == [["x%y"], ["z"]]


def test_a_failed_statement_gives_its_connection_back(engine: Engine) -> None:
    for _ in range(30):
        with pytest.raises(OperationalError):
            ask(engine, "SELECT nothing FROM t")
    assert ask(engine, "SELECT 1")["rows"] == [[1]]


def test_tricks_never_reach_a_server(engine: Engine) -> None:
    with contextlib.closing(engine.raw_connection()), pytest.raises(ToolFailed, match="may not be used"):
        ask(engine, "SELECT a INTO copy FROM t")


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"])
def test_every_server_is_asked_for_a_read_only_transaction_and_a_time_limit(kind: str) -> None:
    asked = " ".join(SERVERS[kind].begin).format(ms=2500, s=2.5)
    assert "READ ONLY" in asked
    assert "= 2" in asked


def test_a_duckdb_file_is_opened_read_only() -> None:
    assert SERVERS["duckdb"].connect_args["read_only"] is True


def test_an_unknown_driver_is_named() -> None:
    with pytest.raises(BadSettings, match=r"no driver for mysql\+nonesuch"):
        servers.server_engine(make_url("mysql+nonesuch://localhost/x"))
    assert server_engine is servers.server_engine
