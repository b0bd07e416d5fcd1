from pathlib import Path
from typing import Any

import pytest

from loom_worker.backends.rest.document import MAX_BYTES, MAX_YAML_BYTES, OpenApiFile, read
from loom_worker.core.errors import BadFile
from tests.unit.backends.rest.documents import document, read_back, written


def test_json_and_yaml_are_read_alike(tmp_path: Path) -> None:
    in_yaml = "openapi: 3.1\ninfo: {title: T}\npaths:\n  /a:\n    get: {responses: {200: {description: ok}}}\n"
    assert read_back(tmp_path, in_yaml, "api.yaml").root["paths"].keys() == {"/a"}
    assert read_back(tmp_path, {"openapi": "3.0.3", "paths": {"/a": {}}}).root["paths"].keys() == {"/a"}


@pytest.mark.cases(
    ("root", "name", "reason"),
    [
        ({"swagger": "2.0"}, "api.json", "version 3.0, 3.1 or 3.2, found none"),
        ({"openapi": "4.0.0"}, "api.json", "found 4.0.0"),
        ([], "api.json", "found none"),
        ('{"openapi": ', "api.json", "api.json:1: "),
        ("[" * 5000, "api.json", "nested too deep"),
        ("[" * 60 + "]" * 60, "api.yaml", "nested deeper than 50"),
        ("a: &a [x]\nb: [" + "*a, " * 101 + "]", "api.yaml", "more than 100 aliases"),
        ("openapi: 3.1.0\n---\nopenapi: 3.1.0\n", "api.yaml", "expected one document, found 2"),
        ("x" * (MAX_YAML_BYTES + 1), "api.yaml", "convert it to JSON"),
        (" " * (MAX_BYTES + 1), "api.json", f"at most {MAX_BYTES}"),
    ],
)
def test_what_is_no_document_is_refused_with_its_file(tmp_path: Path, root: Any, name: str, reason: str) -> None:
    path = written(tmp_path, root, name)
    with pytest.raises(BadFile) as refused:
        read(path)
    assert str(path) in str(refused.value)
    assert reason in str(refused.value)


def test_a_yaml_document_of_nearly_2_mib_is_read(tmp_path: Path) -> None:
    path = "  /{0}/{{id}}: {{get: {{operationId: a{0}, summary: 'Reads [a](https://b.example): {1}'}}}}\n"
    text = "openapi: 3.2.0\npaths:\n" + "".join(path.format(n, "word " * 50) for n in range(6000))
    assert 0.9 < len(text) / MAX_YAML_BYTES <= 1
    assert len(read_back(tmp_path, text, "api.yaml").root["paths"]) == 6000


@pytest.mark.parametrize("name", ["missing.json", "missing.yaml"])
def test_a_missing_file_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadFile, match="No such file"):
        read(tmp_path / name)


def referring(**schemas: Any) -> OpenApiFile:
    own = {"$self": "https://api.example/openapi"}
    return document({}, **own, components={"schemas": schemas, "list": [{"x": 1}], "a/b~c": {200: {"y": 2}}})


@pytest.mark.cases(
    ("reference", "found"),
    [
        ("#/components/schemas/A", {"type": "string"}),
        ("#/components/schemas/B", {"type": "string"}),
        ("https://api.example/openapi#/components/schemas/A", {"type": "string"}),
        ("openapi#/components/list/0", {"x": 1}),
        ("#/components/list/0", {"x": 1}),
        ("#/components/a~1b~0c/200", {"y": 2}),
        ("#/components/a%7E1b~0c/200", {"y": 2}),
        ("#/components/a/b~0c/200", None),
    ],
)
def test_a_reference_is_followed_to_what_it_means(reference: str, found: Any) -> None:
    whole = referring(A={"type": "string"}, B={"$ref": "#/components/schemas/A"})
    if found is None:
        with pytest.raises(BadFile, match="leads nowhere"):
            whole.follow({"$ref": reference}, "#/here")
    else:
        assert whole.follow({"$ref": reference}, "#/here")[0] == found


@pytest.mark.cases(
    "reference",
    [
        "http://evil.example/schema.json",
        "https://evil.example/#/A",
        "other.yaml#/A",
        "/etc/passwd",
        "file:///etc/passwd",
        "//[#/A",
        "#anchor",
        "",
        5,
        None,
        ["#/components"],
    ],
)
def test_only_references_within_the_document_are_followed(reference: Any) -> None:
    with pytest.raises(BadFile, match=r"api\.json: #/here: .*only references within"):
        referring().follow({"$ref": reference}, "#/here")


@pytest.mark.cases("reference", ["#/components/nowhere", "#/components/list/7", "#/components/list/-1", "#/"])
def test_a_reference_that_leads_nowhere_is_told_with_its_place(reference: str) -> None:
    with pytest.raises(BadFile, match=r"api\.json: #/here: .*leads nowhere"):
        referring().follow({"$ref": reference}, "#/here")


def test_references_in_a_circle_are_refused() -> None:
    circle = referring(A={"$ref": "#/components/schemas/B"}, B={"$ref": "#/components/schemas/A"})
    with pytest.raises(BadFile, match="in a circle"):
        circle.follow({"$ref": "#/components/schemas/A"}, "#/here")
