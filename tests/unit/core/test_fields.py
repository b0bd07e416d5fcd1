"""Reading a mapping key by key; the readers of agents, patterns and skills build on it."""

import pytest

from loom_worker.core.fields import MISSING, Fields, InvalidField, spelled


def test_a_place_is_spelled_as_people_write_it() -> None:
    assert spelled(("spec", "tools", 2, "name")) == "spec.tools[2].name"
    assert spelled(()) == ""


def test_an_error_names_place_and_reason() -> None:
    error = Fields({"tools": [{"name": 3.5}]}, ("spec",)).each("tools")[0].invalid("name", "a text", 3.5)
    assert (error.place, error.path) == (("spec", "tools", 0, "name"), "spec.tools[0].name")
    assert str(error) == "spec.tools[0].name: a text is needed, not '3.5'"


@pytest.mark.parametrize("value", [None, {}, {"name": None}, {"name": "  "}])
def test_a_required_text_that_is_absent_or_blank_is_missing(value: object) -> None:
    with pytest.raises(InvalidField) as raised:
        Fields(value).required("name")
    assert (str(raised.value), raised.value.reason) == ("name is missing", MISSING)


def test_a_document_that_is_no_mapping_is_named() -> None:
    with pytest.raises(InvalidField, match=r"^an agent: a mapping is needed, not list$"):
        Fields(["a"], what="an agent")
    with pytest.raises(InvalidField, match=r"^spec: a mapping is needed, not str$"):
        Fields({"spec": "x"}).under("spec")


def test_keys_that_nobody_asked_for_are_reported_with_the_one_they_resemble() -> None:
    root = Fields({"nmae": "x", "llm": {"modle": "y", "later": 1, "model": None}})
    llm = root.under("llm")
    root.text("name"), llm.text("model")
    llm.keep("later", "never")
    assert list(root.unknown()) == [("nmae", "name"), ("llm.modle", "")]
    assert root.unused() == ("llm.later",)
