import os
import re
from itertools import permutations
from pathlib import Path

import pytest

from loom_worker.patterns.library import (
    MAX_PROBLEM_CHARS,
    MOST_PROBLEMS,
    FileContent,
    Library,
    library_files,
    load,
    merged,
    packaged_root,
    read_file,
    root_error,
)
from tests.support.pattern_files import MINIMAL, library, refused, write


def test_ids_carry_the_whole_folder_so_equal_names_do_not_clash(tmp_path: Path) -> None:
    found = library(tmp_path, sql__a=MINIMAL, sql__deep__er__a=MINIMAL, rest__a=MINIMAL)
    assert {pattern.id for pattern in found.patterns} == {"sql/top_n", "sql/deep/er/top_n", "rest/top_n"}
    assert found.problems == ()


ENTRIES = "kind: PatternLibrary\nmetadata: {{name: {name}}}\nspec:\n  entries:\n  - name: top_n\n    template: x\n"


@pytest.mark.parametrize(
    ("name", "pattern_id"),
    [
        ("shop", "sql/shop/top_n"),
        ("Shop of the year", "sql/Shop-of-the-year/top_n"),
        ("../up", "sql/up/top_n"),
        ("sql", "sql/top_n"),
        ("'…'", "sql/top_n"),
        ("", "sql/top_n"),
    ],
)
def test_the_name_of_a_library_stands_before_the_names_of_its_patterns(
    tmp_path: Path, name: str, pattern_id: str
) -> None:
    found = library(tmp_path, sql__a=ENTRIES.format(name=name))
    assert [pattern.id for pattern in found.patterns] == [pattern_id]


def test_two_libraries_in_one_folder_may_use_the_same_names(tmp_path: Path) -> None:
    found = library(tmp_path, sql__a=ENTRIES.format(name="a"), sql__b=ENTRIES.format(name="b"), sql__c=MINIMAL)
    assert [pattern.id for pattern in found.patterns] == ["sql/a/top_n", "sql/b/top_n", "sql/top_n"]
    assert found.problems == ()
    assert {pattern.category for pattern in found.patterns[:2]} == {"sql"}


def test_a_file_may_hold_several_patterns_and_each_knows_where_it_begins(tmp_path: Path) -> None:
    found = library(tmp_path, sql__a=f"# head\n{MINIMAL}---\n\nname: second\ncategory: c\n")
    assert [(pattern.id, pattern.line) for pattern in found.patterns] == [("sql/top_n", 2), ("sql/second", 6)]
    assert {pattern.source for pattern in found.patterns} == {"sql/a.yaml"}


def test_a_duplicate_id_is_told_and_the_first_one_stays(tmp_path: Path) -> None:
    found = library(tmp_path, sql__a=MINIMAL + "title: first\n", sql__b="# head\n" + MINIMAL)
    assert [pattern.title for pattern in found.patterns] == ["first"]
    assert found.problems == (
        f"{tmp_path}/sql/b.yaml:2: sql/top_n is already defined in sql/a.yaml; this one is left out",
    )


