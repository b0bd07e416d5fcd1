"""The JSON Schemas for editors say what the loader does."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from loom_worker.core.yaml_files import marked_documents
from loom_worker.patterns import aliases, library
from loom_worker.patterns.library import library_files, packaged_root
from loom_worker.patterns.library_entries import is_library
from loom_worker.patterns.lint import lint
from tests.support.pattern_files import write

FOLDER = Path(library.__file__).parent / "schemas"
PATTERN, LIBRARY = (json.loads((FOLDER / f"{name}.schema.json").read_text()) for name in ("pattern", "pattern-library"))
PARTS = {
    "pattern": aliases.PATTERN,
    "parameter": aliases.PARAMETER,
    "template": aliases.TEMPLATE,
    "example": aliases.EXAMPLE,
    "common_error": aliases.COMMON_ERROR,
    "rule": aliases.RULE,
}
REGISTRY: Registry[Any] = Registry().with_resource("pattern.schema.json", Resource.from_contents(PATTERN))


def errors(document: Any) -> list[str]:
    schema = LIBRARY if is_library(document) else PATTERN
    return [error.message for error in Draft202012Validator(schema, registry=REGISTRY).iter_errors(document)]


@pytest.mark.parametrize("schema", [PATTERN, LIBRARY], ids=["pattern", "library"])
def test_the_schemas_are_schemas(schema: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]


@pytest.mark.cases("path", library_files(packaged_root()), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_shipped_file_is_valid(path: Path) -> None:
    for document in (each.content for each in marked_documents(path)):
        assert errors(document) == []


@pytest.mark.cases("part", PARTS)
def test_the_schema_knows_exactly_the_keys_of_the_loader(part: str) -> None:
    properties = PATTERN["$defs"][part]["properties"]
    assert set(properties) == set(aliases.all_names(PARTS[part]))
    assert {key for key, told in properties.items() if not told.get("deprecated")} == set(PARTS[part])
    assert all(told["description"] for told in properties.values())


def test_the_schema_of_libraries_knows_exactly_what_they_tell_of_themselves() -> None:
    metadata = set(LIBRARY["properties"]["metadata"]["properties"])
    assert metadata == set(aliases.all_names(aliases.LIBRARY))
    assert set(LIBRARY["properties"]) == metadata | {"apiVersion", "kind", "metadata", "spec", "entries", "patterns"}


@pytest.mark.cases(
    "document",
    [
        {"name": "a"},
        {"name": "a", "category": "c", "priority": 101},
        {"name": "a", "category": "c", "intents": [["x"]]},
        {"name": "a", "category": "c", "templates": {"a": 3.5, "b": {"content": ["x"]}}},
        {"kind": "Agent", "spec": {}},
        {"kind": "Pattern", "spec": {"priority": "soon"}},
        {"patterns": [{"title": "nameless"}]},
        {"kind": "PatternLibrary", "spec": {"entries": [{"name": "a", "priority": -1}]}},
    ],
    ids=range(8),
)
def test_what_the_loader_refuses_an_editor_marks(document: Any) -> None:
    assert errors(document)


@pytest.mark.cases(
    "document",
    [
        {"id": "a", "domain": "c", "odd": {"kept": 1}},
        {"kind": "Pattern", "metadata": {"name": "a"}, "spec": {"prompt": "x", "params": ["n"]}},
        {"name": "core", "patterns": [{"name": "a", "rule": {"action": "x"}}]},
        {"kind": "PatternLibrary", "metadata": {"name": "x", "version": 1}, "spec": {"entries": {"a": {}}}},
    ],
    ids=range(4),
)
def test_what_the_loader_reads_an_editor_takes(document: Any) -> None:
    assert errors(document) == []


def test_the_page_names_every_key_and_every_other_name() -> None:
    page = (packaged_root().parent / "docs/patterns.md").read_text(encoding="utf-8")
    for keys in (*PARTS.values(), aliases.LIBRARY, aliases.BACKENDS):
        for key, others in keys.items():
            listed = f"`{key}` ← " + ", ".join(f"`{other}`" for other in others)
            assert (listed if others else f"`{key}`") in page


def test_the_pages_example_has_no_findings(tmp_path: Path) -> None:
    page = (packaged_root().parent / "docs/patterns.md").read_text(encoding="utf-8")
    text = page.partition("<!-- pattern -->\n```yaml\n")[2].partition("```")[0]
    assert "name: late_orders" in text
    assert lint(write(tmp_path, support__late_orders=text)) == ()
