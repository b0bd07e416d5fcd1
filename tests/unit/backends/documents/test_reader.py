"""The reader's process, as the index uses it."""

import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_worker.backends.documents.extract import MAX_CHARS, UnreadableDocument
from loom_worker.backends.documents.reader import TOO_MUCH, Answer, Reading, ReadRequest, answer
from tests.unit.backends.documents import made


def order(kind: str = "text", *, from_page: int = 1, from_line: int = 1, room_chars: int = 1000) -> ReadRequest:
    return {"kind": kind, "from_page": from_page, "from_line": from_line, "room_chars": room_chars, "for_s": 5.0}


def read(content: bytes, what: ReadRequest, *, ticks: float = 0.0) -> Answer:
    def clock() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += ticks

    times = clock()
    return answer(io.BytesIO(content), what, lambda: next(times))


def test_a_long_pdf_is_gone_on_with_at_the_page_where_time_was_up() -> None:
    pages = [f"page {number}\nb\nc" for number in range(1, 5)]
    content = made.pdf(*pages)
    seen = []
    what = order("PDF")
    while True:
        found = read(content, what, ticks=1.5)
        seen += [(passage.page, passage.first) for passage in found["passages"]]
        if found["next_page"] is None:
            break
        what = order("PDF", from_page=found["next_page"], from_line=found["lines"] + 1)
    assert seen == [(1, 1), (2, 4), (3, 7), (4, 10)]


def test_another_kind_is_cut_when_time_is_up_and_says_so() -> None:
    found = read(b"a\nb\nc\nd\ne\nf\ng\nh", order(), ticks=1.0)
    assert (found["lines"], found["cut"]) == (4, "only its first 4 lines are here: reading took too long")


def test_a_page_without_any_line_is_cut_too_when_time_is_up() -> None:
    assert read(b"<p>a" + b"<div>" * 100_000, order("HTML"), ticks=1.0)["cut"].startswith("only its first 1 lines")


def test_a_page_whose_time_is_up_before_its_first_line_says_so() -> None:
    with pytest.raises(UnreadableDocument, match="takes too long"):
        read(b"<div>" * 100_000, order("HTML"), ticks=1.0)


def test_a_document_is_cut_where_the_room_ends_and_says_so() -> None:
    found = read(b"abcd\nefgh\nijkl", order(room_chars=8))
    assert ([passage.body for passage in found["passages"]], found["cut"]) == (
        ["abcd\nef"],
        "the rest is left out: it is too long",
    )


@pytest.mark.cases(
    ("content", "kind", "reason"),
    [
        (b"", "text", "holds no text"),
        (b" \n\t\n", "CSV", "holds no text"),
        (made.pdf("", ""), "PDF", "only images perhaps"),
        (b"\x1f\x8b\x08\0", "text", "archive by its first bytes"),
        (made.docx("a"), "Markdown", "archive by its first bytes"),
        (b"\x7fELF\0\0", "text", "binary data"),
    ],
)
def test_a_file_without_text_ends_with_a_reason(content: bytes, kind: str, reason: str) -> None:
    with pytest.raises(UnreadableDocument, match=reason):
        read(content, order(kind))


def order_for(
    kind: str, *, from_page: int = 1, from_line: int = 1, room_chars: int = MAX_CHARS, for_s: float = 10.0
) -> ReadRequest:
    return {"kind": kind, "from_page": from_page, "from_line": from_line, "room_chars": room_chars, "for_s": for_s}


def read_in_child(reading: Reading, path: Path, what: ReadRequest) -> Answer:
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
            assert read_in_child(reading, tmp_path / kind, order_for(kind))["passages"][0].body.strip() == "plain", kind


def test_a_file_that_hangs_its_reader_is_given_up_and_the_next_one_is_read(tmp_path: Path) -> None:
    (tmp_path / "hang").write_bytes(made.pdf_of([zlib.compress(b"BT /F1 12 Tf " + b"(a) Tj " * 2_500_000)]))
    (tmp_path / "fine").write_text("fine")
    with Reading() as reading:
        with pytest.raises(UnreadableDocument, match=TOO_MUCH):
            read_in_child(reading, tmp_path / "hang", order_for("PDF", for_s=0.3))
        assert read_in_child(reading, tmp_path / "fine", order_for("text"))["lines"] == 1


def test_no_process_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    before = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    with Reading() as reading:
        read_in_child(reading, tmp_path / "a", order_for("text"))
    assert Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split() == before
