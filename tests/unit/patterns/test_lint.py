from pathlib import Path

import pytest

from loom_worker.patterns.library import MAX_PROBLEM_CHARS, MOST_PROBLEMS, load, packaged_root
from loom_worker.patterns.lint import LintFinding, lint
from loom_worker.patterns.render import MOST_CHARS
from tests.support.pattern_files import write

GOOD = """\
name: best
category: ranking
description: What sold best.
intents: [what sold best]
"""
SQL = GOOD + "backend_type: sql\n"


def findings(root: Path, **files: str) -> list[str]:
    """What lint says of files, each as ``file:line: level: what``."""
    found = lint(write(root, **files))
    return [f"{x.path.relative_to(root)}:{x.line}: {x.level}: {x.what}" for x in found]


def warnings(root: Path, text: str) -> list[str]:
    """What lint says of one pattern that loads, each as ``line: what``."""
    found = findings(root, sql__a=text)
    assert all(": warning: " in told for told in found)
    return [told.removeprefix("sql/a.yaml:").replace(" warning:", "") for told in found]


def test_a_good_pattern_has_no_findings(tmp_path: Path) -> None:
    parameters = "parameters: [{name: n, type: integer}, {name: day, default: 2025-01-01}, {name: t}]\n"
    template = "templates: {x: \"SELECT * FROM {{t}} WHERE at > '{{.day}}' LIMIT {{ n }}\"}\n"
    assert findings(tmp_path, sql__a=SQL + parameters + template) == []


@pytest.mark.cases(
    ("text", "told"),
    [
        (GOOD + "owner: me", "5: unknown key owner"),
        (GOOD + "parameters:\n- name: n\n  tpye: x\ntemplates:\n  a: '{{n}}'", "7: unknown key tpye"),
        (GOOD + "templates:\n  a:\n    sql: x\n    cost: y", "8: unknown key cost"),
        (GOOD + "examples: {input: x, seen: y}", "5: unknown key seen"),
        (GOOD + "errors:\n- error: x\n  since: y", "7: unknown key since"),
        (GOOD + "triggers: [x]", "5: triggers is another name of intents, which is there as well and counts"),
        (GOOD + "templates:\n  a: x\n  b: '{{n}}'", "7: template b: {{n}} is no parameter"),
        (GOOD + "templates:\n- {name: a, sql: '{{n}}'}", "6: template a: {{n}} is no parameter"),
        (GOOD + "templates:\n  a: {sql: x, requires: [n]}", "6: template a requires n, which is no parameter"),
        (GOOD + "parameters:\n- name: n", "6: no template uses the parameter n"),
        (GOOD + "params:\n  n: {}", "6: no template uses the parameter n"),
        (
            GOOD + "templates: {a: '{{n}}'}\nparameters:\n- {name: n, required: true, default: 1}",
            "7: n is required and has a default",
        ),
        (GOOD + "related_patterns:\n- sql/best\n- sql/gone", "7: there is no pattern sql/gone"),
        (GOOD + "difficulty: hard", "5: difficulty hard is not known"),
        (GOOD + "backend: cobol", "5: backend_type cobol is not known"),
        ("name: a\ncategory: c\nintents: [x]", "1: no description"),
        ("category: c\nname: a\ndescription: x", "2: no intents"),
        (SQL + "templates:\n  a: SELECT 1\n  b: SELEC FROM 1", "8: template b is no SQL once it is filled in"),
        (SQL + "templates: {a: '-- nothing'}", "6: template a is no SQL once it is filled in: there is no statement"),
        (
            SQL + "parameters: [{name: w}]\ntemplates: {a: 'SELECT 1 {{if .w}} WHERE {{.w}} {{end}}'}",
            "7: template a holds {{if .w}}",
        ),
    ],
)
def test_each_weakness_is_told_with_the_line_of_its_key(tmp_path: Path, text: str, told: str) -> None:
    assert any(warning.startswith(told) for warning in warnings(tmp_path, text)), warnings(tmp_path, text)


def test_a_template_too_long_to_stand_beside_a_message_is_told(tmp_path: Path) -> None:
    assert warnings(tmp_path, f"{GOOD}templates: {{a: {'x' * MOST_CHARS}}}") == []
    (told,) = warnings(tmp_path, f"{GOOD}templates: {{a: {'x' * (MOST_CHARS + 1)}}}")
    assert told == "5: template a has 6,001 characters, more than 6,000 do not fit next to a message"


