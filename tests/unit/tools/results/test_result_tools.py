import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.tools import Caller
from loom_worker.store.database import Database
from loom_worker.tools.references import References
from loom_worker.tools.result_rows import content_of
from loom_worker.tools.result_tools import page, result_tools
from tests.unit.store.made import running
from tests.unit.tools.results.made import Make, caller_of, csv_text, keep, objects, orders, table
from tests.unit.tools.results.test_result_rows import VALUES

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
