from pathlib import Path

from loom_worker.patterns.library import Library, load, packaged_root
from loom_worker.values.patterns import Parameter

MINIMAL = "name: top_n\ncategory: ranking\n"
FULL = """
name: top_n
title: The best
description: Ranks.
category: ranking
difficulty: beginner
backend_type: sql
use_cases: [one, two]
intents: what sold best
related_patterns: [sql/other]
parameters:
  - {name: n, type: integer, required: true, description: how many, example: 3, default: 10}
  - {name: since, default: 2025-01-01}
  - {name: deep, default: true}
  - {name: free}
  - {name: columns, default: [a, 2, 2025-01-01]}
templates:
  plain: SELECT 1
  mapped: {description: with more, content: SELECT 2, output_format: table}
  named: {sql: SELECT 3}
best_practices: [first, second]
syntax: {keep: me}
examples: [{name: x}]
"""


def library(root: Path, **files: str) -> Library:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path = path.with_name(path.name + ".yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return load(root)


def test_every_field_of_the_flat_format_arrives(tmp_path: Path) -> None:
    (pattern,) = library(tmp_path, sql__a=FULL).patterns
    assert pattern.id == "sql/top_n"
    assert (pattern.title, pattern.difficulty, pattern.backend_type) == ("The best", "beginner", "sql")
    assert pattern.use_cases == ("one", "two")
    assert pattern.intents == ("what sold best",)
    assert pattern.parameters == (
        Parameter("n", "integer", True, "how many", "3", "10"),
        Parameter("since", default="2025-01-01"),
        Parameter("deep", default="true"),
        Parameter("free", default=None),
        Parameter("columns", default="a, 2, 2025-01-01"),
    )
    assert pattern.templates == {"plain": "SELECT 1", "mapped": "SELECT 2", "named": "SELECT 3"}
    assert pattern.best_practices == "first\nsecond"
    assert pattern.source == "sql/a.yaml"


def test_keys_without_a_field_are_kept(tmp_path: Path) -> None:
    (pattern,) = library(tmp_path, sql__a=FULL).patterns
    assert pattern.extra["syntax"] == {"keep": "me"}
    assert pattern.extra["examples"] == [{"name": "x"}]
    assert pattern.extra["templates"] == {"mapped": {"description": "with more", "output_format": "table"}}


def test_a_pattern_without_a_title_is_titled_by_its_name(tmp_path: Path) -> None:
    assert library(tmp_path, sql__a=MINIMAL).patterns[0].title == "Top n"


def test_ids_carry_the_whole_folder_so_equal_names_do_not_clash(tmp_path: Path) -> None:
    found = library(tmp_path, sql__a=MINIMAL, sql__deep__a=MINIMAL, rest__a=MINIMAL)
    assert {pattern.id for pattern in found.patterns} == {"sql/top_n", "sql/deep/top_n", "rest/top_n"}
    assert found.problems == ()


def test_a_file_may_hold_several_patterns(tmp_path: Path) -> None:
    found = library(tmp_path, sql__a=f"{MINIMAL}---\nname: second\ncategory: c\n")
    assert [pattern.id for pattern in found.patterns] == ["sql/top_n", "sql/second"]


def test_a_duplicate_id_is_told_and_the_first_one_stays(tmp_path: Path) -> None:
    found = library(tmp_path, sql__a=MINIMAL + "title: first\n", sql__b=MINIMAL)
    assert [pattern.title for pattern in found.patterns] == ["first"]
    assert found.problems == (
        f"{tmp_path}/sql/b.yaml:1: sql/top_n is already defined in sql/a.yaml; this one is left out",
    )


def test_a_broken_pattern_costs_neither_its_file_nor_the_library(tmp_path: Path) -> None:
    found = library(
        tmp_path, sql__a=f"name: [1]\ncategory: c\n---\n{MINIMAL}", sql__b="{", sql__c="name: ok\ncategory: c"
    )
    assert [pattern.id for pattern in found.patterns] == ["sql/top_n", "sql/ok"]
    first, second = found.problems
    assert first == f"{tmp_path}/sql/a.yaml:1: name: a text is needed, not list"
    assert second.startswith(f"{tmp_path}/sql/b.yaml:")


def test_problems_name_the_line_of_their_document(tmp_path: Path) -> None:
    found = library(tmp_path, sql__a=f"{MINIMAL}---\ncategory: c\n")
    assert found.problems == (f"{tmp_path}/sql/a.yaml:4: name is missing",)


def test_what_is_wrong_is_said_for_each_kind_of_mistake(tmp_path: Path) -> None:
    mistakes = {
        "just text": "a pattern: a mapping is needed, not str",
        "category: c": "name is missing",
        "name: a": "category is missing",
        "name: a b\ncategory: c": "name: 'a b' may hold letters, digits, '_', '-' and '.' only",
        MINIMAL + "parameters: {a: 1}": "parameters: a list is needed, not dict",
        MINIMAL + "parameters: [{type: x}]": "parameters[0].name is missing",
        MINIMAL + "parameters: [n]": "parameters[0]: a mapping is needed, not str",
        MINIMAL + "templates: {a: {description: b}}": (
            "templates.a: a text is needed, or a mapping with content or sql, not nothing"
        ),
        MINIMAL + "templates: SELECT 1": "templates: a mapping is needed, not str",
        MINIMAL + "parameters: [{name: n, default: {a: 1}}]": "parameters[0].default: a text is needed, not dict",
        MINIMAL + "parameters: [{name: n, default: [[a]]}]": "parameters[0].default: a text is needed, not list",
        MINIMAL + "intents: [[a]]": "intents[0]: a text is needed, not list",
    }
    for n, (text, reason) in enumerate(mistakes.items()):
        found = library(tmp_path / str(n), sql__a=text)
        assert found.patterns == ()
        assert found.problems == (f"{tmp_path}/{n}/sql/a.yaml:1: {reason}",)


def test_a_library_file_is_named_as_not_readable_here(tmp_path: Path) -> None:
    found = library(
        tmp_path, sql__a="apiVersion: loom/v1\nkind: PatternLibrary\nmetadata: {name: x}\nspec: {entries: []}"
    )
    assert found.patterns == ()
    assert "kind: PatternLibrary is not read as a pattern" in found.problems[0]


def test_a_file_outside_of_a_library_folder_is_told(tmp_path: Path) -> None:
    found = library(tmp_path, lonely=MINIMAL)
    assert found.patterns == ()
    assert found.problems[0].startswith(f"{tmp_path}/lonely.yaml:1: a pattern file belongs in a library folder")


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "README.md").write_text("{")
    assert load(tmp_path) == Library((), ())


def test_a_missing_folder_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    assert load(tmp_path / "nowhere").problems == (f"{tmp_path}/nowhere: no such folder",)


def test_a_number_without_end_costs_its_own_pattern(tmp_path: Path) -> None:
    found = library(tmp_path, sql__a=f"{MINIMAL}title: 0x{'f' * 9000}\n", sql__b=MINIMAL)
    assert [pattern.source for pattern in found.patterns] == ["sql/b.yaml"]
    assert "sql/a.yaml:1: " in found.problems[0]


def test_a_bomb_of_brackets_is_refused(tmp_path: Path) -> None:
    found = library(tmp_path, sql__a="name: " + "[" * 40_000, sql__b=MINIMAL)
    assert len(found.patterns) == 1
    assert "nested deeper than" in found.problems[0]


def test_the_packaged_library_loads_whole() -> None:
    found = load(packaged_root())
    assert found.problems == ()
    assert len(found.patterns) >= 12
    assert {pattern.id.split("/")[0] for pattern in found.patterns} >= {"sql"}
