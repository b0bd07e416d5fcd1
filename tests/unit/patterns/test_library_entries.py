from pathlib import Path

import pytest

from loom_worker.core.values.patterns import Example, Template
from tests.support.pattern_files import library, only, refused

LIBRARY = """\
apiVersion: loom/v1
kind: PatternLibrary
metadata:
  name: core
  version: 1.2.0
  domain: analytics
  description: What everyone needs.
  backend: postgres
spec:
  entries:
    - name: ranked
      description: Ranks.
      trigger_conditions: [top of the list, best sellers]
      template: SELECT {{columns}} FROM {{table}}
      priority: 90
      tags: [rank]
    - name: shown
      category: text
      example: |
        It may look so.
    - name: ruled
      rule: {condition: a filter has no index, action: add one, rationale: Whole tables are read otherwise.}
"""


def test_the_entries_of_a_library_are_patterns(tmp_path: Path) -> None:
    found = library(tmp_path, sql__a=LIBRARY)
    assert found.problems == ()
    ranked, shown, ruled = found.patterns
    assert [(pattern.id, pattern.line) for pattern in found.patterns] == [
        ("sql/core/ranked", 11),
        ("sql/core/shown", 17),
        ("sql/core/ruled", 21),
    ]
    assert (ranked.category, ranked.priority, ranked.tags) == ("analytics", 90, ("rank",))
    assert ranked.intents == ("top of the list", "best sellers")
    assert ranked.templates == {"template": Template("SELECT {{columns}} FROM {{table}}")}
    assert (shown.category, shown.examples) == ("text", (Example(description="It may look so."),))
    assert ruled.best_practices == "When a filter has no index: add one. Whole tables are read otherwise."
    assert {pattern.backend_type for pattern in found.patterns} == {"postgresql"}


def test_what_a_library_tells_of_itself_is_kept_and_is_not_what_its_patterns_say(tmp_path: Path) -> None:
    before = library(tmp_path, sql__a=LIBRARY).patterns
    assert before[0].extra["library"] == {
        "name": "core", "version": "1.2.0", "description": "What everyone needs."
    }  # fmt: skip
    after = library(tmp_path, sql__a=LIBRARY.replace("1.2.0", "1.3.0")).patterns
    assert after[0].extra["library"]["version"] == "1.3.0"
    assert [pattern.digest for pattern in after] == [pattern.digest for pattern in before]


ENTRY = "{name: a, intents: [x], template: t}"


@pytest.mark.parametrize(
    "text",
    [
        "patterns:\n- name: a\n  intents: [x]\n  template: t",
        f"name: sql\nversion: 1\ndomain: sql\ndescription: d\npatterns: [{ENTRY}]",
        f"metadata: {{name: sql, domain: sql}}\npatterns: [{ENTRY}]",
        f"kind: PatternLibrary\npatterns: [{ENTRY}]",
        f"kind: pattern-library\nspec: {{patterns: [{ENTRY}]}}",
        f"spec: {{entries: [{ENTRY}]}}",
        f"entries: [{ENTRY}]",
        "patterns:\n  a: {intents: [x], template: t}",
        f"category: sql\npatterns: [{ENTRY}]",
        f"- {ENTRY}",
        "- name: a\n  triggers: x\n  templates: {template: {content: t}}",
        "apiVersion: loom/v1\nkind: Pattern\nmetadata: {name: a}\nspec: {intents: [x], template: t}",
        "kind: Pattern\nmetadata: {name: other, category: sql}\nspec: {name: a, intents: x, template: t}",
        "pattern: {name: a, category: sql, intents: [x], template: t}",
        "kind: Pattern\nname: a\ncategory: sql\nintents: x\ntemplate: t",
    ],
)
def test_each_way_to_write_a_library_says_the_same(tmp_path: Path, text: str) -> None:
    pattern = only(tmp_path, text)
    flat = only(tmp_path, "name: a\ncategory: sql\nintents: [x]\ntemplate: t")
    assert pattern.digest == flat.digest


