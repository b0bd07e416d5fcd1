"""The files of a skill that is to be installed or copied, out of a folder or an archive that a stranger made.

Regular files only, within limits on their number, names and sizes, and no link is followed. All of them are in memory
before the first one is written. Archives are recognised by their first bytes, since names say anything.
"""

import gzip
import hashlib
import io
import lzma
import os
import re
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from loom_worker.core.errors import Rejected
from loom_worker.core.text import is_plain, one_line
from loom_worker.guard.net.address import named
from loom_worker.skills.folder import opened, read
from loom_worker.skills.spec import FILE

MAX_FILES: Final = 500
MAX_FILE_BYTES: Final = 1024 * 1024
"""Largest file; the largest that ``read_skill_file`` reads."""
MAX_TOTAL_BYTES: Final = 10 * 1024 * 1024
MAX_DEPTH: Final = 8
"""Most parts of a path, the file's name included."""
MAX_SKIPPED: Final = 2_000
"""Most hidden files that are left out."""
_MAX_NAME_BYTES = 255
"""Longest name of a file on the usual file systems."""
_RESERVED = re.compile(r"(?:CON|PRN|AUX|NUL|COM[0-9¹²³]|LPT[0-9¹²³])(?:\..*)?", re.IGNORECASE)
"""Names of devices on Windows, whatever follows their first dot."""
_SEPARATORS = frozenset("/\\:")
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


class Unsafe(Rejected):
    """What was to be installed is refused for its files."""


@dataclass(frozen=True, slots=True)
class Package:
    """Files of a skill, by their paths within its folder; ``SKILL.md`` is one of them."""

    files: Mapping[str, bytes]
    folder: str
    """Name of the folder that SKILL.md was in; empty if it was in none."""
    skipped: tuple[str, ...]
    """Hidden files and folders that are left out."""
    sha256: str
    """Hexadecimal, of the archive's or file's bytes; for a folder that of ``digest_of``."""

    @property
    def size_bytes(self) -> int:
        """The bytes of all files together."""
        return sum(map(len, self.files.values()))


def digest_of(files: Mapping[str, bytes]) -> str:
    """SHA-256, hexadecimal, over path, length and content of each file, in the order of their paths."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(b"%b\0%d\0" % (path.encode(), len(files[path])))
        digest.update(files[path])
    return digest.hexdigest()


class FileCollection:
    """Takes the files of an archive or a folder one by one; Unsafe for the first that may not be there."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._folded: dict[str, str] = {}
        """How paths read to a file system that knows no case and no Unicode forms, to how they are spelled."""
        self._folders: set[str] = set()
        self._skipped: list[str] = []
        self._size_bytes = 0

    def folder(self, path: str) -> None:
        """Check a folder's path; folders are created for the files in them; Unsafe: it may not have this name."""
        if parts := self._visible(path):
            self._note_folders(path, (*parts, ""))

    def wants(self, path: str, size_bytes: int) -> bool:
        """Whether a file is to be read; False for a hidden one. Nothing is read before its size is known to fit."""
        parts = self._visible(path)
        if not parts:
            return False
        self._note_folders(path, parts)
        spelled, folded = "/".join(parts), _folded("/".join(parts))
        if folded in self._folded or folded in self._folders:
            raise refused(path, "is there twice, or differs from another in case or Unicode form alone")
        if len(self._files) >= MAX_FILES:
            raise Unsafe(f"more than {MAX_FILES} files")
        _check_size(path, size_bytes)
        self._folded[folded] = spelled
        return True

    def add(self, path: str, content: bytes) -> None:
        """Keep the content of a file that is wanted; Unsafe: it is too large, or all files together are."""
        _check_size(path, len(content))
        self._size_bytes += len(content)
        if self._size_bytes > MAX_TOTAL_BYTES:
            raise Unsafe(f"more than {MAX_TOTAL_BYTES} bytes in all, unpacked")
        self._files["/".join(_parts(path))] = content

    def skip(self, path: str) -> None:
        """Note something hidden that is left out."""
        if len(self._skipped) >= MAX_SKIPPED:
            raise Unsafe(f"more than {MAX_SKIPPED} hidden files")
        self._skipped.append(one_line(path))

    def package(self, *, folder: str = "", sha256: str = "") -> Package:
        """The files, as paths within the folder that holds SKILL.md: that of the source, or the only one in it.

        Args:
            folder: what the source is called; empty for an archive.
            sha256: of the archive; unless given, that of the files.
        """
        files = self._files
        if FILE not in files:
            tops = {path.partition("/")[0] for path in files}
            folder = next(iter(tops)) if len(tops) == 1 else ""
            files = {path.removeprefix(f"{folder}/"): content for path, content in files.items()}
            if FILE not in files:
                raise Unsafe(f"there is no {FILE}, neither at the top nor in an only folder")
        return Package(files, folder, tuple(sorted(set(self._skipped))), sha256 or digest_of(files))

    def _visible(self, path: str) -> tuple[str, ...]:
        """The parts of a path; none for the top itself, and for what is hidden."""
        parts = _parts(path)
        hidden = next((n for n, part in enumerate(parts, start=1) if part.startswith(".")), 0)
        if hidden:
            self.skip("/".join(parts[:hidden]))
        return () if hidden else parts

    def _note_folders(self, path: str, parts: tuple[str, ...]) -> None:
        for n in range(1, len(parts)):
            above = _folded("/".join(parts[:n]))
            if above in self._folded:
                raise refused(path, "lies in what is a file")
            self._folders.add(above)


def refused(path: str, why: str) -> Unsafe:
    """The error for one file, named as far as it can be shown."""
    return Unsafe(f"{one_line(path)!r}: {why}")


@contextmanager
def naming(source: str) -> Iterator[None]:
    """Begin the text of a refusal with what is refused."""
    try:
        yield
    except Unsafe as error:
        raise Unsafe(f"{named(source)}: {error}") from error


def _parts(path: str) -> tuple[str, ...]:
    """A path's parts, ``./`` before and ``/`` behind it taken off."""
    inner = path
    while inner.startswith("./"):
        inner = inner[2:]
    inner = inner.removesuffix("/")
    if inner in ("", ".") and not path.startswith("/"):
        return ()
    parts = tuple(inner.split("/"))
    if len(parts) > MAX_DEPTH:
        raise refused(path, f"more than {MAX_DEPTH} parts deep")
    for part in parts:
        if reason := _name_error(part):
            raise refused(path, reason)
    return parts


def _name_error(part: str) -> str:
    """Why this cannot be a name; empty if it can."""
    if part in ("", ".", ".."):
        return "leads out of the skill's folder"
    if not is_plain(part) or "\0" in part:
        return "has characters that nobody sees, or is too long"
    if len(part.encode()) > _MAX_NAME_BYTES:
        return f"longer than {_MAX_NAME_BYTES} bytes"
    alike = unicodedata.normalize("NFKC", part)
    if _SEPARATORS & set(alike) or (alike.startswith(".") and not part.startswith(".")):
        return "has a backslash, a colon, or characters that stand for separators or dots"
    if part[-1] in ". " or part[0] == " " or _RESERVED.fullmatch(alike):
        return "is not possible, or a device, on other systems"
    return ""


def _folded(path: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())


def _check_size(path: str, size_bytes: int) -> None:
    if not 0 <= size_bytes <= MAX_FILE_BYTES:
        raise refused(path, f"larger than {MAX_FILE_BYTES} bytes")


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
