import json
from typing import Any

import pytest

from loom_worker.backends.statements import MAX_SQL_CHARS, checked, only_statement
from loom_worker.core.errors import ToolFailed


@pytest.mark.cases(
    ("sql", "statement"),
    [
        ("SELECT 1", "SELECT 1"),
        ("  select 1 ;  ", "select 1"),
        ("SELECT 1; -- done", "SELECT 1"),
        ("SELECT 1;;\n/* bye */ ;", "SELECT 1"),
        ("-- first\n/* then; */ WITH a AS (SELECT 1) SELECT * FROM a", "WITH a AS (SELECT 1) SELECT * FROM a"),
        ("SELECT ';' AS \"a;b\", [c;d], `e;f` FROM t -- ;", "SELECT ';' AS \"a;b\", [c;d], `e;f` FROM t"),
        ("SELECT 'it''s; fine'", "SELECT 'it''s; fine'"),
        ("SELECT 4 - 2 / 1", "SELECT 4 - 2 / 1"),
        ("(SELECT 1)", "(SELECT 1)"),
        ("VALUES (1), (2)", "VALUES (1), (2)"),
        ("EXPLAIN QUERY PLAN SELECT 1", "EXPLAIN QUERY PLAN SELECT 1"),
    ],
)
def test_the_one_statement_is_found_whatever_stands_around_it(sql: str, statement: str) -> None:
    assert only_statement(sql) == statement


@pytest.mark.cases(
    "sql",
    [
        "",
        "  ",
        ";",
        "-- nothing",
        "/* SELECT 1 */",
        "DELETE FROM t",
        "pragma user_version",
        "/* SELECT */ DROP TABLE t",
    ],
)
def test_what_does_not_read_is_refused(sql: str) -> None:
    with pytest.raises(ToolFailed, match="read-only") as caught:
        only_statement(sql)
    assert caught.value.code == "INVALID_INPUT"


@pytest.mark.parametrize("sql", ["SELECT 1; SELECT 2", "SELECT 1;DROP TABLE t", "SELECT '\\'; DROP TABLE t; --'"])
def test_a_second_statement_is_refused(sql: str) -> None:
    with pytest.raises(ToolFailed, match="one statement"):
        only_statement(sql)


@pytest.mark.parametrize("sql", ["SELECT 1\0", "SELECT " + "1," * MAX_SQL_CHARS + "1"])
def test_nul_and_endless_text_are_refused(sql: str) -> None:
    with pytest.raises(ToolFailed, match="longer than"):
        only_statement(sql)


KINDS = ("sqlite", "postgresql", "mysql", "mariadb", "duckdb")


@pytest.mark.cases("kind", KINDS)
@pytest.mark.cases("value", [json.loads("9" * 400), float("inf"), float("nan"), "\ud800"])
def test_what_no_driver_takes_is_invalid_input_on_every_database(kind: str, value: Any) -> None:
    for parameters in ({"x": value}, ["fine", value]):
        with pytest.raises(ToolFailed, match=r"parameter '(x|2)'") as caught:
            checked(parameters, kind)
        assert caught.value.code == "INVALID_INPUT"


@pytest.mark.cases("kind", KINDS)
@pytest.mark.cases("value", [None, True, 0, -(2**63), 2**63 - 1, 1.5, "", "\0", "é", "9" * 400])
def test_what_drivers_take_passes(kind: str, value: Any) -> None:
    assert checked([value], kind) == [value]
    assert checked({"x": value}, kind) == {"x": value}
    assert checked(None, kind) is None


def test_numbers_beyond_64_bits_are_for_databases_that_have_wider_ones() -> None:
    assert checked([10**37], "postgresql") == [10**37]
    with pytest.raises(ToolFailed):
        checked([10**38], "postgresql")
    with pytest.raises(ToolFailed):
        checked([2**63], "sqlite")
