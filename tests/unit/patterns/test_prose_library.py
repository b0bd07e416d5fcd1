"""What every pattern that ships with Loom holds to, whatever its library."""

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import loom_worker
from loom_worker.core.values.patterns import Pattern
from loom_worker.demo.shop import statements
from loom_worker.patterns.render import fill
from loom_worker.tools.result_rows import at, content_of
from loom_worker.tools.result_tools import ask, build
from tests.support.shipped_patterns import shipped

LIBRARY = shipped()
PATTERNS = {pattern.id: pattern for pattern in LIBRARY.patterns}
EACH = pytest.mark.cases("pattern", PATTERNS.values(), ids=PATTERNS)

DIFFICULTIES = {"beginner", "intermediate", "advanced"}
BACKENDS = {"", "sql", "sqlite", "postgresql", "mysql", "duckdb", "rest", "documents", "mcp"}
RULE_CHARS = 500
"""Practices of this length are a procedure by themselves, as the rule of a library entry is."""
PLACEHOLDER = re.compile(r"\{\{\s*\.?(\w+)\s*\}\}")
IN_TICKS = re.compile(r"`([a-z]+(?:_[a-z]+)+)\b[^`]*`")
CALLED = re.compile(r"\b([a-z]+(?:_[a-z]+)+)\((?:path|query|ref|prefix|error_id|id|sql|tables)\b")
"""A call with an argument that only Loom's tools have."""


def texts(pattern: Pattern) -> Iterator[str]:
    """All that the model may come to read of a pattern."""
    yield from (pattern.title, pattern.description, pattern.best_practices, pattern.syntax)
    for template in pattern.templates.values():
        yield from (template.text, template.description, template.output_format)
    for parameter in pattern.parameters:
        yield parameter.description
    for example in pattern.examples:
        yield from (example.description, example.expected_result, example.notes)
    for error in pattern.common_errors:
        yield from (error.error, error.cause, error.solution)


def plain(intent: str) -> str:
    return " ".join(re.findall(r"\w+", intent.casefold()))


@cache
def tools_of_loom() -> frozenset[str]:
    """The names in every ToolSpec of the package, read from its source: they are of many rooms."""
    names = {f"shared_memory_{verb}" for verb in ("write", "read", "list", "delete", "watch")}
    for file in Path(loom_worker.__file__).parent.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "ToolSpec(" in text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ToolSpec":
                given = [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "name")]
                names |= {str(value.value) for value in given if isinstance(value, ast.Constant)}
    return frozenset(names)


COLUMNS = set(re.findall(r"\w+", statements("tables")))


def test_there_are_many_patterns_of_many_libraries_and_each_file_is_read() -> None:
    assert LIBRARY.problems == ()
    assert len(PATTERNS) >= 65
    assert len({pattern_id.partition("/")[0] for pattern_id in PATTERNS}) >= 11


def test_no_id_is_there_twice() -> None:
    twice = [each for each, times in Counter(pattern.id for pattern in LIBRARY.patterns).items() if times > 1]
    assert twice == []


def test_no_two_patterns_share_an_intent_word_for_word() -> None:
    claimed = Counter(plain(intent) for pattern in PATTERNS.values() for intent in pattern.intents)
    shared = {
        intent: [each.id for each in PATTERNS.values() if intent in map(plain, each.intents)]
        for intent, times in claimed.items()
        if times > 1
    }
    assert shared == {}


@EACH
def test_a_pattern_has_what_a_reader_needs(pattern: Pattern) -> None:
    assert pattern.title
    assert len(pattern.description) >= 60
    assert len(pattern.intents) >= 6
    assert len(pattern.use_cases) >= 2
    assert pattern.best_practices
    assert pattern.templates or pattern.syntax or len(pattern.best_practices) >= RULE_CHARS


@EACH
def test_kind_and_difficulty_are_of_those_there_are(pattern: Pattern) -> None:
    assert pattern.difficulty in DIFFICULTIES
    assert pattern.backend_type in BACKENDS
    assert re.fullmatch(r"[a-z][a-z ]{2,29}", pattern.category)


