import json
from contextlib import closing
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.blobs.derived import DerivedFiles
from loom_worker.core.errors import ToolFailed
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.values.tools import Caller
from loom_worker.store.database import Database
from loom_worker.tools.references import References
from loom_worker.tools.result_rows import ResultContent, content_of, parsed
from loom_worker.tools.result_tools import CELL_BYTES, MOST_ROWS, ask, ask_copy, build, column_names, page, result_tools
from tests.unit.blobs.made import new_ref
from tests.unit.store.made import running
from tests.unit.tools.results.made import Make, caller_of, csv_text, keep, objects, orders, table
from tests.unit.tools.results.test_result_rows import VALUES


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


PAGE = 12 * 1024


class Tools:
    """The tools as a model calls them: arguments by the schema, an answer as text."""

    def __init__(self, references: References, caller: Caller, reference_bytes: int = 16_384) -> None:
        self.caller, self.references = caller, references
        self._tools = {t.spec.name: t for t in result_tools(references, reference_bytes=reference_bytes)}

    def keep(self, text: str, content_type: str = "text/plain") -> str:
        return keep(self.references, text, self.caller, content_type).reference.id

    def text(self, name: str, arguments: dict[str, Any]) -> str:
        tool = self._tools[name]
        jsonschema.validate(arguments, tool.spec.input_schema)
        answer = tool.run(arguments, self.caller)
        assert isinstance(answer, str)
        return answer

    def get(self, ref: str, **arguments: Any) -> Any:
        return json.loads(self.text("get_tool_result", {"ref": ref, **arguments}))

    def query(self, ref: str, sql: str, **arguments: Any) -> Any:
        return json.loads(self.text("query_tool_result", {"ref": ref, "sql": sql, **arguments}))


@pytest.fixture
def tools(references: References, caller: Caller) -> Tools:
    return Tools(references, caller)


def test_both_only_read_and_may_be_called_again(references: References) -> None:
    tools = result_tools(references, reference_bytes=16_384)
    assert [tool.spec.name for tool in tools] == ["get_tool_result", "query_tool_result"]
    for tool in tools:
        jsonschema.Draft202012Validator.check_schema(tool.spec.input_schema)
        assert (tool.is_idempotent, tool.is_read_only, tool.is_bounded) == (True, True, False)


@pytest.mark.parametrize("made", [table, objects, csv_text])
def test_a_page_of_rows_says_where_the_next_one_begins(tools: Tools, made: Any) -> None:
    ref = tools.keep(made(1_000))
    first = tools.get(ref)
    assert (len(first["rows"]), first["offset"], first["total"], first["next_offset"]) == (50, 0, 1_000, 50)
    assert [str(cell) for cell in first["rows"][3]] == [str(cell) for cell in orders(4)[3]]
    last = tools.get(ref, offset=999)
    assert (len(last["rows"]), last["next_offset"]) == (1, None)
    with pytest.raises(ToolFailed, match="there are 1000 rows"):
        tools.get(ref, offset=1_000)


@given(st.one_of(VALUES.map(lambda value: json.dumps(value) * 1), st.text(max_size=2_000)), st.integers(700, 3_000))
def test_all_pages_together_are_the_whole_and_each_keeps_within_its_bytes(text: str, most_bytes: int) -> None:
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    content, offset, seen = content_of(value, "text/plain"), 0, []
    while True:
        told = page(content, offset=offset, limit=7, most_bytes=most_bytes)
        assert len(told.encode()) <= most_bytes
        answer = json.loads(told)
        seen += list(answer["text"]) if "text" in answer else answer[content.kind]
        if answer["next_offset"] is None:
            break
        assert answer["next_offset"] > offset
        offset = answer["next_offset"]
    if "text" in answer:
        assert "".join(seen) == content.text
    else:
        assert len(seen) == len(content.rows)


def test_one_giant_line_comes_by_characters(tools: Tools) -> None:
    text = "".join(chr(0x4E00 + n % 5_000) for n in range(30_000))
    ref, offset, read = tools.keep(text), 0, ""
    while offset is not None:
        answer = tools.get(ref, offset=offset)
        assert (answer["unit"], answer["total"]) == ("characters", 30_000)
        read, offset = read + answer["text"], answer["next_offset"]
    assert read == text
    with pytest.raises(ToolFailed, match="30000 characters"):
        tools.get(ref, offset=30_000)


def test_lines_come_as_lines(tools: Tools) -> None:
    ref = tools.keep("".join(f"line {n}\n" for n in range(5_000)))
    assert tools.get(ref, offset=10, limit=2) == {
        "lines": ["line 10", "line 11"],
        "offset": 10,
        "total": 5_000,
        "next_offset": 12,
    }


def test_what_is_too_long_for_a_page_is_reached_by_the_path_it_is_told_with(tools: Tools) -> None:
    story, numbers = "word " * 9_000, list(range(9_000))
    ref = tools.keep(json.dumps({"data": [{"id": 1, "a/b": story, "n": numbers}], "total": 1}))
    (entry, _), row = tools.get(ref)["entries"], tools.get(ref, path="data")["rows"][0]
    assert entry == ["data", "(array of 1; path /data)"]
    assert row[0] == 1
    assert row[1].endswith("… (45000 characters; path /data/0/a~1b)")
    assert row[2] == "(array of 9000; path /data/0/n)"
    assert tools.get(ref, path="/data/0/n", offset=8_999)["items"] == [8_999]
    assert tools.get(ref, path="/data/0/a~1b")["text"].startswith("word word")


