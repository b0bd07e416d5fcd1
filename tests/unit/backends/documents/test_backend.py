import fcntl
import os
import stat
from pathlib import Path

import pytest

from loom_worker.backends.documents.backend import MAX_CHARS, MAX_NAMES, DocumentsBackend, from_origin, overview
from loom_worker.backends.documents.folder import FolderEntry, FolderListing
from loom_worker.core.errors import ToolFailed
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.values.tools import Tool
from tests.support.at_once import at_once
from tests.unit.backends.documents.made import CALLER, Folder, docx, pdf


def tools(backend: DocumentsBackend) -> dict[str, Tool]:
    return {tool.spec.name: tool for tool in backend.tools()}


def test_every_kind_is_found_with_its_place(folder: Folder) -> None:
    folder.write("a.md", "# Garden\n\n## Bulbs\nPlant tulips in autumn.")
    folder.write("b.html", "<h1>Bulbs</h1><p>Tulip prices")
    folder.write("c.pdf", pdf("Contents", "All about the tulip"))
    folder.write("d.docx", docx(("Heading1", "Orders"), "Forty tulips"))
    folder.write("e.csv", "item,price\ntulip,2\n")
    folder.write("f.json", '{"item": "tulip"}')
    folder.write("g.rst", "Top\n===\ntulips")
    folder.write("NOTES", "tulips")
    hits = {hit.pop("path"): hit for hit in folder.call("search", query="tulip", limit=20)["passages"]}
    assert {path: (hit["lines"], hit.get("page"), hit.get("heading")) for path, hit in hits.items()} == {
        "a.md": ("3-4", None, "Garden > Bulbs"),
        "b.html": ("1-2", None, "Bulbs"),
        "c.pdf": ("2-2", 2, None),
        "d.docx": ("1-2", None, "Orders"),
        "e.csv": ("1-2", None, "item,price"),
        "f.json": ("1-1", None, None),
        "g.rst": ("1-3", None, "Top"),
        "NOTES": ("1-1", None, None),
    }
    assert "Plant tulips" in hits["a.md"]["snippet"]


def test_the_best_passage_comes_first_and_names_and_headings_count_more(folder: Folder) -> None:
    folder.write("returns.md", "We take it back.")
    folder.write("other.md", "Returns, they say, are rare. " + "Something else is said at length here. " * 10)
    folder.write("none.md", "nothing")
    assert folder.found("How do returns work?") == ["returns.md", "other.md"]
    scores = [hit["score"] for hit in folder.call("search", query="returns")["passages"]]
    assert scores == sorted(scores, reverse=True)


def test_a_prefix_and_a_limit_narrow_a_search(folder: Folder) -> None:
    for name in ("a/1.txt", "a/2.txt", "b/1.txt", "a_/1.txt"):
        folder.write(name, "same words")
    assert folder.found("words", path_prefix="a/") == ["a/1.txt", "a/2.txt"]
    assert len(folder.found("words", limit=3)) == 3


def test_a_changed_file_is_read_again_and_a_removed_one_forgotten(folder: Folder) -> None:
    path = folder.write("a.txt", "first version")
    folder.write("b.txt", "other")
    assert folder.found("version") == ["a.txt"]
    path.write_text("second edition")
    assert (folder.found("version"), folder.found("edition")) == ([], ["a.txt"])
    path.unlink()
    assert folder.found("edition") == []
    assert [entry["path"] for entry in folder.call("list")["documents"]] == ["b.txt"]


def test_a_file_that_is_not_changed_is_not_read_again(folder: Folder) -> None:
    path = folder.write("a.txt", "text")
    assert folder.found("text") == ["a.txt"]
    read_at = path.stat().st_atime_ns
    os.utime(folder.path, None)
    assert folder.found("text") == ["a.txt"]
    assert path.stat().st_atime_ns == read_at


def test_indexing_goes_on_with_the_next_call(tmp_path: Path) -> None:
    folder = Folder(tmp_path, timeout_s=0.0)
    folder.write("a.txt", "word")
    folder.write("b.txt", "word")
    result = folder.call("search", query="word")
    assert result == {"passages": [], "note": "0 of 2 files indexed so far; the next call goes on"}
    assert folder.call("list")["documents"][0]["note"] == "not indexed yet"
    with pytest.raises(ToolFailed, match="not indexed yet"):
        folder.read("a.txt")
    assert Folder(tmp_path).found("word") == ["a.txt", "b.txt"]


def test_a_document_that_is_asked_for_is_read_before_others(folder: Folder) -> None:
    for at in range(30):
        folder.write(f"{at:02}.txt", f"number {at}")
    assert folder.read("29.txt").startswith("29.txt (text, 1 lines)\n1\tnumber 29\n[end]")


