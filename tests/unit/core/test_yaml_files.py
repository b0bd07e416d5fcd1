from pathlib import Path
from typing import Any

import pytest

from loom_worker.core.errors import BadFile
from loom_worker.core.yaml_files import MAX_ALIASES, MAX_BYTES, MAX_DEPTH, Unreadable, marked_documents


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "f.yaml"


def read_documents(path: Path) -> list[tuple[int, Any]]:
    """Each document with the line on which it begins."""
    return [(document.line, document.content) for document in marked_documents(path)]


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


@pytest.mark.cases(
    ("text", "line"),
    [
        ("a: 1\nb: [1, 2\n", 2),
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


@pytest.mark.cases(
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


def test_a_chain_of_merges_is_counted_before_it_is_written_out(path: Path) -> None:
    lines = ["a0: &a0 {" + ", ".join(f"k{n}: 1" for n in range(9)) + "}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 11)]
    path.write_text("\n".join(lines))
    with pytest.raises(BadFile, match="written out"):
        read_documents(path)


@pytest.mark.cases("levels", [MAX_DEPTH, MAX_DEPTH + 1, 400])
@pytest.mark.cases("style", ["flow", "compact", "block", "pairs"])
def test_the_depth_is_the_same_limit_in_every_style(path: Path, style: str, levels: int) -> None:
    text = {
        "flow": "[" * levels + "]" * levels,
        "compact": "- " * levels + "x",
        "block": "\n".join(" " * n + "a:" for n in range(levels)),
        "pairs": "[a: " * (levels // 2) + "x" * (levels % 2 == 0) + "[]" * (levels % 2) + "]" * (levels // 2),
    }[style]
    path.write_text(text)
    if levels <= MAX_DEPTH:
        assert read_documents(path)
    else:
        with pytest.raises(BadFile, match="nested deeper"):
            read_documents(path)


def test_stars_and_ampersands_of_a_text_are_no_aliases(path: Path) -> None:
    text = "SELECT COUNT(*) FROM t WHERE a & b -- **bold** &x " * (MAX_ALIASES + 1)
    path.write_text(f"a: |\n  {text}\n")
    assert read_documents(path) == [(1, {"a": text + "\n"})]


def test_a_byte_order_mark_and_windows_line_ends_are_no_part_of_the_text(path: Path) -> None:
    path.write_bytes("\ufeffa: 1\r\nb: é\r\n".encode())
    assert read_documents(path) == [(1, {"a": 1, "b": "é"})]


def test_a_lone_equals_sign_is_a_text(path: Path) -> None:
    path.write_text("a: =\n=: b\n")
    assert read_documents(path) == [(1, {"a": "=", "=": "b"})]


def test_sets_and_ordered_mappings_are_built(path: Path) -> None:
    path.write_text("a: !!set {x, y}\nb: !!omap [{x: 1}, {y: 2}]\nc: !!binary aGk=\n")
    assert read_documents(path) == [(1, {"a": {"x", "y"}, "b": [("x", 1), ("y", 2)], "c": b"hi"})]


def test_a_document_tells_the_lines_of_its_parts(path: Path) -> None:
    path.write_text("# head\na:\n  - b: 1\n  - c:\n      d: 2\n---\n1: x\n")
    first, second = marked_documents(path)
    assert [first.line_of(*at) for at in ((), ("a",), ("a", 0), ("a", 1), ("a", 1, "c", "d"))] == [2, 2, 3, 4, 5]
    assert [first.line_of(*at) for at in (("z",), ("a", 2), ("a", "b"), ("a", 0, "b", "x"))] == [None] * 4
    assert [first.nearest_line(*at) for at in (("z",), ("a", 2), ("a", 0, "b", "x"))] == [2, 2, 3]
    assert (second.line, second.line_of(1)) == (7, 7)


def test_keys_that_stand_twice_are_told_where_they_are(path: Path) -> None:
    path.write_text("a: {x: 1, x: 2}\nb:\n  - {y: 1}\n  - y: 1\n    y: 2\na: 3\n")
    (document,) = marked_documents(path)
    assert document.repeated() == (("a", 6), ("x", 1), ("y", 5))
    assert document.repeated("b") == document.repeated("b", 1) == (("y", 5),)
    assert document.repeated("b", 0) == document.repeated("none") == ()


def test_what_a_merge_brings_in_again_does_not_stand_twice(path: Path) -> None:
    path.write_text("a: &a {x: 1}\nb: {<<: *a, x: 2}\n")
    (document,) = marked_documents(path)
    assert document.content["b"] == {"x": 2}
    assert document.repeated() == ()


def test_what_cannot_be_read_says_path_line_and_reason_apart(path: Path) -> None:
    path.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(Unreadable) as refused:
        marked_documents(path)
    assert (refused.value.path, refused.value.line, refused.value.reason) == (path, 2, "not UTF-8 (byte 8)")
    with pytest.raises(Unreadable) as missing:
        marked_documents(path / "none")
    assert (missing.value.line, str(missing.value)) == (1, f"{path / 'none'}: Not a directory")
