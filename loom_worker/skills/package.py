"""The files of a skill that is to be installed, in memory: their paths, and the limits on their number and size.

All of them are known, and within the limits, before the first one is written.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from loom_worker.core.errors import Rejected
from loom_worker.core.text import is_plain, one_line
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
# Up to the last @ of all, not of the host alone, where a password may hold what ends a host: its colon has no port.
_LOGIN = re.compile(
    r"\A(\s*[a-z][a-z0-9+.-]+:/+)(?:[^/?#]*:(?!\d*(?:[/?#]|\Z)).*@|[^/?#]*@)", re.DOTALL | re.IGNORECASE
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
        """Of all files together."""
        return sum(map(len, self.files.values()))


def digest_of(files: Mapping[str, bytes]) -> str:
    """SHA-256, hexadecimal, over path, length and content of each file, in the order of their paths."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(b"%b\0%d\0" % (path.encode(), len(files[path])))
        digest.update(files[path])
    return digest.hexdigest()


class FileCollection:
    """Takes the files of an archive or a folder one by one, and refuses the first that may not be there."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._folded: dict[str, str] = {}
        """How paths read to a file system that knows no case and no Unicode forms, to how they are spelled."""
        self._folders: set[str] = set()
        self._skipped: list[str] = []
        self._size_bytes = 0

    def folder(self, path: str) -> None:
        """Check a folder's path; folders are created for the files in them.

        Raises:
            Unsafe: it may not have this name.
        """
        if parts := self._visible(path):
            self._note_folders(path, (*parts, ""))

    def wants(self, path: str, size_bytes: int) -> bool:
        """Whether a file is to be read; False for a hidden one. Nothing is read before its size is known to fit.

        Raises:
            Unsafe: it may not have this name, there is one already, or it is one too many or too large.
        """
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
        """Keep the content of a file that is wanted.

        Raises:
            Unsafe: it is too large, or all files together are.
        """
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

        Raises:
            Unsafe: there is no SKILL.md, or it is not clear which of several folders is the skill.
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


def named(source: str) -> str:
    """A path or URL in one line, as it can be shown: without user name and password."""
    return one_line(_LOGIN.sub(r"\1…@", source))


@contextmanager
def naming(source: str) -> Iterator[None]:
    """Begin the text of a refusal with what is refused."""
    try:
        yield
    except Unsafe as error:
        raise Unsafe(f"{named(source)}: {error}") from error


def _parts(path: str) -> tuple[str, ...]:
    """A path's parts, ``./`` before and ``/`` behind it taken off.

    Raises:
        Unsafe: it leads out, or is not the same, or not possible, on every system.
    """
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
