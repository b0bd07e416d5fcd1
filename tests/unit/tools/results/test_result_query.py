from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.blobs.derived import DerivedFiles
from loom_worker.core.errors import ToolFailed
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.tools.result_rows import ResultContent, content_of, parsed
from loom_worker.tools.result_tools import CELL_BYTES, MOST_ROWS, ask, ask_copy, build, column_names
from tests.unit.blobs.made import new_ref
from tests.unit.tools.results.made import csv_text, objects, table


def content(text: str) -> ResultContent:
    return content_of(parsed(text, "text/plain"), "text/plain")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    build(tmp_path / "t.db", {"result": content(table(300))})
    return tmp_path / "t.db"


def asked(tmp_path: Path, value: object, sql: str) -> Any:
    build(tmp_path / "v.db", {"result": content_of(value, "application/json")})
    return ask(tmp_path / "v.db", sql, most_bytes=9_000)["rows"]


@pytest.mark.parametrize("made", [table, objects, csv_text])
def test_rows_of_every_form_are_summed_and_grouped(tmp_path: Path, made: Any) -> None:
    build(tmp_path / "t.db", {"result": content(made(300))})
    sql = "SELECT city, count(*), sum(price) FROM result WHERE id >= 150 GROUP BY city ORDER BY city"
    found = ask(tmp_path / "t.db", sql, most_bytes=9_000)
    assert found["columns"] == ["city", "count(*)", "sum(price)"]
    assert [row[:2] for row in found["rows"]] == [["Lima", 50], ["Oslo", 50], ["Rome", 50]]


def test_an_unknown_name_is_answered_with_those_there_are(file: Path) -> None:
    told = {
        'SELECT sum("prise") FROM result': "no such column: prise (in double quotes it is a name; a text stands in ",
        "SELECT * FROM result WHERE \"citty\" = 'Oslo'": "columns of result: city, ",
        "SELECT * FROM results": "no such table: results; tables: result",
    }
    for sql, said in told.items():
        with pytest.raises(ToolFailed) as raised:
            ask(file, sql, most_bytes=9_000)
        assert said in str(raised.value)
        assert raised.value.code == "INVALID_INPUT"


@pytest.mark.cases(
    "sql",
    [
        "DELETE FROM result",
        "DROP TABLE result",
        "INSERT INTO result VALUES (1, 'a', 2, 'b')",
        "ATTACH 'other.db' AS other",
        "VACUUM INTO 'copy.db'",
        "PRAGMA user_version=7",
        "SELECT load_extension('x')",
        "SELECT readfile('/etc/passwd')",
        "SELECT 1; DELETE FROM result",
        "CREATE TEMP TABLE t (a)",
        "not SQL at all",
    ],
)
def test_nothing_but_a_select_runs(file: Path, sql: str) -> None:
    before = file.read_bytes()
    with pytest.raises(ToolFailed) as raised:
        ask(file, sql, most_bytes=9_000)
    assert raised.value.code == "INVALID_INPUT"
    assert file.read_bytes() == before
    assert not (Path.cwd() / "copy.db").exists()


def test_an_answer_keeps_within_its_rows_and_bytes(file: Path) -> None:
    most = ask(file, "SELECT a.id FROM result a, result b", most_bytes=1_000_000)
    assert (most["row_count"], most["truncated"]) == (MOST_ROWS, True)
    small = ask(file, "SELECT * FROM result", most_bytes=500)
    assert small["truncated"]
    assert 0 < small["row_count"] < 20


def test_values_are_as_they_were(tmp_path: Path) -> None:
    value = [{"i": 2**70, "b": True, "n": None, "f": 1.5, "t": "é\ud800", "j": {"k": [1]}, "B": 7}]
    rows = asked(tmp_path, value, "SELECT i, b, n, f, t, json_extract(j, '$.k[0]'), B_2 FROM result")
    assert rows == [[str(2**70), 1, None, 1.5, "é?", 1, 7]]


def test_items_entries_and_lines_can_be_asked_too(tmp_path: Path) -> None:
    assert asked(tmp_path, [3, 1, 2], "SELECT max(value) FROM result") == [[3]]
    (tmp_path / "v.db").unlink()
    assert asked(tmp_path, {"a": 1, "b": [2]}, "SELECT value FROM result WHERE key = 'b'") == [["[2]"]]
    (tmp_path / "v.db").unlink()
    assert asked(tmp_path, "one\ntwo", "SELECT rowid, line FROM result WHERE line LIKE 't%'") == [[2, "two"]]


def test_numbers_of_a_csv_are_numbers_unless_writing_them_so_would_change_them(tmp_path: Path) -> None:
    text = "zip,n,x,empty\n00123,5,1.50,\n10115,,2,\n20095,-7,3.25,\n"
    rows = asked(tmp_path, text, "SELECT typeof(zip), typeof(n), typeof(x), n + 1, zip FROM result")
    assert rows == [
        ["text", "integer", "real", 6, "00123"],
        ["text", "null", "real", None, "10115"],
        ["text", "integer", "real", -6, "20095"],
    ]


def test_rows_too_long_for_the_guard_are_cut_and_that_is_told(tmp_path: Path) -> None:
    build(tmp_path / "t.db", {"result": content_of([{"id": n, "text": "é" * 700_000} for n in range(2)], "")})
    found = ask(tmp_path / "t.db", "SELECT id, length(CAST(text AS TEXT)) FROM result", most_bytes=9_000)
    assert found["rows"] == [[0, CELL_BYTES // 2], [1, CELL_BYTES // 2]]
    assert "2 long cells were cut" in found["note"]


def test_too_many_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="too many for SQL"):
        build(tmp_path / "t.db", {"result": content_of({"columns": [f"c{n}" for n in range(2_000)], "rows": []}, "")})


@given(st.lists(st.text(max_size=12), min_size=1, max_size=12))
def test_any_names_can_be_columns_each_its_own(names: list[str]) -> None:
    made = column_names(names)
    assert len(made) == len(names)
    with closing(sqlite3.connect(":memory:")) as connection:
        doubled = [name.replace('"', '""') for name in made]
        connection.execute("CREATE TABLE t (" + ", ".join(f'"{name}"' for name in doubled) + ")")


def test_the_rows_are_written_once_for_many_questions(tmp_path: Path) -> None:
    copies, ref, made = DerivedFiles(tmp_path / "copies", most_bytes=10_000_000), new_ref(), []

    def rows() -> ResultContent:
        made.append(1)
        return content(table(100))

    for _ in range(3):
        found = ask_copy(copies, ref, rows, "SELECT count(*) FROM result", most_bytes=900)
        assert found["rows"] == [[100]]
    assert made == [1]


def test_a_failing_question_keeps_the_copy_for_the_next(tmp_path: Path) -> None:
    copies, ref = DerivedFiles(tmp_path / "copies", most_bytes=10_000_000), new_ref()
    with pytest.raises(ToolFailed, match="no such column"):
        ask_copy(copies, ref, lambda: content(table(9)), "SELECT nix FROM result", most_bytes=900)
    assert copies.find(ref) is not None