def test_a_broken_pattern_costs_neither_its_file_nor_the_library(tmp_path: Path) -> None:
    found = library(
        tmp_path, sql__a=f"name: [1]\ncategory: c\n---\n{MINIMAL}", sql__b="{", sql__c="name: ok\ncategory: c"
    )
    assert [pattern.id for pattern in found.patterns] == ["sql/top_n", "sql/ok"]
    first, second = found.problems
    assert first == f"{tmp_path}/sql/a.yaml:1: name: a text is needed, not list"
    assert second.startswith(f"{tmp_path}/sql/b.yaml:")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("just text", "1: a pattern: a mapping is needed, not str"),
        ("- 1\n- 2", "1: a pattern: a mapping is needed, not list"),
        ("category: c", "1: name is missing"),
        ("# head\n\nname: a", "3: category is missing"),
        ("title: x\ncategory: c\nname: a b", "3: name: 'a b' may hold letters, digits, '_', '-' and '.' only"),
        ("name: ../up\ncategory: c", "1: name: '../up' may hold letters, digits, '_', '-' and '.' only"),
        (MINIMAL + "parameters: x", "3: parameters: a list or a mapping is needed, not str"),
        (MINIMAL + "parameters:\n  - name: a\n  - type: x", "5: parameters[1].name is missing"),
        (MINIMAL + "params:\n- name: a\n- name: b\n  type: {a: 1}", "6: params[1].type: a text is needed, not dict"),
        (MINIMAL + "parameters: [a, a]", "3: parameters[1]: there is another parameter a"),
        (
            MINIMAL + "templates:\n  a: x\n  b: {description: c}",
            "5: templates.b: a text is needed, or a mapping with content or sql, not nothing",
        ),
        (MINIMAL + "templates: [{name: a, sql: x}, {name: a, sql: y}]", "3: templates[1]: there is another template a"),
        (MINIMAL + "parameters: [{name: n, default: [[a]]}]", "3: parameters[0].default: a text is needed, not list"),
        (MINIMAL + "parameters: [{name: n, required: so so}]", "3: parameters[0].required: true or false is needed"),
        (MINIMAL + "intents:\n- a\n-\n  - b", "6: intents[1]: a text is needed, not list"),
        (MINIMAL + "priority: 101", "3: priority: a whole number from 0 to 100 is needed, not 101"),
        (MINIMAL + "priority: 7.5", "3: priority: a whole number from 0 to 100 is needed, not 7.5"),
        (MINIMAL + "priority: true", "3: priority: a whole number from 0 to 100 is needed, not True"),
        (MINIMAL + "examples:\n- {parameters: [a]}", "4: examples[0].parameters: a mapping is needed, not list"),
        (MINIMAL + "errors:\n- {fix: x}", "4: errors[0].error is missing"),
        (MINIMAL + "rule:\n  condition: x", "3: rule.action is missing"),
        (f"{MINIMAL}title: 0x{'f' * 9000}", "1: Exceeds the limit"),
        ("kind: Agent\nmetadata: {name: x}", "1: kind: Agent is not read here; Pattern and PatternLibrary are"),
        ("name: a\ncategory: c\ntitle: x\nname: b", "4: the key name stands twice in one mapping"),
        (MINIMAL + "templates:\n  a: x\n  a: y", "5: the key a stands twice in one mapping"),
    ],
)
def test_what_is_wrong_is_said_with_the_line_of_the_key(tmp_path: Path, text: str, problem: str) -> None:
    (told,) = refused(tmp_path, text)
    assert told.startswith(problem)


def test_a_file_outside_of_a_library_folder_is_told(tmp_path: Path) -> None:
    found = library(tmp_path, lonely=MINIMAL)
    assert found.patterns == ()
    assert found.problems[0].startswith(f"{tmp_path}/lonely.yaml:1: a pattern file belongs in a library folder")


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "sql").mkdir()
    for name in ("README.md", ".a.yaml", ".#a.yaml", "#a.yaml#", "#a.yaml", "~a.yaml", "a.yaml~", "a.yaml.swp"):
        (tmp_path / "sql" / name).write_text("{")
    write(tmp_path, **{".git__a": "{"})
    (tmp_path / "sql" / "folder.yaml").mkdir()
    assert load(tmp_path) == Library((), ())


def test_files_are_listed_in_the_order_of_their_paths(tmp_path: Path) -> None:
    write(tmp_path, b__z="", b__a="", a__deep__x="", a__b="")
    (tmp_path / "a" / "C.YML").write_text("")
    listed = [path.relative_to(tmp_path).as_posix() for path in library_files(tmp_path)]
    assert listed == ["a/C.YML", "a/b.yaml", "a/deep/x.yaml", "b/a.yaml", "b/z.yaml"]


