"""Files made to exhaust who reads them end with a reason or with their first part, within the time of a call."""

import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.until import AT_ONCE_S
from tests.unit.backends.documents import made
from tests.unit.backends.documents.made import Folder, document_xml, zipped

pytestmark = pytest.mark.heavy

BOMBS: dict[str, Callable[[], str | bytes]] = {
    "stream.pdf": lambda: made.pdf_of([zlib.compress(b"0" * 100_000_000)]),
    "operators.pdf": lambda: made.pdf_of([zlib.compress(b"BT /F1 12 Tf " + b"(a) Tj " * 2_500_000)]),
    "zeros.docx": lambda: zipped({"word/document.xml": b"0" * 60_000_000}),
    "text.docx": lambda: zipped({"word/document.xml": document_xml("<w:p/>" * 2_000_000)}),
    "laughs.docx": lambda: zipped({"word/document.xml": document_xml("&b;", before='<!DOCTYPE a [<!ENTITY b "ha">]>')}),
    "archive.txt": lambda: zlib.compress(b"0" * 1000, wbits=31),
    "unclosed.html": lambda: "<a" * 2_000_000,
}
"""Such as are never read."""

LONG: dict[str, Callable[[], str]] = {
    "deep.html": lambda: "found" + "<div>" * 200_000,
    "field.csv": lambda: "a,b\n1,found " + "x" * 48_000_000,
    "brackets.json": lambda: "found " + "[" * 6_000_000,
}
"""Such as are read, or begun."""


CALL_S = 9.0
"""Of a call; a third of it is for files that are new, and a child process must have started within that."""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path, timeout_s=CALL_S)


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_with_a_reason_in_time(folder: Folder, name: str) -> None:
    folder.write(name, BOMBS[name]())
    folder.write("z.txt", "fine")
    started = time.monotonic()
    assert list(folder.flaws()) == [name]
    assert time.monotonic() - started < CALL_S + AT_ONCE_S
    assert folder.found("fine") == ["z.txt"]


@pytest.mark.parametrize("name", LONG)
def test_a_huge_file_is_found_by_its_beginning(tmp_path: Path, name: str) -> None:
    folder = Folder(tmp_path)  # reading 48 MB may take a busy machine seconds
    folder.write(name, LONG[name]())
    assert folder.found("found") == [name]
