from dataclasses import replace
from pathlib import Path

import pytest

from loom_worker.core.values.patterns import CommonError, Example, Parameter, Template
from loom_worker.patterns.library_entries import MOST_ID_CHARS, digest
from tests.support.pattern_files import MINIMAL, only, refused

FULL = """
name: top_n
title: The best
description: Ranks.
category: ranking
difficulty: Beginner
backend_type: sql
use_cases: [one, two]
intents: what sold best
tags: [a, b]
priority: 80
related_patterns: [sql/other]
parameters:
  - {name: n, type: integer, required: true, description: how many, example: 3, default: 10, minimum: 1}
  - {name: since, default: 2025-01-01}
  - {name: deep, default: true}
  - {name: free}
  - {name: columns, default: [a, 2, 2025-01-01]}
templates:
  plain: SELECT 1
  mapped: {description: with more, content: SELECT 2, required_parameters: [n], output_format: table, cost: low}
  named: {sql: SELECT 3}
examples:
  - {name: x, description: d, parameters: {n: 3, since: 2025-01-01}, expected_result: r, notes: o, seen: 2}
  - {input: best two, output: [{product: Tent, sold: 2}, {product: Lamp, sold: 1}]}
common_errors:
  - {error: too slow, cause: no index, solution: add one}
  - {error: empty, fix: widen the period, since: 1.0}
best_practices: [first, second]
syntax: {select: columns, order: by what}
owner: {team: data}
"""


def test_every_field_of_the_flat_format_arrives(tmp_path: Path) -> None:
    pattern = only(tmp_path, FULL)
    assert (pattern.id, pattern.name, pattern.title, pattern.description) == (
        "sql/top_n",
        "top_n",
        "The best",
        "Ranks.",
    )
    assert (pattern.category, pattern.difficulty, pattern.backend_type) == ("ranking", "beginner", "sql")
    assert (pattern.use_cases, pattern.intents, pattern.tags) == (("one", "two"), ("what sold best",), ("a", "b"))
    assert (pattern.priority, pattern.related_patterns) == (80, ("sql/other",))
    assert (pattern.best_practices, pattern.syntax) == ("first\nsecond", "select: columns\norder: by what")
    assert (pattern.source, pattern.line, len(pattern.digest)) == ("sql/a.yaml", 2, 16)


def test_the_parts_of_the_flat_format_arrive(tmp_path: Path) -> None:
    pattern = only(tmp_path, FULL)
    assert pattern.parameters == (
        Parameter("n", "integer", True, "how many", "3", "10"),
        Parameter("since", default="2025-01-01"),
        Parameter("deep", default="true"),
        Parameter("free", default=None),
        Parameter("columns", default="a, 2, 2025-01-01"),
    )
    assert pattern.templates == {
        "plain": Template("SELECT 1"),
        "mapped": Template("SELECT 2", "with more", ("n",), "table"),
        "named": Template("SELECT 3"),
    }
    assert pattern.examples == (
        Example("x", "d", {"n": 3, "since": "2025-01-01"}, "r", "o"),
        Example(description="best two", expected_result="product: Tent\nsold: 2\nproduct: Lamp\nsold: 1"),
    )
    assert pattern.common_errors == (
        CommonError("too slow", "no index", "add one"),
        CommonError("empty", solution="widen the period"),
    )


def test_keys_without_a_field_are_kept_where_they_were(tmp_path: Path) -> None:
    assert only(tmp_path, FULL).extra == {
        "owner": {"team": "data"},
        "parameters": {"n": {"minimum": 1}},
        "templates": {"mapped": {"cost": "low"}},
        "examples": {"0": {"seen": 2}},
        "common_errors": {"1": {"since": 1.0}},
    }


def test_what_json_does_not_know_is_kept_as_what_it_does(tmp_path: Path) -> None:
    text = MINIMAL + "odd: {2: .nan, true: !!binary aGk=, day: 2025-01-01, some: !!set {b, a}}"
    odd = {"2": "nan", "true": "aGk=", "day": "2025-01-01", "some": ["a", "b"]}
    assert only(tmp_path, text).extra == {"odd": odd}


def test_an_id_is_at_most_as_long_as_its_column(tmp_path: Path) -> None:
    longest = "n" * (MOST_ID_CHARS - len("sql/"))
    assert len(only(tmp_path, f"name: {longest}\ncategory: c").id) == 255
    problem = "2: name: at most 255 characters with its folder"
    assert refused(tmp_path, f"category: c\nname: {longest}n") == (problem,)


def test_a_pattern_without_a_title_is_titled_by_its_name(tmp_path: Path) -> None:
    assert only(tmp_path, MINIMAL).title == "Top n"
    assert only(tmp_path, "name: moving-average\ncategory: c").title == "Moving average"


@pytest.mark.parametrize("form", ["name: a\r\ncategory: c\r\n", "\ufeffname: a\ncategory: c", "{name: a, category: c}"])
def test_line_ends_a_byte_order_mark_and_flow_style_make_no_difference(tmp_path: Path, form: str) -> None:
    assert only(tmp_path, form).digest == only(tmp_path, "name: a\ncategory: c").digest


@pytest.mark.parametrize(
    "text",
    [
        MINIMAL,
        f"# a remark\n{MINIMAL}",
        "category: ranking\nname: top_n",
        MINIMAL + "title:\n",
        "id: top_n\ndomain: ranking",
    ],
)
def test_the_digest_is_that_of_what_is_said_however_it_is_written(tmp_path: Path, text: str) -> None:
    assert only(tmp_path, text).digest == only(tmp_path, MINIMAL).digest


def test_the_digest_changes_with_every_field_that_says_something_and_with_no_other(tmp_path: Path) -> None:
    pattern = only(tmp_path, FULL)
    said = {
        "id": "x/y", "name": "y", "title": "y", "description": "y", "category": "y", "difficulty": "y",
        "backend_type": "rest", "use_cases": ("y",), "intents": (), "tags": ("y",), "priority": 1,
        "related_patterns": (), "parameters": pattern.parameters[1:], "templates": {}, "examples": (),
        "common_errors": (), "best_practices": "y", "syntax": "y", "extra": {},
    }  # fmt: skip
    silent = {"source": "y", "line": 9, "digest": "y"}
    assert set(said) | set(silent) == set(type(pattern).__slots__)
    digests = {digest(replace(pattern, **{name: value})) for name, value in said.items()}
    assert len(digests | {pattern.digest}) == len(said) + 1
    assert {digest(replace(pattern, **{name: value})) for name, value in silent.items()} == {pattern.digest}
