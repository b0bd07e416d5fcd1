import os
import socket
from pathlib import Path

import pytest

from loom_worker.backends.documents import folder as rooms
from loom_worker.backends.documents.extract import UnreadableDocument
from loom_worker.backends.documents.folder import FolderEntry, FolderListing, listed, opened, opened_file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "docs"
    path.mkdir()
    return path


def listing(root: Path, **options: object) -> FolderListing:
    with opened(root) as fd:
        return listed(fd, **options)  # type: ignore[arg-type]  # the test's own options


def flaws(root: Path) -> dict[str, str]:
    return {entry.name: entry.flaw for entry in listing(root).entries}


def content(root: Path, name: str) -> bytes:
    with opened(root) as root_fd, opened_file(root_fd, name) as fd:
        return os.read(fd, 1000)


def test_files_are_listed_by_relative_name_in_order_without_hidden_ones(root: Path) -> None:
    for name in ("b.txt", "a/z.md", "a/b/c.csv", ".env", ".git/config.txt", "a/.hidden.md", "README"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    names = [(entry.name, entry.kind, entry.flaw) for entry in listing(root).entries]
    assert names == [
        ("README", "text", ""),
        ("a/b/c.csv", "CSV", ""),
        ("a/z.md", "Markdown", ""),
        ("b.txt", "text", ""),
    ]


def test_links_pipes_sockets_and_devices_are_named_and_never_opened(root: Path) -> None:
    (root / "real.txt").write_text("x")
    (root / "in.txt").symlink_to("real.txt")
    (root / "out.txt").symlink_to("/etc/passwd")
    (root / "loop.txt").symlink_to("loop.txt")
    (root / "up").symlink_to("..")
    (root / "proc").symlink_to("/proc/self")
    os.mkfifo(root / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "s.txt"))
        found = flaws(root)
    assert found.pop("real.txt") == ""
    assert {name for name, flaw in found.items() if "symbolic link" in flaw} == {
        "in.txt",
        "out.txt",
        "loop.txt",
        "up",
        "proc",
    }
    assert {name for name, flaw in found.items() if "pipe, socket" in flaw} == {"pipe.txt", "s.txt"}


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.TGZ", "a.7z", "a.whl"])
def test_archives_are_named_and_never_opened(root: Path, name: str) -> None:
    (root / name).write_bytes(b"PK\x03\x04")
    assert "archives are not opened" in flaws(root)[name]


def test_a_name_that_cannot_be_shown_is_shown_escaped_and_not_read(root: Path) -> None:
    for name in (b"a\xff.txt", b"b\n.txt", b"c\xe2\x80\xa8.txt", b"d\x1b[2J.txt"):
        Path(os.fsdecode(bytes(root) + b"/" + name)).write_text("x")
    (root / "a\\xff.txt").write_text("real")
    found = flaws(root)
    assert found.pop("a\\xff.txt") == ""
    assert set(found) == {"b\\n.txt", "c\\u2028.txt", "d\\x1b[2J.txt"}
    assert all("not UTF-8 or holds control" in flaw for flaw in found.values())


def test_names_that_differ_in_case_alone_are_two_documents(root: Path) -> None:
    for name in ("A.md", "a.md"):
        (root / name).write_text(name)
    assert [entry.name for entry in listing(root).entries] == ["A.md", "a.md"]
    assert content(root, "A.md") == b"A.md"


def test_too_large_too_deep_and_too_many_are_said(root: Path) -> None:
    with (root / "big.txt").open("wb") as file:
        file.truncate(rooms.MAX_FILE_BYTES + 1)
    deep = root.joinpath(*["d"] * (rooms.MAX_DEPTH + 1))
    deep.mkdir(parents=True)
    (deep / "x.txt").write_text("x")
    found = flaws(root)
    assert "at most" in found["big.txt"]
    assert [flaw for name, flaw in found.items() if name.startswith("d/")] == ["a folder more than 32 folders deep"]
    for at in range(5):
        (root / f"{at}.txt").write_text("x")
    cut = listing(root, max_files=5)
    assert (cut.is_cut, [entry.name for entry in cut.entries]) == (True, [f"{at}.txt" for at in range(5)])


def test_a_folder_may_be_left_out(root: Path) -> None:
    (root / "index").mkdir()
    (root / "index/x.txt").write_text("x")
    status = (root / "index").stat()
    assert listing(root, skip=(status.st_dev, status.st_ino)).entries == ()


def test_a_signature_changes_with_the_content_also_if_the_time_is_set_back(root: Path) -> None:
    path = root / "a.txt"
    path.write_text("one")
    before, times = listing(root).entries[0].signature, path.stat()
    path.write_text("two")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert listing(root).entries[0].signature != before


def test_a_hard_link_is_a_file_of_the_folder(root: Path) -> None:
    (root.parent / "outside.txt").write_text("shared")
    os.link(root.parent / "outside.txt", root / "linked.txt")
    assert content(root, "linked.txt") == b"shared"


def test_a_file_swapped_for_a_link_after_it_was_listed_is_not_opened(root: Path) -> None:
    (root.parent / "secret.txt").write_text("secret")
    (root / "a.txt").write_text("x")
    (root / "sub").mkdir()
    (root / "sub/secret.txt").write_text("x")
    assert [entry.flaw for entry in listing(root).entries] == ["", ""]
    (root / "a.txt").unlink()
    (root / "a.txt").symlink_to("../secret.txt")
    (root / "sub/secret.txt").unlink()
    (root / "sub").rmdir()
    (root / "sub").symlink_to("..")
    for name, reason in (("a.txt", "no regular file"), ("sub/secret.txt", "symbolic link")):
        with pytest.raises(UnreadableDocument, match=reason):
            content(root, name)


def test_a_folder_swapped_for_a_link_while_it_is_open_leads_nowhere_else(root: Path) -> None:
    (root / "a.txt").write_text("ours")
    with opened(root) as root_fd:
        root.rename(root.parent / "moved")
        (root.parent / "other").mkdir()
        (root.parent / "other/a.txt").write_text("secret")
        root.symlink_to("other")
        with opened_file(root_fd, "a.txt") as fd:
            assert os.read(fd, 100) == b"ours"


@pytest.mark.parametrize(
    ("make", "reason"),
    [(os.mkfifo, "no regular file"), (os.mkdir, "no regular file"), (lambda _path: None, "gone")],
    ids=["pipe", "folder", "nothing"],
)
def test_what_is_no_file_is_refused_without_waiting(root: Path, make: object, reason: str) -> None:
    assert callable(make)
    make(root / "x.txt")
    with pytest.raises(UnreadableDocument, match=reason):
        content(root, "x.txt")


def test_no_descriptor_is_left_open(root: Path) -> None:
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/c.txt").write_text("x")
    (root / "a/link").symlink_to("b")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("a/b/c.txt", "a/link/c.txt", "a/none/c.txt", "../x", "a/b"):
        try:
            content(root, name)
        except UnreadableDocument:
            continue
    assert listing(root).entries[0] == FolderEntry("a/b/c.txt", "text", 1, listing(root).entries[0].signature)
    assert len(os.listdir("/proc/self/fd")) == before
