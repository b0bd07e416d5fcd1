import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.errors import ToolFailed
from loom_worker.tools.result_rows import MOST_CELLS, at, content_of, parsed, pointer
from tests.unit.tools.results.made import COLUMNS, csv_text, objects, orders, table

JSON = "application/json"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def content(text: str, content_type: str = "text/plain") -> Any:
    return content_of(parsed(text, content_type), content_type)


@pytest.mark.parametrize(("made", "source"), [(table, "table"), (objects, "objects"), (csv_text, "csv")])
def test_the_same_rows_are_found_in_every_form(made: Any, source: str) -> None:
    found = content(made(30))
    assert (found.kind, found.columns, found.source) == ("rows", tuple(COLUMNS), source)
    wanted = [[str(cell) for cell in row] for row in orders(30)]
    assert [[str(cell) for cell in row] for row in found.rows] == wanted


@pytest.mark.cases(
    ("text", "kind", "columns", "rows"),
    [
        ("[1,2,null]", "items", ("value",), [(1,), (2,), (None,)]),
        ("[]", "items", ("value",), []),
        ('{"a":1,"b":[2]}', "entries", ("key", "value"), [("a", 1), ("b", [2])]),
        ('[{"a":1},{"b":2}]', "rows", ("a", "b"), [(1, None), (None, 2)]),
        ("[[1,2],[3]]", "rows", ("column_1", "column_2"), [[1, 2], [3, None]]),
        ("[{},{}]", "items", ("value",), [({},), ({},)]),
        ("one\ntwo", "lines", ("line",), [("one",), ("two",)]),
        ("{broken", "lines", ("line",), [("{broken",)]),
        ("", "lines", ("line",), []),
        ('{"columns":[],"rows":[]}', "entries", ("key", "value"), [("columns", []), ("rows", [])]),
        ("[" * 5_000, "lines", ("line",), [("[" * 5_000,)]),
        ("[" * 101 + "]" * 101, "lines", ("line",), [("[" * 101 + "]" * 101,)]),
        ('{"a":' * 900 + "1" + "}" * 900, "lines", ("line",), [('{"a":' * 900 + "1" + "}" * 900,)]),
        ("[[" + "[" * 96 + "]" * 96 + "]]", "rows", ("column_1",), [[json.loads("[" * 96 + "]" * 96)]]),
        ("[NaN, -Infinity]", "items", ("value",), [("NaN",), ("-Infinity",)]),
        (f"[{'9' * 5_000}]", "lines", ("line",), [(f"[{'9' * 5_000}]",)]),
    ],
)
def test_each_form_is_what_it_looks_like(text: str, kind: str, columns: tuple[str, ...], rows: list[Any]) -> None:
    found = content(text)
    assert (found.kind, found.columns, list(found.rows)) == (kind, columns, rows)


@pytest.mark.cases(
    "text",
    [
        "Dear reader, hello.\nThis is prose, not data.\nIt has commas, few of them, by chance.",
        "a,b\n1,2",
        "1,2\n3,4\n5,6",
        "a,a\n1,2\n3,4",
        "a,b\n1,2\n3,4,5\n6,7",
        'a,b\n1,"never closed\n3,4',
        "a;b\n" + "1;2\n" * 30 + "1;2;3\n",
    ],
)
def test_text_that_is_no_table_stays_text(text: str) -> None:
    assert content(text).kind == "lines"


def test_a_declared_csv_may_be_ragged_and_have_quotes_and_a_mark() -> None:
    found = content('\ufeffa;b\n1;"x;\ny"\n\n2;3;4\n', "text/csv")
    assert found.columns == ("a", "b", "column_3")
    assert list(found.rows) == [["1", "x;\ny", None], ["2", "3", "4"]]
    assert content("", "text/csv").kind == "lines"


def test_rows_that_would_be_far_more_cells_than_values_stay_items() -> None:
    many = [{f"k{n}": n} for n in range(3_000)]
    ragged = [[0] * 3_000, *([0] for _ in range(3_000))]
    for value in (many, ragged, {"columns": [f"c{n}" for n in range(3_000)], "rows": [[]] * 3_000}):
        assert MOST_CELLS < 3_000 * 3_000
        assert content(json.dumps(value)).kind == "items"


@given(VALUES)
def test_every_place_of_a_value_is_reached_by_the_path_that_names_it(value: object) -> None:
    def check(place: object, path: str) -> None:
        assert at(value, path) == place
        assert pointer(path) == path
        found = content_of(place, JSON)
        for n, row in enumerate(found.rows):
            where = found.place(path, n)
            if where is not None and found.kind in ("items", "entries"):
                assert at(value, where) == row[-1]
        inner = place.items() if isinstance(place, dict) else enumerate(place) if isinstance(place, list) else ()
        for key, each in inner:
            check(each, f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}")

    if not isinstance(value, str):
        check(value, "")


@pytest.mark.cases("path", ["/data/1/name", "data[1].name", "data.1.name", "$.data[1].name"])
def test_both_ways_to_write_a_path_lead_to_the_same_place(path: str) -> None:
    assert at({"data": [{"name": "a"}, {"name": "b"}]}, path) == "b"
    assert pointer(path) == "/data/1/name"


@pytest.mark.cases("path", [None, "", "$", "."])
def test_no_path_is_the_whole(path: str | None) -> None:
    assert at([1], path) == [1]


@pytest.mark.cases(
    ("path", "told"),
    [
        ("/date", "its keys: data, total"),
        ("data[7]", "/data has 1 items, 0 to 0: no '7'"),
        ("data[-1]", "no '-1'"),
        ("/data/0/name/x", "/data/0/name is string"),
        ("/none/0", "has no 'none'"),
        ("/empty/0", "empty array"),
        ("x" * 2_000, "longer than"),
    ],
)
def test_a_path_that_leads_nowhere_says_what_there_is(path: str, told: str) -> None:
    with pytest.raises(ToolFailed) as raised:
        at({"data": [{"name": "a"}], "total": 1, "empty": []}, path)
    assert told in str(raised.value)
    assert raised.value.code == "INVALID_INPUT"


def test_text_has_no_paths() -> None:
    with pytest.raises(ToolFailed, match="text, not JSON"):
        at("plain text", "/0")


def test_a_cell_is_where_its_place_says() -> None:
    for text in (table(5), objects(5), "[[1,2],[3,4]]"):
        value = parsed(text, JSON)
        found = content_of(value, JSON)
        assert at(value, found.place("", 1, 1)) == found.rows[1][1]
    assert content(csv_text(5)).place("", 1, 1) is None
