from pathlib import Path

import pytest

from loom_worker.patterns import aliases
from loom_worker.patterns.aliases import all_names, backend_name, is_known, sort
from tests.support.pattern_files import MINIMAL, only

TABLES = {
    name: getattr(aliases, name)
    for name in ("PATTERN", "PARAMETER", "TEMPLATE", "EXAMPLE", "COMMON_ERROR", "RULE", "LIBRARY")
}
SPELLINGS = ["use_cases", "useCases", "UseCases", "use-cases", "use cases", "USE_CASES"]


@pytest.mark.cases("key", SPELLINGS)
def test_a_key_is_known_in_every_spelling(key: str) -> None:
    found = sort({key: 1}, aliases.PATTERN)
    assert (found.values, found.written, found.extra) == ({"use_cases": 1}, {"use_cases": key}, {})


@pytest.mark.cases("table", TABLES)
def test_every_name_means_one_key(table: str) -> None:
    for key, others in TABLES[table].items():
        for name in (key, *others):
            assert sort({name: 1}, TABLES[table]).values == {key: 1}
            assert is_known(name, TABLES[table])


@pytest.mark.cases("table", TABLES)
def test_the_key_wins_over_its_other_names_which_are_kept_and_told(table: str) -> None:
    for key, others in TABLES[table].items():
        for other in others:
            for given in ({key: 1, other: 2}, {other: 2, key: 1}):
                found = sort(given, TABLES[table])
                assert (found.values, found.extra, found.overruled) == ({key: 1}, {other: 2}, {other: key})


def test_of_several_other_names_the_first_of_the_table_wins() -> None:
    found = sort({"keywords": 1, "Triggers": 2, "questions": 3}, aliases.PATTERN)
    assert found.values == {"intents": 2}
    assert found.overruled == {"keywords": "Triggers", "questions": "Triggers"}


def test_a_key_without_a_value_leaves_the_field_to_its_other_names() -> None:
    found = sort({"intents": None, "triggers": ["x"], "later": None}, aliases.PATTERN)
    assert (found.values, found.extra, found.overruled) == ({"intents": ["x"]}, {"later": None}, {})


def test_keys_that_are_no_text_are_kept() -> None:
    assert sort({1: "a", False: "b", "name": "n"}, aliases.PATTERN).extra == {"1": "a", "False": "b"}


def test_names_are_listed_once() -> None:
    names = all_names(aliases.PATTERN)
    assert len(names) == len(set(names))
    assert {"intents", "trigger_conditions"} <= set(names)


@pytest.mark.cases(
    ("given", "meant"),
    [
        ("Postgres", "postgresql"),
        ("rest-api", "rest"),
        ("SQLite", "sqlite"),
        ("document", "documents"),
        ("cobol", "cobol"),
        ("", ""),
    ],
)
def test_backends_go_by_several_names(given: str, meant: str) -> None:
    assert backend_name(given) == meant


@pytest.mark.cases(
    ("legacy", "current"),
    [
        ("sql: SELECT 1", "templates: {sql: {content: SELECT 1}}"),
        ("prompt: Say it", "templates: {prompt: Say it}"),
        ("templates: SELECT 1", "templates: {template: SELECT 1}"),
        ("templates: [{name: x, content: a}, {name: y, sql: b}]", "templates: {x: a, y: b}"),
        ("templates: [a, {text: b}]", "templates: {template_1: a, template_2: b}"),
        ("templates: [x: {body: a}, y: {prompt: b}]", "templates: {x: a, y: b}"),
        ("template: {sql: a, description: d}", "templates: {template: {content: a, description: d}}"),
        ("template: {one: {sql: a}, two: b}", "templates: {one: a, two: b}"),
        ("templates: {content: {sql: a}, text: b}", "templates: {content: a, text: b}"),
        ("templates: {x: {sql: a, params: [name: n, m]}}", "templates: {x: {content: a, required_parameters: [n, m]}}"),
        ("parameters: {n: {type: int}, m: many, o: }", "params: [{name: n, type: int}, {name: m, desc: many}, o]"),
        ("params: [n, m]", "parameters: [{name: n}, {name: m}]"),
        ("variables: [n: {type: int}, m: many]", "parameters: [{name: n, type: int}, {name: m, description: many}]"),
        ("params: [{key: n, mandatory: 'yes', data-type: int}]", "parameters: [{name: n, required: true, type: int}]"),
        ("params: [{name: n, defaultValue: 3}]", "parameters: [{name: n, default: 3}]"),
        ("example: It was so", "examples: [{description: It was so}]"),
        ("examples: [It was so]", "examples: [{description: It was so}]"),
        ("examples: {first: {input: a, output: b}}", "examples: [{name: first, description: a, expected_result: b}]"),
        ("examples: {input: a, output: b}", "examples: [{description: a, expected_result: b}]"),
        ("examples: [{input: {n: 3}, result: b}]", "examples: [{parameters: {n: 3}, expected_result: b}]"),
        ("commonErrors: [{problem: a, why: b, resolution: c}]", "common_errors: [{error: a, cause: b, solution: c}]"),
        ("pitfalls: [a, b]", "common_errors: [{error: a}, {error: b}]"),
        ("errors: {a: b}", "common_errors: [{error: a, solution: b}]"),
        ("errors: {a: {fix: b, why: c}}", "common_errors: [{error: a, solution: b, cause: c}]"),
        ("errors: {error: a, fix: b}", "common_errors: [{error: a, solution: b}]"),
        ("bestPractices: [a, b: c]", 'best_practices: "a\\nb: c"'),
        ("rules: [{when: a, then: b}, c]", 'best_practices: "When a: b.\\nc"'),
        ("best_practices: x\nrule: {action: Do y!, why: z}", 'best_practices: "x\\nDo y! z"'),
        ("keywords: a, b", "intents: [a, b]"),
        ("intents: |\n  - a\n  - b", "intents: [a, b]"),
        ("intents: [Optimize: the slow part]", "intents: ['Optimize: the slow part']"),
        ("tags: a, b", "tags: [a, b]"),
        ("priority: high", "priority: 75"),
        ("importance: '40'", "priority: 40"),
        ("priority: 40.0", "priority: 40"),
        ("backend: postgres", "backend_type: postgresql"),
        ("relatedPatterns: a", "related_patterns: [a]"),
        ("syntax: [a, {b: {c: 1, d: true}}]", 'syntax: "a\\nb:\\n  c: 1\\n  d: true"'),
    ],
)  # fmt: skip
def test_what_older_libraries_wrote_means_what_is_written_now(tmp_path: Path, legacy: str, current: str) -> None:
    old, new = (only(tmp_path, f"{MINIMAL}{text}\n") for text in (legacy, current))
    assert old == new
