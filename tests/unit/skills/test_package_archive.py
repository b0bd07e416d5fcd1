import gzip
import hashlib
import io
import lzma
import random
import stat
import tarfile
import tracemalloc
import zipfile
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.skills.package import (
    MAX_ARCHIVE_BYTES,
    MAX_ENTRIES,
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_TOTAL_BYTES,
    Unsafe,
    unpack,
)
from tests.unit.skills.archives import GOOD, MAKERS, SKILL, Entry, tarred, zipped

INSIDE = {path.removeprefix("pdf/"): content for path, content in GOOD.items()}
LINK, HARD, FOLDER = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE
HOSTILE = {
    "up": [Entry("../evil")],
    "up in the middle": [Entry("pdf/../../evil")],
    "up at the end": [Entry("pdf/..", kind=FOLDER)],
    "up behind a hidden folder": [Entry(".git/../../evil")],
    "absolute": [Entry("/etc/cron.d/evil")],
    "doubly absolute": [Entry("//etc/evil")],
    "absolute folder": [Entry("/etc", kind=FOLDER)],
    "empty part": [Entry("pdf//evil")],
    "dot part": [Entry("pdf/./evil")],
    "backslashes": [Entry("pdf\\..\\..\\evil")],
    "drive": [Entry("C:/evil")],
    "stream": [Entry("pdf/SKILL.md:evil")],
    "device name": [Entry("pdf/nul")],
    "device name with an ending": [Entry("pdf/Com1.txt")],
    "dot at the end": [Entry("pdf/evil.")],
    "space at the end": [Entry("pdf/evil ")],
    "space at the beginning": [Entry("pdf/ evil")],
    "line end": [Entry("pdf/evil\nloom: all is well")],
    "escape sequence": [Entry("pdf/\x1b[2Jevil")],
    "bidi": [Entry("pdf/\u202egpj.sh")],
    "zero width": [Entry("pdf/SKILL\u200b.md")],
    "full-width separator": [Entry("pdf/a\uff0fevil")],
    "full-width dots": [Entry("pdf/\uff0e\uff0e/evil")],
    "one-dot leaders": [Entry("pdf/\u2024\u2024/evil")],
    "twice": [Entry("pdf/SKILL.md", b"---\nname: pdf\ndescription: Another.\n---\n")],
    "another case": [Entry("pdf/skill.MD")],
    "another Unicode form": [Entry("pdf/\u00e9"), Entry("pdf/e\u0301")],
    "a file above a file": [Entry("pdf/references/a.md/evil")],
    "a file that is a folder": [Entry("pdf/references")],
    "too deep": [Entry("pdf/" + "a/" * 8 + "evil")],
    "name too long": [Entry("pdf/" + "a" * 201)],
    "name too long in bytes": [Entry("pdf/" + "\U0001f600" * 64)],
    "link out": [Entry("pdf/passwd", kind=LINK, target="/etc/passwd")],
    "link within": [Entry("pdf/b.md", kind=LINK, target="references/a.md")],
    "link to a folder, and a file in it": [Entry("pdf/out", kind=LINK, target="/tmp"), Entry("pdf/out/evil")],
    "hidden link": [Entry("pdf/.x", kind=LINK, target="/etc")],
    "device": [Entry("pdf/sda", kind=tarfile.BLKTYPE)],
    "terminal": [Entry("pdf/tty", kind=tarfile.CHRTYPE)],
    "pipe": [Entry("pdf/pipe", kind=tarfile.FIFOTYPE)],
    "file too large": [Entry("pdf/large", bytes(MAX_FILE_BYTES + 1))],
    "too much in all": [Entry(f"pdf/{n}", bytes(MAX_FILE_BYTES)) for n in range(10)],
    "too many files": [Entry(f"pdf/{n}", b"") for n in range(MAX_FILES)],
    "too many entries": [Entry(f"pdf/.{n}", b"") for n in range(MAX_ENTRIES)],
    "two folders": [Entry("other/SKILL.md", SKILL)],
}


@pytest.mark.cases("kind", MAKERS)
def test_a_good_archive_gives_its_files(kind: str) -> None:
    raw = MAKERS[kind]()
    package = unpack(raw)
    assert (package.files, package.folder, package.skipped) == (INSIDE, "pdf", ())
    assert package.sha256 == hashlib.sha256(raw).hexdigest()


@pytest.mark.cases("kind", ["zip", "tar"])
@pytest.mark.cases("name", HOSTILE)
def test_a_hostile_archive_is_refused(kind: str, name: str) -> None:
    with pytest.raises(Unsafe) as refused:
        unpack(MAKERS[kind](*HOSTILE[name]))
    assert str(refused.value).isprintable()


def test_a_name_with_a_nul_is_refused() -> None:
    raw = zipped(Entry("pdf/a.md?.sh")).replace(b"a.md?.sh", b"a.md\0.sh")
    with pytest.raises(Unsafe, match="nobody sees"):
        unpack(raw)


def test_a_hard_link_is_refused() -> None:
    with pytest.raises(Unsafe, match="'pdf/hard': a link or a device"):
        unpack(tarred(Entry("pdf/hard", kind=HARD, target="pdf/SKILL.md")))


def test_a_sparse_file_is_refused_before_it_is_read() -> None:
    raw = tarred(Entry("pdf/sparse", kind=tarfile.GNUTYPE_SPARSE), form=tarfile.GNU_FORMAT)
    with pytest.raises(Unsafe):
        unpack(raw)