@EACH
def test_related_patterns_are_there_and_are_others(pattern: Pattern) -> None:
    assert set(pattern.related_patterns) <= set(PATTERNS) - {pattern.id}


@EACH
def test_every_placeholder_has_a_parameter_and_every_parameter_a_place(pattern: Pattern) -> None:
    used = {name for text in (*texts(pattern), pattern.syntax) for name in PLACEHOLDER.findall(text)}
    assert used == {parameter.name for parameter in pattern.parameters}


@EACH
def test_every_parameter_is_described_and_can_be_left_out(pattern: Pattern) -> None:
    for parameter in pattern.parameters:
        assert parameter.description, parameter.name
        assert parameter.example, parameter.name
        assert parameter.is_required or parameter.default is not None, parameter.name
        assert not PLACEHOLDER.search(f"{parameter.default} {parameter.example}"), parameter.name


@EACH
def test_no_braces_are_left_once_a_template_is_filled(pattern: Pattern) -> None:
    values = {parameter.name: parameter.example for parameter in pattern.parameters}
    for name, template in pattern.templates.items():
        assert not PLACEHOLDER.search(fill(template.text, values)), name


@EACH
def test_an_example_uses_parameters_of_its_pattern(pattern: Pattern) -> None:
    for example in pattern.examples:
        assert example.parameters.keys() <= {parameter.name for parameter in pattern.parameters}


@EACH
def test_every_tool_that_a_pattern_names_exists(pattern: Pattern) -> None:
    own = {parameter.name for parameter in pattern.parameters} | COLUMNS
    tools = tools_of_loom()
    verbs = {name.partition("_")[0] for name in tools}
    found = {name for text in texts(pattern) for name in (*IN_TICKS.findall(text), *CALLED.findall(text))}
    assert {name for name in found - own if name.partition("_")[0] in verbs} <= tools


def test_a_made_up_tool_is_found() -> None:
    assert IN_TICKS.findall("ask `get_weather` and `list_tables(x)`, `orders` or get_time") == [
        "get_weather",
        "list_tables",
    ]
    assert CALLED.findall('search_web(query="x"), round_up(x)') == ["search_web"]
    assert {"execute_sql", "get_tool_result", "read_document", "load_pattern"} <= tools_of_loom()
    assert not {"get_weather", "search_web"} & tools_of_loom()


ORDERS = [{"id": 1, "customer_id": 7}, {"id": 2, "customer_id": 8}, {"id": 3, "customer_id": 9}]
CUSTOMERS = [{"id": "7", "name": "Ada"}, {"id": "8", "name": "Bo"}]


@pytest.mark.parametrize("template", ["sql", "sql_wrapped"])
def test_the_sql_that_joins_two_answers_of_an_api_runs_over_stored_results(tmp_path: Path, template: str) -> None:
    pattern = PATTERNS["rest/join_two_endpoints"]
    sql = fill(pattern.templates[template].text, {"key": "id", "foreign_key": "customer_id"})
    right: object = {"data": CUSTOMERS, "next": None} if template == "sql_wrapped" else CUSTOMERS
    build(tmp_path / "both.db", {"result": content_of(ORDERS, ""), "r": content_of(right, "application/json")})
    assert [row[-1] for row in ask(tmp_path / "both.db", sql, most_bytes=10_000)["rows"]] == ["Ada", "Bo", None]


def test_a_page_kept_as_a_reference_is_counted_as_the_pattern_of_pages_says(tmp_path: Path) -> None:
    procedure = fill(PATTERNS["rest/walk_pages"].templates["procedure"].text, {"key": "id", "items_field": "data"})
    sql = re.search(r'path="/data", sql="([^"]+)"', procedure)
    assert sql is not None
    page = json.loads(json.dumps({"data": ORDERS, "next": "c2"}))
    build(tmp_path / "page.db", {"result": content_of(at(page, "/data"), "")})
    assert ask(tmp_path / "page.db", sql[1], most_bytes=10_000)["rows"] == [[3, 1, 3]]
    assert content_of(at(page, "/next"), "").rows == [("c2",)]
