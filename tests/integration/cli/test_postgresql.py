"""What commands say of a PostgreSQL server: that it serves, and each way in which it does not."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from sqlalchemy import Connection

from loom_worker.cli.checks import database, server
from loom_worker.cli.main import main
from loom_worker.core.errors import BadSettings, Unavailable
from loom_worker.core.settings import from_env
from loom_worker.store import schema
from loom_worker.store.database import Database, engine_of
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.engines.postgresql_report import ServerReport, report
from loom_worker.store.prepare import check, prepare
from tests.support import store_postgres
from tests.support.postgres import Postgres, postgres_folder
from tests.support.webhook_receiver import unused_port

NO_SERVER = "PostgreSQL is not installed (Debian: apt install postgresql)"
pytestmark = [pytest.mark.heavy, pytest.mark.takes(30)]


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server with Loom's database ``postgres``, another program's, one of another encoding, and a certificate."""
    folder = postgres_folder()
    if folder is None:
        pytest.skip(NO_SERVER)
    with Postgres(folder) as running:
        files = [running.folder / name for name in ("server.key", "server.crt")]
        subject = ["-x509", "-nodes", "-newkey", "rsa:2048", "-subj", "/CN=db.example.com", "-days", "2"]
        running.run(["openssl", "req", *subject, "-keyout", str(files[0]), "-out", str(files[1])])
        files[0].chmod(0o600)
        with psycopg.connect(store_postgres.made(running), autocommit=True) as connection:
            for name, file in zip(("ssl_key_file", "ssl_cert_file"), files, strict=True):
                connection.execute(f"ALTER SYSTEM SET {name} = '{file}'")
            connection.execute("ALTER SYSTEM SET ssl = on")
            connection.execute("SELECT pg_reload_conf()")
            connection.execute("CREATE ROLE guest LOGIN")
            connection.execute("CREATE DATABASE others")
            connection.execute("CREATE DATABASE latin ENCODING LATIN1 TEMPLATE template0")
            with psycopg.connect(url(running, "others"), autocommit=True) as others:
                others.execute("CREATE TABLE recipes (name text)")
        yield running


def url(postgres: Postgres, name: str = "postgres", *, user: str = "loom", more: str = "") -> str:
    return f"postgresql://{user}:s3cret@127.0.0.1:{postgres.port}/{name}{more}"


def loom(tmp_path: Path, database_url: str, *command: str) -> Any:
    env = {"LOOM_HOME": str(tmp_path), "LOOM_DATABASE_URL": database_url, "LOOM_PROVIDER": "scripted"}
    return CliRunner().invoke(main, command, env=env)


@pytest.mark.cases(
    ("name", "user", "more", "told"),
    [
        ("missing", "loom", "", 'refuses this user (database "missing" does not exist); correct user'),
        ("postgres", "nobody", "", 'refuses this user (role "nobody" does not exist)'),
        ("postgres", "guest", "", "refuses this user; correct user, password and database"),
        ("others", "loom", "", "holds other tables (recipes…) than Loom's"),
        ("latin", "loom", "", "encoding LATIN1; create one with UTF8"),
        ("postgres", "loom", "?sslmode=verify-full&sslrootcert=/none.pem", "not reached by TLS"),
        ("postgres", "loom", "?sslmode=verify-full&sslrootcert={folder}/server.crt", "does not match host name"),
        ("postgres", "loom", "?sslmod=require", "a parameter behind the ? misspelled"),
    ],
)
def test_what_cannot_be_used_is_a_sentence_with_a_way_out(
    postgres: Postgres, tmp_path: Path, name: str, user: str, more: str, told: str
) -> None:
    made = loom(tmp_path, url(postgres, name, user=user, more=more.format(folder=postgres.folder)), "prepare")
    assert made.exit_code == 2, made.output
    assert made.stderr.startswith("loom: LOOM_DATABASE_URL: ")
    assert told in made.stderr
    assert "s3cret" not in made.stderr
    found = loom(tmp_path, url(postgres, name, user=user, more=more), "doctor", "--offline", "--json")
    assert found.exit_code == 1
    failed = [each["name"] for each in json.loads(found.stdout)["checks"] if not each["is_ok"]]
    assert failed == (["settings"] if "sslmod=" in more else ["database"])