@pytest.mark.cases(
    ("backend", "sql", "is_read"),
    [
        ("postgresql", "SELECT DISTINCT ON (a) a FROM t ORDER BY a", True),
        ("sqlite", "SELECT value FROM json_each('[1]')", True),
        ("mysql", "SELECT `a` FROM t LIMIT 1, 2", True),
        ("sqlite", "SELECT a FROM t WHERE", False),
        ("mariadb", "SELECT (a FROM t", False),
        ("duckdb", "SELECT 'a", False),
        ("rest", "SELECT (a FROM t", True),
        ("sql", "EXPLAIN QUERY PLAN SELECT 1", True),
    ],
)
def test_sql_is_read_in_the_language_of_its_backend(tmp_path: Path, backend: str, sql: str, is_read: bool) -> None:
    found = warnings(tmp_path, f"{GOOD}backend_type: {backend}\ntemplates:\n  a: |\n    {sql}\n")
    assert (found == []) == is_read


def test_a_misspelt_key_is_answered_with_the_nearest_one(tmp_path: Path) -> None:
    (found,) = lint(write(tmp_path, sql__a=GOOD + "use_case: [x]"))
    assert found == LintFinding(
        tmp_path / "sql/a.yaml", 5, "warning", "unknown key use_case", "did you mean use_cases?"
    )
    assert str(found) == f"{tmp_path}/sql/a.yaml:5: warning: unknown key use_case (did you mean use_cases?)"


def test_one_intent_of_two_patterns_is_told_at_the_second(tmp_path: Path) -> None:
    other = "patterns:\n- name: other\n  description: x\n  intents:\n  - What  SOLD best\n"
    assert findings(tmp_path, sql__a=GOOD, sql__b=other) == [
        "sql/b.yaml:5: warning: sql/best has the intent 'What SOLD best' as well"
    ]


def test_a_related_pattern_may_go_by_its_name_or_id(tmp_path: Path) -> None:
    text = "name: b\ncategory: c\ndescription: x\nintents: [y]\nrelated_patterns: [best, sql/deep/best, deep/best]\n"
    assert findings(tmp_path, sql__deep__a=GOOD, rest__b=text) == []
    own = text.replace("[best, sql/deep/best, deep/best]", "[rest/b]")
    assert findings(tmp_path, rest__b=own) == ["rest/b.yaml:5: warning: it is related to itself"]


def test_all_that_load_leaves_out_is_an_error_with_the_same_line_and_reason(tmp_path: Path) -> None:
    write(tmp_path, a__a=GOOD, a__b="# again\n" + GOOD, b__c="{", b__d="name: x", lonely=GOOD)
    write(tmp_path, b__e="patterns:\n- name: ok\n- name: ok\n- priority: 3\n- {name: y, name: z}\n")
    errors = {f"{x.path}:{x.line}: {x.what}" for x in lint(tmp_path) if x.level == "error"}
    assert errors == set(load(tmp_path).problems)
    assert len(errors) == 7


def test_findings_come_by_file_and_line(tmp_path: Path) -> None:
    found = lint(write(tmp_path, b__a="name: x\ncategory: c\nodd: 1\n", a__a="{", a__b="name: y\n"))
    assert [(x.path.relative_to(tmp_path).as_posix(), x.line) for x in found] == sorted(
        (x.path.relative_to(tmp_path).as_posix(), x.line) for x in found
    )


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    assert lint(tmp_path / "none") == (LintFinding(tmp_path / "none", 1, "error", "no such folder"),)


def test_a_link_to_itself_is_an_error_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, sql__a=GOOD)
    (tmp_path / "sql" / "notes").symlink_to("notes")
    assert lint(tmp_path) == (LintFinding(tmp_path / "sql/notes", 1, "error", "Too many levels of symbolic links"),)


def test_of_a_file_with_many_findings_the_first_of_each_level_are_told(tmp_path: Path) -> None:
    many = MOST_PROBLEMS + 7
    warned = GOOD + "".join(f"odd_{n}: 1\n" for n in range(many))
    told = findings(tmp_path, sql__a=f"{warned}---\n" + "- {priority: x}\n" * many, sql__b="{")
    assert len(told) == 2 * (MOST_PROBLEMS + 1) + 1
    assert told[-3:-1] == ["sql/a.yaml:1: warning: … and 7 more", "sql/a.yaml:1: error: … and 7 more"]
    assert told[0] == "sql/a.yaml:5: warning: unknown key odd_0"


@pytest.mark.parametrize("key", ["k" * 100_000, '"a\\nb\\x1b[31m\\u202e"'], ids=["long", "unseen"])
@pytest.mark.parametrize("times", [1, 2], ids=["warning", "error"])
def test_a_finding_is_one_short_line_with_nothing_unseen_in_it(tmp_path: Path, key: str, times: int) -> None:
    (found,) = lint(write(tmp_path, sql__a=GOOD + f"? {key}\n: 1\n" * times))
    assert len(str(found)) <= MAX_PROBLEM_CHARS
    assert all(told.isprintable() for told in (str(found), found.what, found.advice))


def test_the_packaged_library_has_no_errors() -> None:
    assert [str(found) for found in lint(packaged_root()) if found.level == "error"] == []
