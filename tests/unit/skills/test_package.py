import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.guard.net.address import named
from loom_worker.skills.package import MAX_FILE_BYTES, MAX_SKIPPED, FileCollection, Unsafe, digest_of, naming

PATHS = st.text(st.sampled_from([*"ab./\\: \0"]), min_size=1, max_size=8)


def collected(*paths: str) -> FileCollection:
    found = FileCollection()
    for path in paths:
        if found.wants(path, 1):
            found.add(path, path.encode())
    return found


@given(st.lists(PATHS, max_size=5))
def test_paths_that_are_kept_lie_within_and_never_under_each_other(paths: list[str]) -> None:
    found = FileCollection()
    for path in paths:
        try:
            if found.wants(path, 1):
                found.add(path, b"x")
        except Unsafe:
            continue
    if found.wants("SKILL.md", 1):
        found.add("SKILL.md", b"x")
    kept = found.package().files
    assert all(part.strip(". ") for path in kept for part in path.split("/"))
    assert not any(other.startswith(f"{path}/") for path in kept for other in kept)


@pytest.mark.cases("path", ["CONTRIBUTING.md", "a/console.py", "a.b.c", "naïve-日本.md", "100%", "a b.md", "~x"])
def test_a_usual_name_is_kept(path: str) -> None:
    assert set(collected("SKILL.md", path).package().files) == {"SKILL.md", path}


def test_a_size_is_refused_before_anything_is_read() -> None:
    for size in (-1, MAX_FILE_BYTES + 1):
        with pytest.raises(Unsafe, match="'a': larger than"):
            FileCollection().wants("a", size)


def test_hidden_files_are_not_passed_over_without_end() -> None:
    found = collected(*[f".{n}" for n in range(MAX_SKIPPED)])
    with pytest.raises(Unsafe, match="hidden"):
        found.wants(".more", 1)


@pytest.mark.cases("paths", [(), ("a.md",), ("pdf/a.md",), ("a/SKILL.md", "b/SKILL.md"), ("a/b/SKILL.md",)])
def test_without_a_clear_skill_md_there_is_no_skill(paths: tuple[str, ...]) -> None:
    with pytest.raises(Unsafe, match=r"no SKILL\.md"):
        collected(*paths).package()


def test_a_skill_md_at_the_top_takes_all_that_lies_beside_it() -> None:
    assert set(collected("SKILL.md", "other/SKILL.md").package(folder="pdf").files) == {"SKILL.md", "other/SKILL.md"}


def test_the_digest_is_over_sorted_paths_lengths_and_contents() -> None:
    by_hand = hashlib.sha256(b"a\x001\x00xb/c\x002\x00yz").hexdigest()
    assert digest_of({"b/c": b"yz", "a": b"x"}) == by_hand
    assert digest_of({"a": b"x", "b": b""}) != digest_of({"a": b"", "b": b"x"})


def test_a_refusal_says_of_what_in_one_line() -> None:
    with pytest.raises(Unsafe, match=r"^a b\.zip: 'x': larger"), naming("a\nb.zip"):
        FileCollection().wants("x", 2**40)


@pytest.mark.cases(
    ("source", "shown"),
    [
        ("https://ada:secret@example.com/a.zip", "https://…@example.com/a.zip"),
        ("HTTPS://ada:sec/ret@example.com/a.zip", "HTTPS://…@example.com/a.zip"),
        ("https://ada:se?c#r@et@example.com", "https://…@example.com"),
        ("https:/ada:secret@example.com", "https:/…@example.com"),
        ("ftp://secret@example.com", "ftp://…@example.com"),
        ("https://example.com/@scope/a.zip", "https://example.com/@scope/a.zip"),
        ("https://example.com:8443/@scope/a.zip", "https://example.com:8443/@scope/a.zip"),
        ("./a@b\x1b[2J\n.zip", "./a@b[2J .zip"),
    ],
    ids=lambda text: "",
)
def test_a_source_is_shown_without_a_password(source: str, shown: str) -> None:
    assert named(source) == shown
