"""Archives for tests: well-formed ones, and those that somebody made to do harm."""

import gzip
import io
import lzma
import stat
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.unit.skills.parts import skill_md

SKILL = skill_md("pdf").encode()
GOOD: Mapping[str, bytes] = {"pdf/SKILL.md": SKILL, "pdf/references/a.md": b"a", "pdf/scripts/run.sh": b"#!/bin/sh\n"}


@dataclass(frozen=True)
class Entry:
    """One entry of an archive, said as it is written there."""

    name: str
    content: bytes = b"x"
    kind: bytes = tarfile.REGTYPE
    target: str = ""
    mode: int = 0o644


_ZIP_KINDS = {
    tarfile.REGTYPE: stat.S_IFREG,
    tarfile.DIRTYPE: stat.S_IFDIR,
    tarfile.SYMTYPE: stat.S_IFLNK,
    tarfile.CHRTYPE: stat.S_IFCHR,
    tarfile.BLKTYPE: stat.S_IFBLK,
    tarfile.FIFOTYPE: stat.S_IFIFO,
}


def zipped(*entries: Entry, packing: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip with a good skill, and these behind it."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", packing) as archive:
        for entry in (*_good(), *entries):
            info = zipfile.ZipInfo("x")
            info.filename = entry.name  # as it is: the constructor would cut it at a NUL
            info.create_system, info.compress_type = 3, packing
            info.external_attr = (_ZIP_KINDS[entry.kind] | entry.mode) << 16
            archive.writestr(info, entry.target.encode() or entry.content)
            archive.NameToInfo.clear()  # or it warns of a name that is there twice
    return raw.getvalue()


def tarred(*entries: Entry, form: int = tarfile.PAX_FORMAT) -> bytes:
    """A tar with a good skill, and these behind it."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=form) as archive:
        for entry in (*_good(), *entries):
            info = tarfile.TarInfo(entry.name)
            info.type, info.linkname, info.mode = entry.kind, entry.target, entry.mode
            info.size = len(entry.content) if entry.kind == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(entry.content))
    return raw.getvalue()


def tgz(*entries: Entry) -> bytes:
    return gzip.compress(tarred(*entries))


def txz(*entries: Entry) -> bytes:
    return lzma.compress(tarred(*entries))


MAKERS: Mapping[str, Callable[..., bytes]] = {"zip": zipped, "tar": tarred, "tar.gz": tgz, "tar.xz": txz}


def _good() -> list[Entry]:
    return [Entry(name, content, mode=0o4755) for name, content in GOOD.items()]
