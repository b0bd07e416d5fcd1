"""Whatever a file says, it gives patterns or problems; and nobody else's file suffers."""

import json
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.fields import InvalidField
from loom_worker.core.yaml_files import marked_documents
from loom_worker.patterns import aliases
from loom_worker.patterns.fields import PatternFields
from loom_worker.patterns.library import library_files, load, merged, packaged_root, read_file
from loom_worker.patterns.library_entries import pattern
from tests.support.pattern_files import MINIMAL, library, write
from tests.support.until import AT_ONCE_S

NAMES = [*aliases.all_names(aliases.PATTERN), "metadata", "spec", "entries", "patterns", "pattern", "kind"]
INNER = [name for table in (aliases.PARAMETER, aliases.TEMPLATE, aliases.EXAMPLE, aliases.RULE) for name in table]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(NAMES)
KEYS = st.sampled_from(NAMES + INNER) | st.text(max_size=6) | st.integers(0, 3)
VALUES = st.recursive(
    SCALARS, lambda inside: st.lists(inside, max_size=3) | st.dictionaries(KEYS, inside, max_size=4), max_leaves=12
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=6)
FLAT = DOCUMENTS.map(lambda document: {**document, "name": "given", "category": "c"})
LIBRARIES = st.lists(FLAT | DOCUMENTS, max_size=3).map(
    lambda entries: {"kind": "PatternLibrary", "spec": {"entries": entries}}
)
FILES = [path for path in library_files(packaged_root()) if "category" in marked_documents(path)[0].content]
WRONG: tuple[Any, ...] = (None, True, -1, 1.5, "", "x" * 300, [], [[]], [{}], [None], {}, {"a": {"b": [1]}}, {1: 2})


@given(VALUES | DOCUMENTS | FLAT | LIBRARIES)
def test_any_content_gives_patterns_or_problems_and_never_raises(content: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(root, sql__a=yaml.safe_dump(content, allow_unicode=True), sql__b="name: other\ncategory: c")
        found = load(root)
        assert "other" in {made.name for made in found.patterns}
        assert all(problem.startswith(f"{root}/sql/a.yaml:") for problem in found.problems)
        for made in found.patterns:
            assert json.loads(json.dumps(made.extra, allow_nan=False)) == made.extra
            assert 0 <= made.priority <= 100


@given(st.dictionaries(st.text("abcdef", min_size=3).map("x-{}".format), VALUES.filter(lambda v: v == v), max_size=3))
def test_unknown_keys_survive(unknown: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        text = yaml.safe_dump({"name": "a", "category": "c", **unknown}, allow_unicode=True)
        (made,) = library(Path(folder), sql__a=text).patterns
        assert set(made.extra) == set(unknown)


def test_files_in_any_order_give_the_same_patterns() -> None:
    contents = [read_file(path, packaged_root()) for path in library_files(packaged_root())]
    forwards, backwards = merged(contents), merged(reversed(contents))
    assert set(map(repr, forwards.patterns)) == set(map(repr, backwards.patterns))


def mutations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, value in document.items():
        for wrong in WRONG:
            yield key, {**document, key: wrong}
        first = value[0] if isinstance(value, list) and value else None
        for inner in first if isinstance(first, dict) else ():
            for wrong in WRONG[::3]:
                yield key, {**document, key: [{**first, inner: wrong}]}


def refused_key(mutated: dict[str, Any]) -> str | int | None:
    """The key at which a flat pattern is refused; None: it is taken."""
    try:
        pattern(PatternFields(mutated, aliases.PATTERN), folder="sql", inherited={}, library={})
    except InvalidField as error:
        return error.place[0]
    return None


@pytest.mark.heavy
@pytest.mark.cases(("number", "path"), enumerate(FILES))
def test_a_wrong_value_anywhere_is_a_named_problem_or_harmless(number: int, path: Path) -> None:
    """Each file gets every fifth of the wrong values, another fifth than the file before it."""
    document = marked_documents(path)[0].content
    assert refused_key(document) is None
    assert all(refused_key(mutated) in (key, None) for key, mutated in islice(mutations(document), number % 5, None, 5))
    assert refused_key({**document, "priority": "soon"}) == "priority"


def test_a_file_with_a_wrong_value_costs_no_other_file(tmp_path: Path) -> None:
    document = marked_documents(FILES[0])[0].content
    write(tmp_path, sql__other=MINIMAL)
    for _, mutated in list(mutations(document))[::5]:
        found = load(write(tmp_path, sql__a=json.dumps(mutated)))
        assert "sql/top_n" in {made.id for made in found.patterns}
        assert len(found.patterns) + len(found.problems) == 2


BOMB = "\n".join(
    ["name: bomb", "category: c", "a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 11)]
)
MERGES = "\n".join(
    ["name: bomb", "category: c", "a0: &a0 {" + ", ".join(f"k{n}: 1" for n in range(9)) + "}"]
    + [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 11)]
)


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"name: " + b"[" * 50_000, ":1: nested deeper than"),
        (b"- " * 60_000, ":1: nested deeper than"),
        (b"\n".join(b" " * n + b"a:" for n in range(400)), "nested deeper than"),
        (BOMB.encode(), "written out"),
        (MERGES.encode(), "written out"),
        (b"name: a\ntitle: \x00", ":2: control characters are not allowed"),
        (b"name: a\ntitle: \xff", ":2: not UTF-8 (byte 15)"),
        ("name: a".encode("utf-16"), ":1: not UTF-8"),
        (b"name: a\n" + b"#" * 300_000, ":1: 300008 bytes, at most"),
        (b"name: !!python/object/apply:os.system [true]", ":1: could not determine a constructor"),
        (b"name: a\ncategory: c\n\ttitle: x", ":3: found a tab"),
        (b"name: a\ncategory: c\ntitle: !!int ''", ":3: a value does not fit its !! tag"),
        (b"name: &a [*a]\n", "contains itself"),
        (b"name: a\ncategory: c\n? [x]\n: y", ":3: a key that is not a single value"),
        (b"name: a\n---\nname: 'b", "while scanning"),
    ],
    ids=range(15),
)
def test_hostile_files_are_refused_with_file_and_line_and_the_rest_loads(tmp_path: Path, raw: bytes, told: str) -> None:
    write(tmp_path, sql__b=MINIMAL)
    (tmp_path / "sql" / "a.yaml").write_bytes(raw)
    found = load(tmp_path)
    assert [made.id for made in found.patterns] == ["sql/top_n"]
    (problem,) = found.problems
    assert problem.startswith(f"{tmp_path}/sql/a.yaml:")
    assert told in problem or "found unexpected end of stream" in problem
    assert "\n" not in problem


def test_a_library_of_usual_size_is_read_at_once(tmp_path: Path) -> None:
    """Not a measurement (``bench/`` is): 160 files must not take a time that a person notices."""
    texts = [path.read_text(encoding="utf-8") for path in FILES]
    for n in range(160):
        write(tmp_path, **{f"l{n % 11}__f{n}": f"{texts[n % len(texts)]}\nname{n}: x\n"})
    started = time.process_time()
    found = load(tmp_path)
    assert time.process_time() - started < AT_ONCE_S
    assert len(found.patterns) + len(found.problems) >= 160
