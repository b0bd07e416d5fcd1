"""What leads out of a folder: every path is tried as an argument, and as a link in the folder when it is indexed."""

import os
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from loom_worker.backends.documents.extract import UnreadableDocument
from loom_worker.backends.documents.folder import opened, opened_file
from loom_worker.core.errors import ToolFailed
from tests.unit.backends.documents.made import Folder, docx

SECRET = "canary-4711"

PATHS = [
    "../secret.txt",
    "../../secret.txt",
    "..",
    ".",
    "./a.md",
    "sub/../a.md",
    "sub/../../secret.txt",
    "sub/./b.md",
    "a.md/../../secret.txt",
    "a.md/",
    "/a.md",
    "//a.md",
    "sub//b.md",
    "{root}/a.md",
    "{root}/../secret.txt",
    "/etc/passwd",
    "//etc/passwd",
    "/proc/self/environ",
    "/proc/self/" + "root/etc/passwd",
    "/proc/self/fd/0",
    "/dev/stdin",
    "/dev/zero",
    "~/.ssh/id_rsa",
    "~root/.bashrc",
    "..\\secret.txt",
    "..\\..\\secret.txt",
    "sub\\b.md",
    "C:\\secret.txt",
    "\\\\host\\share\\secret.txt",
    "\\\\?\\C:\\secret.txt",
    "%2e%2e/secret.txt",
    "..%2fsecret.txt",
    "%2e%2e%2fsecret.txt",
    "..%252fsecret.txt",
    "..%c0%afsecret.txt",
    "..%00/secret.txt",
    "..\0/secret.txt",
    "a.md\0",
    "a.md\0.txt",
    "\0",
    "．．/secret.txt",
    "..／secret.txt",
    "‥/secret.txt",
    "..∕secret.txt",
    "\u202e../secret.txt",
    ".\u200b./secret.txt",
    "../secret.txt\n",
    " ../secret.txt",
    "file:///etc/passwd",
    "file:a.md",
    "http://127.0.0.1/a.md",
    "....//secret.txt",
    "..;/secret.txt",
    "$HOME/secret.txt",
    "`cat ../secret.txt`",
    "a.md' OR '1'='1",
    "%",
    "*",
    "a.m?",
    "\ud800",
    "A.MD",
    "../" * 300 + "secret.txt",
]

LINKS = [
    "../secret.txt",
    "../../../../../../../../../../etc/passwd",
    "..",
    "../outside",
    ".",
    "/",
    "/etc/passwd",
    "/etc",
    "/proc/self/environ",
    "/proc/self/cwd",
    "/proc/self/root",
    "/proc/self/fd",
    "/dev/zero",
    "/dev/stdin",
    "/dev/tty",
    "a.md",
    "sub",
    "nowhere",
    "{root}/../secret.txt",
    "../docs/../secret.txt",
    "sub/../../secret.txt",
    "link.txt",
    "../outside/index.db",
    "/sys/kernel",
    "../pipe",
    "../outside/deep/../../secret.txt",
]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    folder.write("a.md", "# inside\nnothing to hide")
    folder.write("sub/b.md", "also inside")
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "outside/deep").mkdir(parents=True)
    (tmp_path / "outside/index.db").write_text(SECRET)
    os.mkfifo(tmp_path / "pipe")
    return folder


def test_the_corpus_is_large_enough() -> None:
    assert len(set(PATHS)) >= 50
    assert len(set(LINKS)) >= 25


def test_no_path_argument_reaches_a_file_that_the_index_does_not_name(folder: Folder) -> None:
    for path in PATHS:
        with pytest.raises(ToolFailed) as failed:
            folder.read(path.format(root=folder.path) if "{root}" in path else path)
        assert failed.value.code in ("INVALID_INPUT", "ERROR_NOT_FOUND"), path
        assert SECRET not in str(failed.value), path


