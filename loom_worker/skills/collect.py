"""The files of a skill that is to be installed or copied, out of a folder or an archive that a stranger made.

Regular files only, never more than the limits allow, and no link is followed. Nothing here writes a file. Archives are
recognised by their first bytes, since names say anything.
"""

import gzip
import hashlib
import io
import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import Final

from loom_worker.skills.folder import opened, read
from loom_worker.skills.package import (
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_TOTAL_BYTES,
    FileCollection,
    Package,
    Unsafe,
    refused,
)
from loom_worker.skills.spec import FILE

MAX_ARCHIVE_BYTES: Final = 10 * 1024 * 1024
MAX_ENTRIES: Final = 4 * MAX_FILES
"""Entries of an archive, folders and hidden files included."""
_MAX_TAR_BYTES = MAX_TOTAL_BYTES + MAX_ENTRIES * 1024
"""Size of a tar once it is unpacked: each entry has a header, and is padded to whole blocks."""
_XZ_MEMORY_BYTES = 80 * 1024 * 1024
"""The strongest setting of xz (-9) needs 65 MiB to unpack, whatever the size."""
_ZIP, _GZIP, _XZ = b"PK\x03\x04", b"\x1f\x8b", b"\xfd7zXZ\0"
_ZIP_ENTRY = b"PK\x01\x02"
"""The first bytes of each entry of a zip's directory."""
_TAR_MAGIC = slice(257, 262)
_ENCRYPTED = 0x1
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# All that zipfile and tarfile let through of an archive that was made to break them.
_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    lzma.LZMAError,
    zlib.error,
    struct.error,
    OSError,
    EOFError,
    ValueError,
    OverflowError,
    NotImplementedError,
    RuntimeError,
    LookupError,
)


def unpack(raw: bytes) -> Package:
    """Read a .zip, .tar, .tar.gz or .tar.xz, or a SKILL.md alone.

    Raises:
        Unsafe: it is none of these, broken, too large, or has an entry that may not be there.
    """
    if len(raw) > MAX_ARCHIVE_BYTES:
        raise Unsafe(f"larger than {MAX_ARCHIVE_BYTES} bytes")
    found = FileCollection()
    try:
        _collect(raw, found)
    except Unsafe:
        raise
    except _BROKEN as error:
        raise Unsafe(f"cannot be unpacked ({type(error).__name__})") from error
    return found.package(sha256=hashlib.sha256(raw).hexdigest())


def _collect(raw: bytes, found: FileCollection) -> None:
    if raw.startswith(_ZIP):
        _unzip(raw, found)
    elif raw.startswith(_GZIP):
        _untar(gzip.GzipFile(fileobj=io.BytesIO(raw)).read(_MAX_TAR_BYTES + 1), found)
    elif raw.startswith(_XZ):
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)
        _untar(unpacker.decompress(raw, _MAX_TAR_BYTES + 1), found)
    elif raw[_TAR_MAGIC] == b"ustar":
        _untar(raw, found)
    elif raw.removeprefix(b"\xef\xbb\xbf").startswith(b"---"):
        found.wants(FILE, len(raw))
        found.add(FILE, raw)
    else:
        raise Unsafe("neither an archive (.zip, .tar, .tar.gz, .tar.xz) nor a SKILL.md")


def _unzip(raw: bytes, found: FileCollection) -> None:
    _check_count(raw.count(_ZIP_ENTRY))  # before zipfile makes objects of 200,000 of them
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        for entry in archive.infolist():
            _take_zipped(archive, entry, found)


def _take_zipped(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, found: FileCollection) -> None:
    path = entry.orig_filename  # filename ends at the first NUL
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise refused(path, "a link or a device")
    if entry.is_dir() or kind == stat.S_IFDIR:
        found.folder(path)
        return
    if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _PACKINGS:
        raise refused(path, "encrypted, or packed by other means than deflate")
    if found.wants(path, entry.file_size):
        with archive.open(entry) as file:
            found.add(path, file.read(MAX_FILE_BYTES + 1))


def _untar(raw: bytes, found: FileCollection) -> None:
    if len(raw) > _MAX_TAR_BYTES:
        raise Unsafe(f"more than {MAX_TOTAL_BYTES} bytes in all, unpacked")
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as archive:
        for number, entry in enumerate(archive, start=1):
            _check_count(number)
            _take_tarred(archive, entry, found)
    # At a broken header, as at the end of what was cut off, the iteration just ends.
    if raw[archive.offset : archive.offset + tarfile.BLOCKSIZE] != bytes(tarfile.BLOCKSIZE):
        raise Unsafe("cut off, or broken in the middle")


def _take_tarred(archive: tarfile.TarFile, entry: tarfile.TarInfo, found: FileCollection) -> None:
    if entry.isdir():
        found.folder(entry.name)
        return
    if not entry.isreg() or entry.issparse():
        raise refused(entry.name, "a link or a device")
    if found.wants(entry.name, entry.size):
        file = archive.extractfile(entry)
        content = file.read(MAX_FILE_BYTES + 1) if file else b""
        if len(content) != entry.size:
            raise Unsafe("cut off, or broken in the middle")
        found.add(entry.name, content)


def _check_count(entries: int) -> None:
    if entries > MAX_ENTRIES:
        raise Unsafe(f"more than {MAX_ENTRIES} entries")


def collected(top: Path) -> Package:
    """The files of a folder with a SKILL.md; the path of the folder itself may hold links.

    Raises:
        Unsafe: with the reason; for a link in it, too, hard ones included: who made it chose what would be copied.
    """
    found = FileCollection()
    try:
        with opened(top, ()) as fd:
            _walk(top, fd, found)
    except OSError as error:
        raise Unsafe(f"{error.strerror}") from error
    return found.package(folder=Path(os.path.abspath(top)).name)


def _walk(top: Path, fd: int, found: FileCollection) -> None:
    for path, folders, names, at in os.fwalk(".", dir_fd=fd, follow_symlinks=False):
        prefix = path.removeprefix(".").removeprefix("/")
        folders[:] = [name for name in sorted(folders) if _is_entered(os.path.join(prefix, name), at, found)]
        for name in sorted(names):
            _take(top, os.path.join(prefix, name), at, found)


def _is_entered(path: str, at: int, found: FileCollection) -> bool:
    """Whether a folder is entered; a link to a folder, which is refused, is listed among folders, too."""
    if stat.S_ISLNK(os.stat(os.path.basename(path), dir_fd=at, follow_symlinks=False).st_mode):
        raise refused(path, "a link")
    found.folder(path)
    return not os.path.basename(path).startswith(".")


def _take(top: Path, path: str, at: int, found: FileCollection) -> None:
    status = os.stat(os.path.basename(path), dir_fd=at, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        raise refused(path, "a link")
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        raise refused(path, "no file of its own: a hard link, a pipe or a device")
    if found.wants(path, status.st_size):
        found.add(path, read(top, path.split("/"), most_bytes=MAX_FILE_BYTES))
