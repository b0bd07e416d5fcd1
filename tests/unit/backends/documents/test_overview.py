import pytest

from loom_worker.backends.documents.folder import FolderEntry, FolderListing
from loom_worker.backends.documents.overview import MAX_CHARS, MAX_NAMES, overview
from loom_worker.core.errors import ToolFailed
from tests.unit.backends.documents.made import Folder, pdf


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