def test_no_prefix_reaches_a_file_that_the_index_does_not_name(folder: Folder) -> None:
    for path in PATHS:
        for found in (
            folder.call("list", prefix=path)["documents"],
            folder.call("search", query=SECRET, path_prefix=path)["passages"],
        ):
            assert found == [], path


def test_no_name_opens_a_file_outside_of_the_folder(folder: Folder) -> None:
    with opened(folder.path) as root_fd:
        for path in PATHS:
            with (
                pytest.raises(UnreadableDocument),
                opened_file(root_fd, path.format(root=folder.path) if "{root}" in path else path),
            ):
                pass


def test_no_link_in_the_folder_is_followed_when_it_is_indexed(folder: Folder) -> None:
    for at, target in enumerate(LINKS):
        (folder.path / f"link{at}.txt").symlink_to(target.format(root=folder.path))
        (folder.path / "sub" / f"link{at}").symlink_to(target.format(root=folder.path), target_is_directory=True)
    flaws = folder.flaws()
    assert len(flaws) == 2 * len(LINKS)
    assert set(flaws.values()) == {"a symbolic link: links are not followed"}
    assert folder.found(f"{SECRET} root bin") == []
    for path in flaws:
        with pytest.raises(ToolFailed, match="links are not followed"):
            folder.read(path)


def test_no_link_that_takes_the_place_of_an_indexed_file_is_read(folder: Folder) -> None:
    assert folder.found("inside") == ["a.md", "sub/b.md"]
    (folder.path / "a.md").unlink()
    (folder.path / "a.md").symlink_to("../secret.txt")
    (folder.path / "sub").rename(folder.path.parent / "was")
    (folder.path / "sub").symlink_to("../was")
    assert folder.found(f"inside {SECRET}") == []
    for path in ("a.md", "sub/b.md"):
        with pytest.raises(ToolFailed):
            folder.read(path)


def test_archives_stay_closed_and_nothing_is_unpacked(folder: Folder, tmp_path: Path) -> None:
    inner = docx("within an archive")
    for name in ("a.zip", "b.epub", "c.txt", "d"):
        folder.write(name, inner)
    before = {path for path in tmp_path.rglob("*") if folder.index not in path.parents}
    flaws = folder.flaws()
    assert set(flaws) == {"a.zip", "b.epub", "c.txt", "d"}
    assert all("archives are not opened" in flaw for flaw in flaws.values())
    assert {path for path in tmp_path.rglob("*") if folder.index not in path.parents} - {folder.index} == before


_NAME = st.binary(min_size=1, max_size=20).filter(lambda name: not {0, 47} & {*name} and name not in (b".", b".."))


def _code(folder: Folder, path: str) -> str | None:
    """Of the failure to read a document; empty if it was read, and then it holds no secret."""
    try:
        assert SECRET not in folder.read(path)
    except ToolFailed as failed:
        return failed.code
    return ""


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=_NAME,
    suffix=st.sampled_from([b"", b".md", b".html", b".pdf", b".docx", b".csv"]),
    data=st.binary(max_size=200),
)
def test_no_file_name_and_no_content_is_more_than_a_failed_call(
    folder: Folder, name: bytes, suffix: bytes, data: bytes
) -> None:
    path = Path(os.fsdecode(bytes(folder.path) + b"/" + name + suffix))
    path.write_bytes(data)
    try:
        for entry in folder.call("list", limit=100)["documents"]:
            assert _code(folder, entry["path"]) == ("INVALID_INPUT" if "unreadable" in entry else "")
    finally:
        path.unlink()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.one_of(
        st.text(max_size=40), st.lists(st.sampled_from(["..", ".", "", "a.md", "sub", "secret.txt"])).map("/".join)
    )
)
def test_any_path_gives_a_document_of_the_folder_or_a_failed_call(folder: Folder, path: str) -> None:
    codes = ("",) if path in ("a.md", "sub/b.md") else ("INVALID_INPUT", "ERROR_NOT_FOUND")
    assert _code(folder, path) in codes
