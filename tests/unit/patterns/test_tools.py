from collections.abc import Sequence
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.json import Json
from loom_worker.core.values.patterns import Pattern, Template
from loom_worker.core.values.tools import Tool
from loom_worker.patterns.render import as_document
from loom_worker.patterns.tools import FAILURE_CHARS, MOST_LINES, pattern_tools
from tests.support.callers import CALLER


class Shelf:
    """Patterns by id."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = {pattern.id: pattern for pattern in patterns}

    def by_id(self, pattern_id: str) -> Pattern | None:
        return self._patterns.get(pattern_id)

    def ids(self) -> tuple[str, ...]:
        return tuple(self._patterns)

    def patterns(self) -> tuple[Pattern, ...]:
        return tuple(self._patterns.values())


def pattern(pattern_id: str, title: str = "Best sellers", **fields: Any) -> Pattern:
    return Pattern(pattern_id, pattern_id.rpartition("/")[2], title, **fields)


TOP = pattern(
    "sql/top_n",
    category="Ranking",
    description="Ranks products by revenue.",
    tags=("shop",),
    intents=("what sells",),
    use_cases=("advertising",),
    templates={"t": Template("LIMIT {{n}} {{b}} {{many}}")},
)
PATTERNS = (TOP, pattern("text/proofread", "Proofread\na text", category="writing"), pattern("sql/slow", "Slow"))


def tools(patterns: Sequence[Pattern] = PATTERNS) -> tuple[Tool, Tool]:
    load, listing = pattern_tools(Shelf(patterns))
    return load, listing


def loaded(arguments: Json, patterns: Sequence[Pattern] = PATTERNS) -> str:
    return str(tools(patterns)[0].run(arguments, CALLER))


def listed(patterns: Sequence[Pattern] = PATTERNS, **arguments: str) -> list[str]:
    return str(tools(patterns)[1].run(arguments, CALLER)).split("\n")


def test_both_may_run_within_a_turn_and_again() -> None:
    assert [tool.spec.name for tool in tools()] == ["load_pattern", "list_patterns"]
    for tool in tools():
        assert (tool.is_bounded, tool.is_read_only, tool.is_idempotent, tool.origin) == (True, True, True, None)


def test_load_pattern_gives_the_document() -> None:
    assert loaded({"id": "sql/top_n"}) == as_document(TOP)


def test_load_pattern_fills_in_what_it_is_given() -> None:
    text = loaded({"id": "sql/top_n", "parameters": {"n": 5, "b": True, "many": ["a", 2, 0.5]}})
    assert "LIMIT 5 true a, 2, 0.5" in text
    assert "Without a value: n, b, many." in loaded({"id": "sql/top_n", "parameters": {}})


@pytest.mark.cases(
    ("arguments", "is_taken"),
    [
        ({"id": "a", "parameters": {"n": 5, "s": "x", "f": 1.5, "b": False, "l": ["a"]}}, True),
        ({"id": "a", "parameters": {"n": {"deep": 1}}}, False),
        ({"id": "a", "parameters": {"n": "x" * 2_001}}, False),
        ({"id": "a", "parameters": {"n": ["x" * 2_001]}}, False),
        ({"id": "a", "parameters": {str(n): "x" for n in range(51)}}, False),
        ({"id": "a", "more": 1}, False),
        ({}, False),
    ],
)
def test_the_schema_of_load_pattern_takes_plain_values_of_some_length(arguments: Json, is_taken: bool) -> None:
    schema = tools()[0].spec.input_schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert jsonschema.Draft202012Validator(schema).is_valid(arguments) is is_taken


def test_the_schema_of_list_patterns_knows_a_category_and_a_query() -> None:
    schema = jsonschema.Draft202012Validator(tools()[1].spec.input_schema)
    assert schema.is_valid({"category": "sql", "query": "q" * 200})
    assert not schema.is_valid({"query": "q" * 201})
    assert not schema.is_valid({"library": "sql"})


@pytest.mark.cases("wanted", ["sql/topn", "top_n", "TOP_N", "rest/top_m", "sql/top"])
def test_an_unknown_id_is_answered_with_a_near_one(wanted: str) -> None:
    with pytest.raises(ToolFailed, match="there is sql/top_n") as failed:
        loaded({"id": wanted})
    assert failed.value.code == "ERROR_NOT_FOUND"


def test_of_two_patterns_of_one_name_that_of_the_asked_library_is_named() -> None:
    twins = [pattern("a/top_n"), pattern("b/top_n"), pattern("c/top_n")]
    for library in "abc":
        with pytest.raises(ToolFailed, match=f"there is {library}/top_n"):
            loaded({"id": f"{library}/topn"}, twins)


@given(st.text(max_size=60), st.lists(st.text(min_size=1, max_size=110), max_size=3))
def test_a_failure_is_one_line_of_100_characters_at_most(wanted: str, names: list[str]) -> None:
    patterns = [pattern(f"sql/{name}", category=name) for name in names]
    asked = [({"id": f"no such {wanted}"}, 0), ({"category": f"no such {wanted}"}, 1)]
    for arguments, at in asked:
        with pytest.raises(ToolFailed) as failed:
            tools(patterns)[at].run(arguments, CALLER)
        assert len(str(failed.value)) <= FAILURE_CHARS
        assert len(str(failed.value).splitlines()) == 1


@pytest.mark.parametrize(("room", "told"), [(0, ["sql/top_x", "sql/top"]), (1, ["sql/top_x"])])
def test_as_many_hints_are_given_as_fit(room: int, told: list[str]) -> None:
    library = "l" * (FAILURE_CHARS + room - len("no pattern 'top_n'; there is sql/top_x, /top"))
    told = [hint.replace("sql/top", f"{library}/top") if hint == "sql/top" else hint for hint in told]
    with pytest.raises(ToolFailed) as failed:
        loaded({"id": "top_n"}, [pattern("sql/top_x"), pattern(f"{library}/top")])
    assert str(failed.value) == f"no pattern 'top_n'; there is {', '.join(told)}"


def test_a_category_that_is_not_said_is_no_hint() -> None:
    with pytest.raises(ToolFailed, match="no category 'zzz'; there is sql, text"):
        listed([pattern("sql/a"), pattern("text/b")], category="zzz")


def test_a_name_too_long_to_be_told_is_cut() -> None:
    with pytest.raises(ToolFailed) as failed:
        loaded({"id": "sql/x"}, [pattern("sql/x" + "\n" + "y" * 200)])
    assert str(failed.value) == f"no pattern 'sql/x'; there is sql/x {'y' * 64}…"


def test_an_empty_library_says_so() -> None:
    with pytest.raises(ToolFailed, match="no pattern 'sql/top_n'; the library is empty"):
        loaded({"id": "sql/top_n"}, [])
    with pytest.raises(ToolFailed, match="no category 'sql'; the library is empty"):
        listed([], category="sql")
    assert listed([]) == ["The library is empty."]


def test_the_list_is_grouped_by_library_with_a_line_each() -> None:
    assert listed() == [
        "sql:",
        "- sql/top_n: Best sellers",
        "- sql/slow: Slow",
        "text:",
        "- text/proofread: Proofread a text",
    ]


@pytest.mark.cases(
    ("category", "ids"),
    [
        ("sql", ["top_n", "slow"]),
        ("/", ["top_n", "slow", "proofread", "deep"]),
        (" SQL/ ", ["top_n", "slow"]),
        ("ranking", ["top_n"]),
        ("WRITING", ["proofread"]),
        ("text", ["proofread", "deep"]),
        ("text/more", ["deep"]),
        ("", ["top_n", "slow", "proofread", "deep"]),
    ],
)
def test_a_category_is_a_library_or_what_patterns_call_theirs(category: str, ids: list[str]) -> None:
    lines = listed([*PATTERNS, pattern("text/more/deep")], category=category)
    assert [line.split(":")[0].rpartition("/")[2] for line in lines if "- " in line] == ids


@pytest.mark.cases(
    ("wanted", "told"),
    [
        ("rankin", "no category 'rankin'; there is Ranking"),
        ("SQ", "no category 'SQ'; there is sql"),
        ("zzz", "no category 'zzz'; there is sql, Ranking"),
        ("Writ", "no category 'Writ'; there is writing"),
    ],
)
def test_an_unknown_category_is_answered_with_the_nearest(wanted: str, told: str) -> None:
    with pytest.raises(ToolFailed) as failed:
        listed(category=wanted)
    assert str(failed.value) == told
    assert failed.value.code == "ERROR_NOT_FOUND"


@pytest.mark.cases(
    "query", ["top_n", "BEST sellers", "revenue ranks", "shop", "what sells", "advertising", "ranking revenue"]
)
def test_a_query_finds_what_has_all_its_words_wherever_they_stand(query: str) -> None:
    assert listed(query=query) == ["sql:", "- sql/top_n: Best sellers"]


def test_a_query_that_nothing_has_says_so() -> None:
    assert listed(query="revenue moon") == ["No pattern of these has all those words; try fewer or other ones."]
    assert listed(query="revenue", category="text") == listed(query="revenue moon")


def test_100_lines_are_shown_whole() -> None:
    lines = listed([pattern(f"sql/p{n}") for n in range(MOST_LINES - 1)])
    assert len(lines) == MOST_LINES
    assert lines[-1] == "- sql/p98: Best sellers"


def test_as_many_lines_as_may_be_are_used() -> None:
    lines = listed([pattern(f"sql/p{n}") for n in range(MOST_LINES)])
    assert len(lines) == MOST_LINES
    assert lines[-2:] == ["- sql/p97: Best sellers", "… and 2 more (sql 2); ask by category or query."]


def test_the_count_of_the_rest_is_a_short_line_too() -> None:
    last = listed([pattern(f"library{n}/p") for n in range(400)])[-1]
    assert last.startswith("… and 351 more (library49 1, library50 1, ")
    assert last.endswith("…); ask by category or query.")
    assert len(last) < 600


def test_what_patterns_say_takes_a_line_each_whatever_it_is() -> None:
    evil = "a\nb\u202e c"
    assert listed([pattern(f"{evil}/{evil}", evil + "x" * 500)]) == ["a b c:", f"- a b c/a b c: a b c{'x' * 114}…"]


def test_of_more_lines_the_rest_is_counted_by_library() -> None:
    many = [pattern(f"a/p{n}") for n in range(97)] + [pattern(f"{name}/p{n}") for name in "bc" for n in range(2)]
    lines = listed(many)
    assert len(lines) == MOST_LINES - 1
    assert lines[-2:] == ["- a/p96: Best sellers", "… and 4 more (b 2, c 2); ask by category or query."]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 60)), max_size=300, unique=True))
def test_every_pattern_is_listed_or_counted(places: list[tuple[str, int]]) -> None:
    lines = listed([pattern(f"{library}/{n}") for library, n in places])
    shown = sum(line.startswith("- ") for line in lines)
    rest = int(lines[-1].split()[2]) if lines[-1].startswith("…") else 0
    assert len(lines) <= MOST_LINES
    assert shown + rest == len(places)
    assert not lines[-1].endswith(":")