def test_many_calls_at_once_make_one_index(folder: Folder) -> None:
    for at in range(40):
        folder.write(f"{at}.txt", f"word number{at}")
    found = at_once(lambda _: Folder(folder.path.parent).found("word", limit=20), range(6))
    assert [len(each) for each in found] == [20] * 6
    assert folder.call("list")["total"] == 40


def test_a_call_beside_one_that_indexes_answers_from_what_is_there(tmp_path: Path) -> None:
    folder = Folder(tmp_path, timeout_s=0.3)
    folder.write("a.txt", "word")
    assert Folder(tmp_path).found("word") == ["a.txt"]
    folder.write("b.txt", "word")
    (lock,) = folder.index.glob("*.lock")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert folder.found("word") == ["a.txt"]
    assert folder.call("list")["total"] == 2


def test_an_index_is_private_and_named_by_the_folder(folder: Folder, tmp_path: Path) -> None:
    folder.write("a.txt", "word")
    folder.call("list")
    (tmp_path / "link").symlink_to(folder.path)
    again = tools(DocumentsBackend(tmp_path / "link", folder.index))
    again["list_documents"].run({}, CALLER)
    (file,) = folder.index.glob("*.db")
    assert len(file.stem) == 34
    assert stat.S_IMODE(folder.index.stat().st_mode) == 0o700
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


@pytest.mark.parametrize("content", [b"no database" * 1000, b""])
def test_a_damaged_index_is_made_anew(folder: Folder, content: bytes) -> None:
    folder.write("a.txt", "word")
    assert folder.found("word") == ["a.txt"]
    (file,) = folder.index.glob("*.db")
    for path in folder.index.glob("*.db*"):
        path.unlink()
    file.write_bytes(content)
    with pytest.raises(ToolFailed, match="call again"):
        folder.found("word")
    assert folder.found("word") == ["a.txt"]


def test_the_index_is_not_among_the_documents(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("a.txt", "word")
    backend = DocumentsBackend(folder.path, folder.path / "index")
    for _ in range(2):
        found = tools(backend)["list_documents"].run({}, CALLER)
        assert isinstance(found, dict)
        assert found["total"] == 1


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.write_text("a file")], ids=["gone", "file"])
def test_a_missing_folder_is_said_by_every_tool(tmp_path: Path, make: object) -> None:
    assert callable(make)
    make(tmp_path / "none")
    backend = DocumentsBackend(tmp_path / "none", tmp_path / "index")
    for name, arguments in (("list", {}), ("search", {"query": "a"})):
        with pytest.raises(ToolFailed) as failed:
            tools(backend)[f"{name}_documents"].run(arguments, CALLER)
        assert failed.value.code == "UNAVAILABLE"
    with pytest.raises(ToolFailed):
        backend.describe()


def test_an_index_folder_that_cannot_be_made_is_said(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ToolFailed) as failed:
        tools(DocumentsBackend(folder.path, tmp_path / "file/index"))["list_documents"].run({}, CALLER)
    assert failed.value.code == "UNAVAILABLE"


def test_the_list_pages_and_names_what_is_not_read(folder: Folder) -> None:
    for at in range(5):
        folder.write(f"{at}.md", f"# Title {at}")
    folder.write("z.png", b"\x89PNG")
    first = folder.call("list", limit=2)
    assert [entry["title"] for entry in first["documents"]] == ["Title 0", "Title 1"]
    assert (first["total"], first["unreadable"], first["next_offset"]) == (6, 1, 2)
    last = folder.call("list", limit=2, offset=4)
    assert last["documents"][1] == {"path": "z.png", "unreadable": "files of its kind (.png) are not read"}
    assert "next_offset" not in last


def test_lines_and_pages_can_be_asked_for(folder: Folder) -> None:
    folder.write("a.txt", "\n".join(f"line {at}" for at in range(1, 11)))
    folder.write("b.pdf", pdf("one", "two", "three"))
    assert folder.read("a.txt", from_=3, to=4).splitlines()[1:] == ["3\tline 3", "4\tline 4", "[lines 5 to 10 follow]"]
    assert "two" in folder.read("b.pdf", page=2)
    assert "three" not in folder.read("b.pdf", page=2)


@pytest.mark.parametrize("arguments", [{"from_": 11}, {"from_": 5, "to": 4}, {"page": 1}])
def test_lines_that_are_not_there_are_said_with_those_that_are(folder: Folder, arguments: dict[str, int]) -> None:
    folder.write("a.txt", "\n".join("x" * 10))
    with pytest.raises(ToolFailed, match="10 lines") as failed:
        folder.read("a.txt", **arguments)
    assert failed.value.code == "INVALID_INPUT"