def test_linked_folders_and_files_are_followed_and_circles_end(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", deep__a=MINIMAL) / "deep"
    root = write(tmp_path / "root", sql__own=MINIMAL)
    (root / "linked").symlink_to(outside)
    (root / "again").symlink_to(root / "sql")
    (root / "sql" / "round").symlink_to(root)
    (outside / "back").symlink_to(root)
    (root / "sql" / "file.yaml").symlink_to(outside / "a.yaml")
    (root / "sql" / "nowhere.yaml").symlink_to(root / "none")
    listed = [path.relative_to(root).as_posix() for path in library_files(root)]
    assert listed == ["linked/a.yaml", "sql/file.yaml", "sql/own.yaml"]


def test_many_links_to_one_folder_are_entered_once(tmp_path: Path) -> None:
    for name in "abcdefghij":
        (tmp_path / name).mkdir()
        for other in "abcdefghij":
            (tmp_path / name / f"to_{other}").symlink_to(tmp_path / other)
    write(tmp_path, j__x=MINIMAL)
    assert library_files(tmp_path) == [tmp_path / "j" / "x.yaml"]


def test_a_missing_folder_or_file_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    assert load(tmp_path / "nowhere").problems == (f"{tmp_path}/nowhere:1: no such folder",)
    content = read_file(tmp_path / "sql" / "gone.yaml", tmp_path)
    assert content.problems == (f"{tmp_path}/sql/gone.yaml:1: No such file or directory",)
    (tmp_path / "sql").mkdir()
    assert read_file(tmp_path / "sql", tmp_path).problems == (f"{tmp_path}/sql:1: Is a directory",)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is closed to root")
def test_a_folder_that_is_closed_is_told(tmp_path: Path) -> None:
    write(tmp_path, open__a=MINIMAL, closed__a=MINIMAL)
    (tmp_path / "closed").chmod(0)
    found = load(tmp_path)
    (tmp_path / "closed").chmod(0o700)
    assert [pattern.id for pattern in found.patterns] == ["open/top_n"]
    assert found.problems == (f"{tmp_path}/closed:1: Permission denied",)


@pytest.mark.parametrize("place", ["sql/notes", "notes", "sql/x.yaml", "x.yaml"])
def test_a_link_to_itself_is_one_complaint_and_all_else_loads(tmp_path: Path, place: str) -> None:
    write(tmp_path, sql__a=MINIMAL)
    (tmp_path / place).symlink_to((tmp_path / place).name)
    found = load(tmp_path)
    assert [pattern.id for pattern in found.patterns] == ["sql/top_n"]
    assert found.problems == (f"{tmp_path}/{place}:1: Too many levels of symbolic links",)
    (tmp_path / place).unlink()
    assert load(tmp_path).problems == ()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is closed to root")
@pytest.mark.parametrize("place", ["sql/notes", "notes"])
def test_a_link_into_a_closed_folder_is_one_complaint_and_all_else_loads(tmp_path: Path, place: str) -> None:
    root = write(tmp_path / "root", sql__a=MINIMAL)
    (tmp_path / "closed" / "inside").mkdir(parents=True)
    (root / place).symlink_to(tmp_path / "closed" / "inside")
    (tmp_path / "closed").chmod(0)
    found, fault = load(root), root_error(tmp_path / "closed" / "inside")
    (tmp_path / "closed").chmod(0o700)
    assert [pattern.id for pattern in found.patterns] == ["sql/top_n"]
    assert found.problems == (f"{root}/{place}:1: Permission denied",)
    assert fault == "Permission denied"


@pytest.mark.parametrize("entry", ["{priority: x}", "{name: same, category: c}"])
def test_of_a_file_with_many_faults_the_first_are_told_and_how_many_follow(tmp_path: Path, entry: str) -> None:
    good = "- {name: same, category: c}\n"
    found = library(tmp_path, sql__a=good + f"- {entry}\n" * (MOST_PROBLEMS + 7), sql__b="{")
    *told, more, other = found.problems
    assert len(told) == MOST_PROBLEMS
    assert told[-1].startswith(f"{tmp_path}/sql/a.yaml:{MOST_PROBLEMS + 1}: ")
    assert more == f"{tmp_path}/sql/a.yaml:1: … and 7 more"
    assert other.startswith(f"{tmp_path}/sql/b.yaml:")


@pytest.mark.parametrize(
    "text",
    [
        f"name: {'a' * 100_000} b\ncategory: c",
        f"{{category: c, name: x, ? {'k' * 100_000} : 1, ? {'k' * 100_000} : 2}}",
        f"a: *{'b' * 100_000}",
        'kind: "a\\nb\\x1b[31m\\u202ec\\u2028d\\uDCFF"',
        'name: x\ncategory: c\n"a\\nb\\u202e": 1\n"a\\nb\\u202e": 2',
    ],
    ids=["long name", "long key", "long alias", "unseen kind", "unseen key"],
)
def test_a_complaint_is_one_short_line_with_nothing_unseen_in_it(tmp_path: Path, text: str) -> None:
    (problem,) = library(tmp_path, sql__a=text).problems
    assert problem.startswith(f"{tmp_path}/sql/a.yaml:")
    assert len(problem) <= MAX_PROBLEM_CHARS
    assert problem.isprintable()


@pytest.mark.parametrize("name", [b"a\nb\xff\x1b.yaml", b"\xe2\x80\xaea.yaml", b"a" * 250 + b".yaml"])
def test_a_complaint_about_a_file_with_an_odd_name_can_be_shown(tmp_path: Path, name: bytes) -> None:
    folder = tmp_path / ("d" * 250) / "sql"
    folder.mkdir(parents=True)
    (folder / os.fsdecode(name)).write_text("{")
    (problem,) = load(tmp_path).problems
    assert len(problem) <= MAX_PROBLEM_CHARS
    assert problem.isprintable()
    assert problem.encode()
    assert re.search(r":[12]: \w", problem)


def test_a_name_that_cannot_be_shown_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "s\nql"
    folder.mkdir()
    (folder / "a.yaml").write_text(MINIMAL)
    found = load(tmp_path)
    assert found.patterns == ()
    assert "characters that cannot be shown" in found.problems[0]


def test_a_file_reads_the_same_wherever_its_library_lies(tmp_path: Path) -> None:
    for root in (tmp_path / "one", tmp_path / "two"):
        write(root, sql__a=MINIMAL)
    one, two = (read_file(root / "sql/a.yaml", root) for root in (tmp_path / "one", tmp_path / "two"))
    assert one.patterns == two.patterns
    assert one == read_file(tmp_path / "one/sql/a.yaml", tmp_path / "one")


def test_a_library_is_its_files_put_together_in_their_order(tmp_path: Path) -> None:
    write(tmp_path, a__a=MINIMAL, a__b=MINIMAL + "title: other", b__a=MINIMAL, b__broken="{")
    contents = [read_file(path, tmp_path) for path in library_files(tmp_path)]
    assert merged(contents) == load(tmp_path)
    for order in permutations(contents):
        found = merged(order)
        assert {pattern.id for pattern in found.patterns} == {"a/top_n", "b/top_n"}
        assert len(found.problems) == 2
        kept = next(content for content in order if content.patterns and content.patterns[0].id == "a/top_n")
        assert kept.patterns[0] in found.patterns


def test_a_repeated_id_is_told_by_its_source_where_the_file_is_not_known(tmp_path: Path) -> None:
    write(tmp_path, a__a=MINIMAL)
    patterns = read_file(tmp_path / "a/a.yaml", tmp_path).patterns
    found = merged([FileContent(patterns), FileContent(patterns)])
    assert found.problems == ("a/a.yaml:1: a/top_n is already defined in a/a.yaml; this one is left out",)


def test_the_packaged_library_loads_whole() -> None:
    found = load(packaged_root())
    assert found.problems == ()
    assert len(found.patterns) >= 12
    assert {pattern.id.split("/")[0] for pattern in found.patterns} >= {"sql"}
