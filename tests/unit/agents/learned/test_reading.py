"""What optimizers wrote becomes a layer, or an error that names file and key; no file can run code."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from loom_worker.agents.learned.reading import MOST_CHARS, MOST_DEMONSTRATIONS, content_of, version_of
from loom_worker.core.errors import BadFile
from loom_worker.core.fields import InvalidField
from loom_worker.core.values.learned import Demonstration, FieldText, Gradient, LearnedLayer, Signature

HERE = Path(__file__).parent


def predictor(**state: Any) -> dict[str, Any]:
    """One as DSPy saves it."""
    return {"traces": [], "train": [], "demos": [], "signature": {"instructions": "Sort.", "fields": []}, **state}


def test_a_program_saved_by_dspy_keeps_its_predictors_in_order() -> None:
    new, warnings = version_of(content_of(HERE / "saved_by_dspy.json"), source="saved_by_dspy.json")
    assert (new.form, new.made_with, new.source, warnings) == ("dspy", "dspy 3.4.1", "saved_by_dspy.json", ())
    assert [each.name for each in new.layer.signatures] == ["sort.predict", "reply"]
    first = new.layer.signatures[0]
    assert first.instructions == "Sort a customer's message."
    assert first.fields == (FieldText("Label", "refund, order or other"),)  # nobody has described the others
    assert [(each.signature, each.is_augmented) for each in new.layer.demonstrations] == [
        ("sort.predict", True),
        ("sort.predict", True),
        ("sort.predict", False),
        ("reply", False),
        ("reply", False),
    ]
    assert new.layer.demonstrations[2].values == {"message": "money back 3", "label": "refund"}


def test_prompts_tuned_by_textgrad_are_named_by_name_or_role() -> None:
    new, warnings = version_of(content_of(HERE / "tuned_by_textgrad.json"))
    assert (new.form, new.made_with, warnings) == ("textgrad", "", ())
    assert [each.name for each in new.layer.gradients] == ["system_prompt", "closing sentence"]
    assert new.layer.gradients[0].feedback == (
        "The prompt does not say what to do with messages that ask for two things.",
    )
    assert new.layer.gradients[1] == Gradient("closing sentence", "Thank the customer.", "closing sentence")


def test_files_of_older_versions_are_read_too() -> None:
    oldest = {"traces": [], "demos": [{"q": "1"}], "signature_instructions": "Add.", "signature_prefix": "Sum:"}
    thinking = predictor(
        extended_signature={"instructions": "Think.", "fields": [{"prefix": "A:", "description": "a"}]}
    )
    new, warnings = version_of({"add": oldest, "think": thinking})
    assert new.layer.signatures == (Signature("add", "Add."), Signature("think", "Think.", (FieldText("A", "a"),)))
    assert warnings == ()


def test_bookkeeping_of_demonstrations_is_left_out_and_nested_values_stay() -> None:
    nested = {"rows": [{"id": 1, "tags": ["a", None]}], "missing": None, "dspy_uuid": "x", "dspy_split": "train"}
    new, _ = version_of({"self": predictor(demos=[{"augmented": True, **nested}])})
    assert new.layer.demonstrations == (Demonstration("self", {"rows": [{"id": 1, "tags": ["a", None]}]}, True),)


def test_a_model_s_settings_are_not_stored_and_unknown_keys_are_reported() -> None:
    prompt = {"name": "a", "value": "b", "predecessors": []}
    assert version_of([prompt])[1] == ("[0].predecessors: not imported",)
    secret = {"model": "openai/x", "api_key": "sk-secret"}
    content = {"self": predictor(lm=secret, vote=3), "retrieve": {"k": 3}, "metadata": {"dependency_versions": {}}}
    new, warnings = version_of(content)
    assert "sk-secret" not in json.dumps(new.layer.as_json())
    assert warnings == ("retrieve: not imported", "self.vote: not imported")


def test_a_layer_is_the_same_after_it_was_stored() -> None:
    for name in ("saved_by_dspy.json", "tuned_by_textgrad.json"):
        layer = version_of(content_of(HERE / name))[0].layer
        stored = LearnedLayer.from_json(json.loads(json.dumps(layer.as_json())))
        assert (stored, stored.digest) == (layer, layer.digest)


@pytest.mark.cases(
    ("content", "named"),
    [
        ({}, "no predictor is in it"),
        ({"metadata": {"dependency_versions": {"dspy": "3.4.1"}}}, "no predictor is in it"),
        ("text", "a saved program: a mapping is needed, not str"),
        ([], "no tuned prompt is in it"),
        ({"self": predictor(signature=3)}, "self.signature: a mapping is needed, not int"),
        ({"self": predictor(signature={"instructions": ["a"]})}, "self.signature.instructions: a text is needed"),
        ({"self": predictor(signature={"fields": "a"})}, "self.signature.fields: a list of mappings is needed"),
        ({"self": predictor(demos=[{"a": 1}, "b"])}, "self.demos[1]: a mapping is needed, not str"),
        ({"self": predictor(demos=[{"augmented": True}])}, "self.demos[0]: has no field with a value"),
        ({"self": predictor(demos=[{"augmented": "yes", "a": 1}])}, "self.demos[0].augmented: true or false"),
        ({"self": predictor(demos=[{"a": "x" * MOST_CHARS}])}, "self.demos[0]: at most 32,000 characters"),
        ({"self": predictor(demos=[{"a": 1}] * (MOST_DEMONSTRATIONS + 1))}, "at most 512 demonstrations"),
        ({f"p{n}": predictor() for n in range(65)}, "at most 64 signatures"),
        ({"self": predictor(signature={"instructions": "x" * 40_000})}, "self.signature.instructions: at most 32,000"),
        ([{"value": "a"}], "[0].name: a name is needed, or a role in its place"),
        ([{"name": "a"}], "[0].value is missing"),
        ([{"name": "a", "value": "b"}] * 2, "[1].name: another prompt has the name 'a'"),
        ([{"name": "a", "value": "b", "gradients": [1]}], "[0].gradients[0]: a text is needed"),
        ([{"name": "a", "value": "b", "gradients": ["c"] * 101}], "[0].gradients: at most 100 texts"),
    ],
)
def test_what_cannot_be_used_is_named(content: Any, named: str) -> None:
    with pytest.raises(InvalidField) as refused:
        version_of(content)
    assert named in str(refused.value)


def test_a_form_that_the_file_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidField, match="a list of tuned prompts is needed for textgrad"):
        version_of({"self": predictor()}, form="textgrad")
    with pytest.raises(InvalidField, match="one of dspy, textgrad is needed, not 'onnx'"):
        version_of({"self": predictor()}, form="onnx")


def test_a_pickled_program_is_refused_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "state.pkl").write_bytes(b"{}")
    (tmp_path / "state.json").write_bytes(pickle.dumps({"a": 1}))
    for name in ("program", "state.pkl", "state.json"):
        with pytest.raises(BadFile, match=rf"{name}: .*pickled program.*save\(\"program.json\"\)"):
            content_of(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (b"not json", "not JSON"),
        (b'{"a": NaN}', "not JSON: NaN is no number"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b" " * 1_000_001, "larger than 1,000,000 bytes"),
    ],
)
def test_a_file_that_is_no_json_is_refused_by_its_name(tmp_path: Path, text: bytes, named: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(text)
    with pytest.raises(BadFile, match=rf"x\.json: {named}"):
        content_of(path)
