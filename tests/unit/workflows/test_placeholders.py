import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.values.workflows import Debate, Workflow
from loom_worker.workflows import placeholders
from loom_worker.workflows.placeholders import canonical, fill, malformed, missing, surplus, used, variables_of

NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("no name", ()),
        ("{{a}} {{.a}} {{ a }} {{  .b }}", ("a", "b")),
        ("{{b}}{{a}}{{b}}", ("b", "a")),
        ("{{previous_output}} {{user_query}} {{query}} {{user_input}}", ("previous", "input")),
        ("{{revision_feedback}}", ("feedback",)),
        ('{"a": {"b": 1}}', ()),
        ("{{{a}}}", ("a",)),
    ],
)
def test_names_are_found_in_order_and_each_once(template: str, names: tuple[str, ...]) -> None:
    assert used(template) == names
    assert malformed(template) == ""


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        ("x {{a b}} y", "a placeholder is a name, as in {{name}}, not '{{a b}}'"),
        ("{{.x | upper}}", "a placeholder is a name, as in {{name}}, not '{{.x | upper}}'"),
        ("{{a.b}}", "a placeholder is a name, as in {{name}}, not '{{a.b}}'"),
        ("{{}}", "a placeholder is a name, as in {{name}}, not '{{}}'"),
        ("{{a}} and {{b", "a placeholder is opened and not closed: '{{b'"),
        ("{{a}\n}}", "a placeholder is opened and not closed: '{{a}'"),
        ("{{$x}}", "a placeholder is a name, as in {{name}}, not '{{$x}}'"),
    ],
)
def test_what_looks_like_a_placeholder_and_is_none_is_named(template: str, fault: str) -> None:
    assert malformed(template) == fault


def test_a_template_is_filled_under_every_name_of_a_value() -> None:
    values = {"previous": "P", "input": "I"}
    assert fill("{{previous_output}} {{.previous}} {{ user_query }} {{other}} {{ .other }}", values) == (
        "P P I {{other}} {{ .other }}"
    )


@given(st.text(), st.dictionaries(NAMES, st.one_of(st.text(), st.just("{{a}} {{input}} \\1"))))
def test_a_value_is_never_expanded(rest: str, values: dict[str, str]) -> None:
    known = {canonical(name): value for name, value in values.items()}
    template = "|".join(f"{{{{{name}}}}}" for name in known)
    assert fill(template, known) == "|".join(known.values())
    assert fill(rest, {}) == rest


@given(st.text(alphabet="{}. ab\n"))
def test_every_pair_of_braces_is_a_placeholder_or_malformed(template: str) -> None:
    rest = re.sub(r"\{\{[ \t]*\.?[ab]+[ \t]*\}\}", "\0", template)
    assert bool(malformed(template)) == ("{{" in rest)
    assert all(name in template for name in used(template))


def test_a_run_is_told_which_variables_it_must_give_and_where() -> None:
    workflow = Workflow("w", Debate("t", ("a",)), needed={"topic": 7, "input": 9}, source="/f.yaml:1")
    assert [str(problem) for problem in missing(workflow, {"user_query": "x"})] == [
        "/f.yaml:7: topic: the workflow w needs the variable 'topic'; "
        "give it with the run, or add a value as spec.variables.topic"
    ]
    assert missing(workflow, {"topic": "", "input": "x"}) == ()


def test_names_that_nothing_uses_are_told() -> None:
    workflow = Workflow("w", Debate("t", ("a",)), needed={"input": 9}, variables={"tone": "calm"})
    assert surplus(workflow, {"query": "x", "tone": "y", "tonne": "z", "date": "today"}) == ("tonne", "date")


def test_a_run_has_the_files_values_for_what_it_does_not_give() -> None:
    workflow = Workflow("w", Debate("t", ("a",)), needed={"input": 9}, variables={"tone": "calm", "size": "2"})
    assert variables_of(workflow, {"user_input": "x", "size": "3"}) == {"tone": "calm", "size": "3", "input": "x"}


def test_no_alias_stands_for_another_alias() -> None:
    assert not placeholders.ALIASES.keys() & set(placeholders.ALIASES.values())
