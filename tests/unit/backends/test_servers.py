import pytest
from sqlalchemy import make_url

from loom_worker.backends.servers import SERVERS, server_engine
from loom_worker.core.errors import BadSettings


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"])
def test_every_server_is_asked_for_a_read_only_transaction_and_a_time_limit(kind: str) -> None:
    asked = " ".join(SERVERS[kind].begin).format(ms=2500, s=2.5, rows=11)
    assert "READ ONLY" in asked
    assert "= 2" in asked


def test_a_duckdb_file_is_opened_read_only_and_alone() -> None:
    arguments = SERVERS["duckdb"].connect_args(make_url("duckdb:////x.duckdb"), 2.5)
    assert arguments["read_only"] is True
    config = arguments["config"]
    assert isinstance(config, dict)
    assert (config["enable_external_access"], config["lock_configuration"]) == ("false", "true")


def test_postgresql_is_read_only_from_the_first_moment_of_a_connection() -> None:
    arguments = SERVERS["postgresql"].connect_args(make_url("postgresql+psycopg://h/d"), 2.5)
    assert "default_transaction_read_only=on" in str(arguments["options"])
    assert "statement_timeout=2500" in str(arguments["options"])
    assert SERVERS["postgresql"].connect_args(make_url("postgresql+pg8000://h/d"), 2.5) == {}


def test_an_unknown_driver_is_named_with_the_package_that_brings_one() -> None:
    with pytest.raises(BadSettings, match=r"no driver for mysql\+nonesuch: pip install 'pymysql'"):
        server_engine(make_url("mysql+nonesuch://localhost/x"), timeout_s=1)