def test_a_hidden_file_is_left_out_and_told() -> None:
    hidden = [Entry(".git/config"), Entry("pdf/.env"), Entry("__MACOSX/pdf/._SKILL.md"), Entry("./pdf/b.md")]
    for make in (zipped, tarred):
        package = unpack(make(*hidden))
        assert package.files == {**INSIDE, "b.md": b"x"}
        assert package.skipped == (".git", "__MACOSX/pdf/._SKILL.md", "pdf/.env")


def test_a_skill_at_the_top_of_an_archive_has_no_folder() -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, kind in (("./", FOLDER), ("./SKILL.md", tarfile.REGTYPE), ("./references", FOLDER)):
            info = tarfile.TarInfo(name)
            info.type, info.size = kind, len(SKILL) if kind == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(SKILL))
    package = unpack(raw.getvalue())
    assert (package.files, package.folder) == ({"SKILL.md": SKILL}, "")


def test_a_skill_md_alone_is_a_skill() -> None:
    assert unpack(b"\xef\xbb\xbf" + SKILL).files == {"SKILL.md": b"\xef\xbb\xbf" + SKILL}


@pytest.mark.cases("raw", [b"", b"<html>", b"PK\x05\x06" + bytes(18), b"\x7fELF", b"\x1f\x8b"], ids=repr)
def test_what_is_no_archive_is_refused(raw: bytes) -> None:
    with pytest.raises(Unsafe):
        unpack(raw)


def test_an_archive_that_is_too_large_is_not_looked_into() -> None:
    with pytest.raises(Unsafe, match=f"larger than {MAX_ARCHIVE_BYTES} bytes"):
        unpack(zipped() + bytes(MAX_ARCHIVE_BYTES))


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=["bzip2", "lzma"])
def test_a_zip_packed_by_costly_means_is_refused(packing: int) -> None:
    with pytest.raises(Unsafe, match="other means than deflate"):
        unpack(zipped(packing=packing))


def test_an_encrypted_zip_is_refused() -> None:
    raw = bytearray(zipped())
    raw[raw.rindex(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(Unsafe, match="encrypted"):
        unpack(bytes(raw))


def test_a_zip_that_lies_about_a_size_is_refused() -> None:
    raw = bytearray(zipped(Entry("pdf/bomb", bytes(MAX_FILE_BYTES + 1000))))
    at = raw.rindex(b"PK\x01\x02") + 24
    raw[at : at + 4] = (1000).to_bytes(4, "little")
    with pytest.raises(Unsafe, match="cannot be unpacked"):
        unpack(bytes(raw))


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar.xz"])
def test_a_bomb_is_refused_in_little_memory(kind: str) -> None:
    if kind == "zip":
        raw = zipped(*[Entry(f"pdf/{n}", bytes(MAX_FILE_BYTES)) for n in range(60)])
    else:
        raw = gzip.compress(bytes(60 * 1024 * 1024)) if kind == "tar.gz" else lzma.compress(bytes(20 * 1024 * 1024))
    tracemalloc.start()
    try:
        with pytest.raises(Unsafe, match=f"more than {MAX_TOTAL_BYTES} bytes in all"):
            unpack(raw)
        assert tracemalloc.get_traced_memory()[1] < 45 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_a_zip_with_a_directory_of_many_entries_is_refused_before_it_is_read() -> None:
    raw = zipped() + b"PK\x01\x02" * (MAX_ENTRIES + 1)
    with pytest.raises(Unsafe, match=f"more than {MAX_ENTRIES} entries"):
        unpack(raw)


def test_endless_extended_headers_are_refused() -> None:
    header = tarfile.TarInfo("pdf/x")
    header.type = tarfile.XHDTYPE
    with pytest.raises(Unsafe, match="cannot be unpacked"):
        unpack(header.tobuf(tarfile.USTAR_FORMAT) * 5000)


@pytest.mark.cases("kept", [1024, 1536, 2048, 2560], ids=str)
def test_a_tar_that_is_cut_off_between_entries_is_refused(kept: int) -> None:
    with pytest.raises(Unsafe, match=r"cut off|cannot be unpacked \(ReadError\)"):
        unpack(tarred()[:kept])


def test_a_tar_that_is_broken_in_the_middle_is_refused() -> None:
    raw = bytearray(tarred())
    raw[1024 + 148 : 1024 + 156] = b"garbage!"
    with pytest.raises(Unsafe, match="broken in the middle"):
        unpack(bytes(raw))


@pytest.mark.cases("kind", MAKERS)
def test_a_damaged_archive_is_refused_or_good_but_never_another_error(kind: str) -> None:
    raw, dice = MAKERS[kind](Entry("pdf/more", bytes(range(256)))), random.Random(kind)
    for _ in range(200):
        damaged = bytearray(raw[: dice.choice([len(raw), dice.randrange(1, len(raw))])])
        for _ in range(dice.randrange(4)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        with suppress(Unsafe):
            unpack(bytes(damaged))


@given(
    st.lists(st.text(st.sampled_from([*"./\\:aZ~ \0\u202e\uff0f\u2024e\u0301"]), min_size=1, max_size=12), max_size=4),
    st.sampled_from(["zip", "tar"]),
)
def test_whatever_members_are_called_all_paths_lie_within(names: list[str], kind: str) -> None:
    with suppress(Unsafe):
        for path in unpack(MAKERS[kind](*map(Entry, names))).files:
            parts = path.split("/")
            assert not {"", ".", ".."} & set(parts)
            assert not any(part.startswith(".") for part in parts)
            assert not set(path) & {"\\", ":", "\0", "\u202e", "\uff0f"}


def test_a_mode_says_nothing_as_no_file_keeps_its_own() -> None:
    raw = zipped(Entry("pdf/suid", mode=stat.S_ISUID | 0o777))
    assert unpack(raw).files["suid"] == b"x"