def test_a_server_that_is_away_says_so_to_commands_and_transactions(tmp_path: Path) -> None:
    away = f"postgresql://loom:s3cret@127.0.0.1:{unused_port()}/loom"
    told = loom(tmp_path, away, "prepare")
    assert (told.exit_code, told.stderr.count("does not answer (Connection refused)")) == (1, 1)
    with closing(Database(away)) as unreached:
        for transaction in (unreached.read(), unreached.write(lock=WHOLE)):
            with pytest.raises(Unavailable, match=r"^The database does not answer\.$"), transaction:
                pass


def go_on_without_server(tx: Connection, postgres: Postgres) -> None:
    pid = tx.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    with psycopg.connect(url(postgres), autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    tx.exec_driver_sql("SELECT 1")


def test_a_connection_that_dies_in_a_transaction_is_unavailable_and_the_next_one_serves(postgres: Postgres) -> None:
    with closing(Database(url(postgres))) as used:
        with pytest.raises(Unavailable, match="does not answer"), used.write(lock=WHOLE) as tx:
            go_on_without_server(tx, postgres)
        used.probe()


def test_a_process_waits_for_a_server_that_is_away(tmp_path: Path) -> None:
    folder = postgres_folder()
    if folder is None:
        pytest.skip(NO_SERVER)
    server = Postgres(folder)
    env = {**os.environ, "LOOM_HOME": str(tmp_path), "LOOM_PROVIDER": "scripted"}
    env["LOOM_DATABASE_URL"] = f"postgresql://loom@127.0.0.1:{server.port}/postgres"
    command = [sys.executable, "-m", "loom_worker.cli.main", "beat"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as beat:
        assert beat.stdout is not None
        assert "(Connection refused); start the server, or correct LOOM_DATABASE_URL; still" in beat.stdout.readline()
        with server:
            assert "is not made yet; run `loom prepare` first" in beat.stdout.read()
        assert beat.wait(30) == 2


def test_a_server_without_the_tables_is_unavailable(postgres: Postgres) -> None:
    with closing(Database(url(postgres, "others"))) as bare:
        with pytest.raises(Unavailable, match="lacks a table"):
            bare.probe()
        with pytest.raises(Unavailable, match="lacks a table"), bare.write(lock=WHOLE):
            pass


def test_a_connection_in_use_when_the_database_is_closed_is_closed_behind_its_transaction(postgres: Postgres) -> None:
    database = Database(url(postgres))
    with database.read() as tx:
        database.close()
        used = tx.connection.dbapi_connection
        assert tx.exec_driver_sql("SELECT 1").scalar_one() == 1
    assert used is not None
    assert used.closed  # type: ignore[attr-defined]  # psycopg's, which the DBAPI does not have


def test_a_missing_driver_is_named_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("loom_worker.store.engines.postgresql")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(BadSettings, match="the extra `postgresql` of Loom"):
        engine_of("postgresql://loom@h/loom")


def test_a_backup_is_made_elsewhere(postgres: Postgres, tmp_path: Path) -> None:
    told = loom(tmp_path, url(postgres), "backup", str(tmp_path / "copy"))
    assert told.exit_code == 2
    assert "pg_dump" in told.stderr


def test_a_newer_database_is_used_if_the_code_that_made_it_says_so(postgres: Postgres, tmp_path: Path) -> None:
    settings = from_env({"LOOM_HOME": str(tmp_path), "LOOM_DATABASE_URL": url(postgres)})
    with closing(engine_of(settings.database_url)) as engine:
        assert engine.usable_from() == schema.USABLE_FROM
    with psycopg.connect(settings.database_url, autocommit=True) as connection:
        connection.execute("UPDATE loom_version SET version_num = '9999'")
        try:
            connection.execute("COMMENT ON TABLE loom_version IS '9998'")
            with pytest.raises(BadSettings, match="written by a newer Loom"):
                check(settings)
            connection.execute(f"COMMENT ON TABLE loom_version IS '{schema.VERSION}'")
            check(settings)
            assert not prepare(settings)
            assert "until this host is updated" in database(settings).warning
        finally:
            connection.execute(f"UPDATE loom_version SET version_num = '{schema.VERSION}'")


@pytest.mark.parametrize(("pool", "pooler", "is_warned"), [("60", "0", True), ("5", "0", False), ("60", "1", False)])
def test_doctor_counts_the_connections_of_all_processes(
    postgres: Postgres, tmp_path: Path, pool: str, pooler: str, *, is_warned: bool
) -> None:
    env = {"LOOM_HOME": str(tmp_path), "LOOM_DATABASE_URL": url(postgres, more="?sslmode=require")}
    (found,) = server(from_env({**env, "LOOM_DATABASE_POOL": pool, "LOOM_DATABASE_POOLER": pooler}))
    assert found.is_ok
    assert found.found.startswith("PostgreSQL ")
    assert ", by TLS, " in found.found
    assert ("LOOM_DATABASE_POOL" in found.warning) == is_warned


def test_a_server_tells_its_clock_and_what_is_off(postgres: Postgres) -> None:
    found = report(url(postgres, more="?sslmode=disable"))
    assert abs(found.clock_ahead_s) < 1
    assert not found.is_encrypted
    (warning,) = found.warnings
    assert warning.endswith(": fsync, full_page_writes")  # the servers of tests lose power and nothing else


@pytest.mark.parametrize(
    ("encrypted", "expected_open", "ahead_s", "off", "told"),
    [
        (False, False, 0.0, "", "without TLS"),
        (True, False, 10.0, "", "10.0 s ahead of"),
        (True, False, -1.1, "", "1.1 s behind"),
        (True, False, 0.0, "synchronous_commit", "synchronous_commit"),
    ],
)
def test_what_an_operator_should_mend_is_told(
    *, encrypted: bool, expected_open: bool, ahead_s: float, off: str, told: str
) -> None:
    (warning,) = ServerReport("15.18", encrypted, expected_open, 97, ahead_s, off).warnings
    assert told in warning


@pytest.mark.parametrize(("pool", "most"), [(2, 2), (1, 1)])
def test_a_process_keeps_as_many_connections_as_it_may(
    postgres: Postgres, tmp_path: Path, pool: int, most: int
) -> None:
    env = {"LOOM_HOME": str(tmp_path), "LOOM_DATABASE_URL": url(postgres), "LOOM_DATABASE_POOL": str(pool)}
    settings = from_env(env)
    options: dict[str, Any] = {"busy_timeout_s": 0.05, "server": settings.server}
    with closing(Database(settings.database_url, **options)) as limited, limited.read():
        if most == 1:
            with pytest.raises(Unavailable, match="no free connection"), limited.read():
                pass
        else:
            with limited.read() as second:
                assert second.exec_driver_sql("SELECT 1").scalar_one() == 1


@pytest.mark.parametrize(("pooler", "is_prepared"), [("0", True), ("1", False)])
def test_nothing_is_prepared_behind_a_pooler(
    postgres: Postgres, tmp_path: Path, pooler: str, *, is_prepared: bool
) -> None:
    env = {"LOOM_HOME": str(tmp_path), "LOOM_DATABASE_URL": url(postgres), "LOOM_DATABASE_POOLER": pooler}
    with closing(Database.of(from_env(env), readers=1)) as opened:
        for _ in range(10):
            with opened.read() as tx:
                tx.exec_driver_sql("SELECT seq FROM turns WHERE id = %s", ("turn_1",))
        with opened.read() as tx:
            count = tx.exec_driver_sql("SELECT count(*) FROM pg_prepared_statements").scalar_one()
    assert (count > 0) == is_prepared