def test_a_folder_stands_in_for_a_category_only_outside_of_the_flat_format(tmp_path: Path) -> None:
    found = library(tmp_path, deep__sales__a="patterns: [{name: a}]", deep__sales__b="name: b")
    assert [(pattern.id, pattern.category) for pattern in found.patterns] == [("deep/sales/a", "sales")]
    assert found.problems == (f"{tmp_path}/deep/sales/b.yaml:1: category is missing",)


def test_a_broken_entry_is_told_with_its_line_and_costs_no_other(tmp_path: Path) -> None:
    text = LIBRARY.replace("priority: 90", "priority: urgent") + "    - just text\n    - description: nameless\n"
    found = library(tmp_path, sql__a=text)
    assert [pattern.name for pattern in found.patterns] == ["shown", "ruled"]
    assert found.problems == (
        f"{tmp_path}/sql/a.yaml:15: spec.entries[0].priority: a whole number from 0 to 100 is needed, not urgent",
        f"{tmp_path}/sql/a.yaml:23: spec.entries[3]: a mapping is needed, not str",
        f"{tmp_path}/sql/a.yaml:24: spec.entries[4].name is missing",
    )


def test_one_name_twice_in_a_library_is_told_with_the_line_of_the_second(tmp_path: Path) -> None:
    found = library(tmp_path, sql__a="patterns:\n- {name: a, title: one}\n- {name: b}\n- {name: a}\n")
    assert [pattern.title for pattern in found.patterns] == ["one", "B"]
    assert found.problems[0].startswith(f"{tmp_path}/sql/a.yaml:4: sql/a is already defined")


def test_a_key_that_stands_twice_costs_its_own_entry(tmp_path: Path) -> None:
    found = library(tmp_path, sql__a="patterns: [{name: a, title: x, title: y}, {name: b}]")
    assert [pattern.name for pattern in found.patterns] == ["b"]
    assert found.problems == (f"{tmp_path}/sql/a.yaml:1: the key title stands twice in one mapping",)


def test_a_list_of_patterns_that_stands_twice_is_told(tmp_path: Path) -> None:
    found = library(tmp_path, sql__a="patterns: [{name: a}]\npatterns: [{name: b}]\n")
    assert [pattern.name for pattern in found.patterns] == ["b"]
    assert found.problems == (f"{tmp_path}/sql/a.yaml:2: the key patterns stands twice in one mapping",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: PatternLibrary\nmetadata: {name: x}", "1: spec.entries is missing"),
        ("kind: PatternLibrary\nspec:\n  entries: 3", "3: spec.entries: a list of patterns is needed"),
        ("metadata: 3\npatterns: [{name: a}]", "1: metadata: a mapping is needed, not int"),
        ("kind: Pattern\nmetadata: {name: a}\nspec:\n  priority: -1", "4: priority: a whole number from 0 to 100"),
        ("kind: Pattern\nspec:\n  intents: [x]\nmetadata:\n  name: a b", "5: name: 'a b' may hold"),
        ("pattern: 3", "1: pattern: a mapping is needed, not int"),
    ],
)
def test_what_is_wrong_with_a_library_is_said(tmp_path: Path, text: str, problem: str) -> None:
    (told,) = refused(tmp_path, text)
    assert told.startswith(problem)


def test_an_empty_library_is_no_problem(tmp_path: Path) -> None:
    for text in ("patterns: []", "kind: PatternLibrary\nspec: {entries: []}", "[]"):
        assert refused(tmp_path, text) == ()


def test_a_flat_pattern_may_have_a_key_called_patterns(tmp_path: Path) -> None:
    pattern = only(tmp_path, "name: a\ncategory: c\npatterns: [one, two]\n")
    assert pattern.extra == {"patterns": ["one", "two"]}


def test_all_formats_may_stand_in_one_file(tmp_path: Path) -> None:
    flat, listed = "name: a\ncategory: c\n", "patterns: [{name: b}]\n"
    text = f"{flat}---\n{listed}---\nkind: Pattern\nmetadata: {{name: c}}\nspec: {{}}\n---\n- name: d\n"
    found = library(tmp_path, sql__x=text)
    assert [(pattern.name, pattern.line) for pattern in found.patterns] == [("a", 1), ("b", 4), ("c", 8), ("d", 10)]