def test_a_name_that_is_not_there_is_answered_with_near_ones(folder: Folder) -> None:
    for name in ("handbook/returns.md", "handbook/refunds.md", "Größe.txt", "a\\b.md"):
        folder.write(name, "x")
    for given, near in (("returns.md", "handbook/returns.md"), ("handbook/refund.md", "handbook/refunds.md")):
        with pytest.raises(ToolFailed, match=f"did you mean {near}") as failed:
            folder.read(given)
        assert failed.value.code == "ERROR_NOT_FOUND"
    assert "x" in folder.read("Gro\u0308ße.txt")
    assert "x" in folder.read("a\\b.md")


def test_tools_are_read_only_and_carry_where_they_come_from(folder: Folder) -> None:
    folder.write("a.txt", "word")
    for tool in folder.backend.tools():
        assert tool.is_read_only
        assert tool.is_idempotent
        assert tool.group == "documents:docs"
        assert tool.origin == {
            "kind": "documents",
            "path": str(folder.path),
            "index": str(folder.index),
            "timeout_s": 30.0,
        }
        built = tools(from_origin(tool.origin))
        assert built[tool.spec.name].spec == tool.spec
    assert "1\tword" in str(built["read_document"].run({"path": "a.txt"}, CALLER))


def test_making_a_backend_touches_nothing(tmp_path: Path) -> None:
    DocumentsBackend(tmp_path / "none", tmp_path / "index").tools()
    assert list(tmp_path.iterdir()) == []


def test_the_overview_counts_kinds_and_names_documents(folder: Folder) -> None:
    folder.write("b.md", "x")
    folder.write("a/c.md", "x")
    folder.write("d.pdf", pdf("x"))
    folder.write("e.png", "x")
    text = folder.backend.describe()
    assert text.splitlines() == [
        "Folder of documents 'docs': 3 documents (2 Markdown, 1 PDF).",
        "1 other files are not read; list_documents says why.",
        "Use search_documents to find passages and read_document to read on; name path and page or lines.",
        "- a/c.md",
        "- b.md",
        "- d.pdf",
    ]


def test_the_overview_is_the_same_before_and_after_indexing(folder: Folder) -> None:
    for name in ("z.md", "a.md", "m.html"):
        folder.write(name, "# x")
    before = folder.backend.describe()
    folder.call("search", query="x")
    assert folder.backend.describe() == before


def test_a_large_folder_is_cut_short() -> None:
    many = tuple(FolderEntry(f"{at:05}.md", "Markdown") for at in range(10_000))
    text = overview("docs", FolderListing(many, is_cut=True))
    assert (text.count("\n- "), text.splitlines()[-1]) == (MAX_NAMES, f"… and {10_000 - MAX_NAMES} more")
    assert "those beyond are unknown" in text
    long = tuple(FolderEntry(f"{at:05}" + "x" * 900, "text") for at in range(20))
    assert len(overview("docs", FolderListing(long))) < MAX_CHARS + 500


def test_an_empty_folder_says_so() -> None:
    assert overview("docs", FolderListing(())).startswith("Folder of documents 'docs': 0 documents.\n")


def test_a_name_is_shown_in_one_line_without_what_nobody_sees(folder: Folder) -> None:
    folder.write("gro\u202ess\u200b.md", "x")
    folder.write("two  \u3164 words.md", "x")
    folder.write("ü" * 120 + ".md", "x")
    assert folder.backend.describe().splitlines()[-3:] == ["- gross.md", "- two words.md", f"- {'ü' * 120}.md"]
    long = overview("d\u202eocs\n" + "x" * 300, FolderListing((FolderEntry("x" * 900 + ".md", "Markdown"),)))
    assert long.splitlines()[0].startswith("Folder of documents 'docs xxx")
    assert long.splitlines()[-1] == f"- {'x' * 199}…"


def test_a_document_is_found_by_the_name_that_is_shown_if_that_is_its_alone(folder: Folder) -> None:
    folder.write("gro\u202ess\u200b.md", "reversed")
    folder.write("two  \u3164 words.md", "spaced")
    long = "/".join(["n" * 90] * 3) + ".md"
    folder.write(long, "lengthy")
    for shown, text in (("gross.md", "reversed"), ("two words.md", "spaced"), (f"{long[:199]}…", "lengthy")):
        assert text in folder.read(shown)
    folder.write("gros\u2066s.md", "another")
    with pytest.raises(ToolFailed, match="no such document"):
        folder.read("gross.md")
