from pathlib import Path

import pytest

from loom_worker.errors import BadFile
from loom_worker.yaml_files import MAX_ALIASES, MAX_BYTES, MAX_DEPTH, read_documents


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "f.yaml"


def test_each_document_comes_with_its_line_and_empty_ones_are_left_out(path: Path) -> None:
    path.write_text("# head\na: 1\n---\n---\n# only a remark\n---\nb: [é, null]\n", encoding="utf-8")
    assert read_documents(path) == [(2, {"a": 1}), (7, {"b": ["é", None]})]


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "~\n"])
def test_a_file_without_content_has_no_documents(path: Path, text: str) -> None:
    path.write_text(text)
    assert read_documents(path) == []


def test_dates_stay_the_text_they_are(path: Path) -> None:
    path.write_text("a: 2026-11-21\nb: 2026-11-21T09:30:00Z\nc: 2026-13-45\n")
    assert read_documents(path) == [(1, {"a": "2026-11-21", "b": "2026-11-21T09:30:00Z", "c": "2026-13-45"})]


def test_aliases_and_merges_are_written_out(path: Path) -> None:
    path.write_text("base: &b {x: 1}\nmore: {<<: *b, y: 2}\nsame: *b\n")
    assert read_documents(path) == [(1, {"base": {"x": 1}, "more": {"x": 1, "y": 2}, "same": {"x": 1}})]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: [1, 2\n", 3),
        ("a: b: c\n", 1),
        ("a: 1\n\tb: 2\n", 2),
        ("- *nowhere\n", 1),
        ("a: 1\n? [x]\n: y\n", 2),
        ("a: !!python/object/apply:os.system ['true']\n", 1),
        ("a: !shell true\n", 1),
        ('a: 1\nb: "\\ud800"\n', 2),
    ],
)
def test_what_is_not_plain_yaml_is_refused_with_file_and_line(path: Path, text: str, line: int) -> None:
    path.write_text(text)
    with pytest.raises(BadFile) as refused:
        read_documents(path)
    assert str(refused.value).startswith(f"{path}:{line}: ")


@pytest.mark.parametrize(
    "text", ['!!int ""', "!!bool maybe", '!!float ""', "!!int 0b", '!!binary "é"', "!!int 1:b", "!!omap [a]", "a: \x00"]
)
def test_a_value_that_does_not_fit_its_tag_is_refused_and_no_crash(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(BadFile, match=r"f\.yaml"):
        read_documents(path)


def test_what_is_not_utf_8_is_refused(path: Path) -> None:
    path.write_bytes(b"a: \xff\n")
    with pytest.raises(BadFile, match=r"not UTF-8 \(byte 3\)"):
        read_documents(path)


def test_a_file_that_is_not_there_or_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(BadFile, match=str(path)):
            read_documents(path)


def test_a_file_over_the_size_is_not_read(path: Path) -> None:
    path.write_text("a" * MAX_BYTES)
    assert read_documents(path) == [(1, "a" * MAX_BYTES)]
    path.write_text("a" * (MAX_BYTES + 1))
    with pytest.raises(BadFile, match="at most"):
        read_documents(path)


@pytest.mark.parametrize("bracket", ["[]", "{}"])
def test_nesting_is_counted_before_the_parser_can_crash(path: Path, bracket: str) -> None:
    path.write_text("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    read_documents(path)
    path.write_text(bracket[0] * 100_000)
    with pytest.raises(BadFile, match="nested deeper"):
        read_documents(path)


def test_too_many_aliases_are_refused(path: Path) -> None:
    path.write_text("a: &a 1\nb: [" + "*a, " * MAX_ALIASES + "]\n")
    assert len(read_documents(path)[0][1]["b"]) == MAX_ALIASES
    path.write_text("a: &a 1\nb: [" + "*a, " * (MAX_ALIASES + 1) + "]\n")
    with pytest.raises(BadFile, match="aliases"):
        read_documents(path)


def test_a_few_lines_of_aliases_that_stand_for_billions_are_refused(path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 11)]
    path.write_text("\n".join(lines))
    with pytest.raises(BadFile, match="written out"):
        read_documents(path)


def test_an_alias_that_contains_itself_is_refused(path: Path) -> None:
    for text in ("&a [*a]", "&a {b: [{c: *a}]}"):
        path.write_text(text)
        with pytest.raises(BadFile, match="contains itself"):
            read_documents(path)