def test_a_row_too_wide_for_a_page_is_read_alone(tools: Tools) -> None:
    ref = tools.keep(json.dumps({"columns": [f"column_{n}" for n in range(1_500)], "rows": [list(range(1_500))] * 2}))
    with pytest.raises(ToolFailed, match="path /rows/0") as raised:
        tools.get(ref)
    assert raised.value.code == "INVALID_INPUT"
    assert tools.get(ref, path="/rows/0", limit=1_000)["items"][:3] == [0, 1, 2]


def test_reading_a_reference_never_makes_another(references: References, caller: Caller) -> None:
    tools = Tools(references, caller, reference_bytes=1_024)
    ref = tools.keep(table(500))
    assert len(tools.text("get_tool_result", {"ref": ref, "limit": 1_000}).encode()) < 1_024
    assert len(tools.text("query_tool_result", {"ref": ref, "sql": "SELECT * FROM result"}).encode()) < 1_024


def test_the_next_question_about_ten_thousand_rows_is_answered_from_the_reference(tools: Tools) -> None:
    ref = tools.keep(table(10_000))
    answer = tools.query(
        ref, "SELECT city, count(*) AS n, max(price) AS most FROM result GROUP BY city ORDER BY n DESC"
    )
    assert answer["columns"] == ["city", "n", "most"]
    assert answer["rows"][0] == ["Rome", 3_334, 87.5]
    assert tools.query(ref, "SELECT name FROM result WHERE id = 9999")["rows"] == [["Customer 993"]]


def test_a_part_of_a_result_and_several_results_can_be_asked(tools: Tools) -> None:
    ref = tools.keep(json.dumps({"total": 2, "data": [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]}))
    other = tools.keep(csv_text(20))
    assert tools.query(ref, "SELECT v FROM result WHERE id = 2", path="data")["rows"] == [["b"]]
    sql = "SELECT v, city FROM result JOIN orders USING (id) ORDER BY id"
    joined = tools.query(ref, sql, path="/data", refs={"orders": other})
    assert joined["rows"] == [["a", "Oslo"], ["b", "Lima"]]
    for refs in ({"RESULT": other}, {"a": other, "A": other}):
        with pytest.raises(ToolFailed, match="a name of its own"):
            tools.query(ref, "SELECT 1", refs=refs)


def test_no_tool_reads_what_another_session_kept(tools: Tools, references: References, database: Database) -> None:
    ref = tools.keep(table(100))
    assert tools.query(ref, "SELECT count(*) FROM result")["rows"] == [[100]]
    foreign = Tools(references, caller_of(running(database, "s2")))
    own = foreign.keep(table(3))
    ways: list[tuple[str, dict[str, Any]]] = [
        ("get_tool_result", {"ref": ref}),
        ("query_tool_result", {"ref": ref, "sql": "SELECT * FROM result"}),
        ("query_tool_result", {"ref": own, "sql": "SELECT * FROM x", "refs": {"x": ref}}),
    ]
    for name, arguments in ways:
        with pytest.raises(ToolFailed) as raised:
            foreign.text(name, arguments)
        assert raised.value.code == "ERROR_NOT_FOUND"


def test_a_lost_result_is_told_and_not_guessed(make: Make, caller: Caller) -> None:
    tools = Tools(make(memory_bytes=0), caller)
    ref = tools.keep(table(100))
    tools.references.stores.disk.drop([ref])
    with pytest.raises(ToolFailed, match="gone; call the tool again"):
        tools.get(ref)
    with pytest.raises(ToolFailed, match="gone; call the tool again"):
        tools.query(ref, "SELECT 1 FROM result")


@pytest.mark.cases(
    "name", ["sqlite_master", "SQLite_x", "", "a\0b", "a\n", "x" * 65, "1st", "a b", "é", "result", "Result"]
)
def test_a_name_that_no_table_can_have_is_a_fault_of_the_question(
    references: References, caller: Caller, name: str
) -> None:
    ref = keep(references, table(30), caller).reference.id
    query = result_tools(references, reference_bytes=16_384)[1]
    with pytest.raises(ToolFailed, match=r"^refs: ") as refused:
        query.run({"ref": ref, "sql": "SELECT 1 FROM result", "refs": {name: ref}}, caller)
    assert refused.value.code == "INVALID_INPUT"


def test_half_a_character_in_a_column_or_a_statement_breaks_nothing(tools: Tools) -> None:
    ref = tools.keep(json.dumps([{"a\ud800": 1, "a?": 2}] * 30))
    assert tools.query(ref, "SELECT * FROM result LIMIT 1")["columns"] == ["a?", "a?_2"]
    with pytest.raises(ToolFailed, match="half of a character") as refused:
        tools.query(ref, "SELECT '\ud800' FROM result")
    assert refused.value.code == "INVALID_INPUT"
