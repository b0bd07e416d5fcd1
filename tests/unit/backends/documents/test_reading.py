"""The reader's process, as the index uses it."""

import os
import zlib
from pathlib import Path

import pytest

from loom_worker.backends.documents.extract import MAX_CHARS, UnreadableDocument
from loom_worker.backends.documents.reader import TOO_MUCH, Answer, Reading, ReadRequest
from tests.unit.backends.documents import made


def order(
    kind: str, *, from_page: int = 1, from_line: int = 1, room_chars: int = MAX_CHARS, for_s: float = 10.0
) -> ReadRequest:
    return {"kind": kind, "from_page": from_page, "from_line": from_line, "room_chars": room_chars, "for_s": for_s}


def read(reading: Reading, path: Path, what: ReadRequest) -> Answer:
    fd = os.open(path, os.O_RDONLY)
    try:
        return reading.read(fd, what)
    finally:
        os.close(fd)


def test_one_process_reads_many_files_of_every_kind(tmp_path: Path) -> None:
    files = {"text": b"plain", "HTML": b"<p>plain", "PDF": made.pdf("plain"), "Word": made.docx("plain")}
    with Reading() as reading:
        for kind, content in files.items():
            (tmp_path / kind).write_bytes(content)
            assert read(reading, tmp_path / kind, order(kind))["passages"][0].body.strip() == "plain", kind


def test_a_file_that_hangs_its_reader_is_given_up_and_the_next_one_is_read(tmp_path: Path) -> None:
    (tmp_path / "hang").write_bytes(made.pdf_of([zlib.compress(b"BT /F1 12 Tf " + b"(a) Tj " * 2_500_000)]))
    (tmp_path / "fine").write_text("fine")
    with Reading() as reading:
        with pytest.raises(UnreadableDocument, match=TOO_MUCH):
            read(reading, tmp_path / "hang", order("PDF", for_s=0.3))
        assert read(reading, tmp_path / "fine", order("text"))["lines"] == 1


def test_no_process_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    before = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    with Reading() as reading:
        read(reading, tmp_path / "a", order("text"))
    assert Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split() == before
