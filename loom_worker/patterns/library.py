"""The pattern library: YAML files under one folder, read into patterns; what cannot be read is reported, not fatal."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from stat import S_ISDIR

from loom_worker.core.fields import InvalidField, mapping
from loom_worker.core.text import one_line
from loom_worker.core.values.patterns import Pattern
from loom_worker.core.yaml_files import Document, Unreadable, marked_documents
from loom_worker.patterns import aliases
from loom_worker.patterns.fields import PatternFields
from loom_worker.patterns.library_entries import Unit, pattern, units

_SUFFIXES = (".yaml", ".yml")
_IGNORED = (".", "#", "~")
"""Prefixes of the names of hidden files and of editors' temporary ones."""
MOST_PROBLEMS = 20
"""Problems of one file that are listed one by one; the others are counted."""
MAX_PROBLEM_CHARS = 500
"""Longest text of a problem; the beginning of what it quotes from a file is enough to find it."""
_PATH_CHARS = 300
"""Most of it for the path, so that a deep folder leaves room for the reason."""
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class Library:
    """What a folder of pattern files gave."""

    patterns: tuple[Pattern, ...]
    """In the order of their files, each id once."""
    problems: tuple[str, ...]
    """Why files or patterns were left out, each by ``problem_text``, at most ``MOST_PROBLEMS`` of a file."""


@dataclass(frozen=True, slots=True)
class FileContent:
    """What one file gave; the same bytes under the same name give the same."""

    patterns: tuple[Pattern, ...] = ()
    problems: tuple[str, ...] = ()
    """Why patterns, or all of the file, were left out, each as ``file:line: reason``."""
    path: Path = field(default_factory=Path)


@dataclass(frozen=True, slots=True)
class FileProblem:
    """Why a file or a pattern of it is left out."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return problem_text(self.path, self.line, self.reason)


def problem_text(path: Path, line: int, reason: str, *, outcome: str = "") -> str:
    """``file:line: reason; outcome`` for a log, a terminal or a response: one short line, all of it visible."""
    where = f"{one_line(str(path), _PATH_CHARS)}:{line}: "
    return with_outcome(where + reason, outcome) if outcome else one_line(where + reason, MAX_PROBLEM_CHARS)


def with_outcome(problem: str, outcome: str) -> str:
    """The text of a problem followed by its outcome, no longer than such texts may be."""
    return f"{one_line(problem, MAX_PROBLEM_CHARS - len(outcome) - 2)}; {outcome}"


def packaged_root() -> Path:
    """The folder of the patterns that ship with Loom: inside the package when installed, else the repository's own."""
    here = Path(__file__).resolve().parent
    inside = here / "library_files"
    return inside if inside.is_dir() else here.parents[1] / "patterns"


def load(root: Path) -> Library:
    """Read every pattern file under ``root/<library>/``.

    A pattern's id is its folder under the root and its name, ``sql/top_n``; the name of a library that is not called
    as its folder stands between them. A file, document or pattern that cannot be used is left out and named in
    ``problems``; the rest loads.
    """
    if error := root_error(root):
        return Library((), (problem_text(root, 1, error),))
    return merged(read_file(path, root) for path in library_files(root))


def root_error(root: Path) -> str:
    """Why there is no folder of this name; empty if there is one."""
    try:
        return "" if S_ISDIR(root.stat().st_mode) else "no such folder"
    except FileNotFoundError:
        return "no such folder"
    except OSError as error:
        return error.strerror or str(error)


def library_files(root: Path) -> list[Path]:
    """The ``.yaml`` and ``.yml`` files under a folder, sorted, without hidden ones and editors' temporary ones.

    Links to folders are followed, and no folder is entered twice: one that lies under the root counts there, and
    not where a link leads to it. A folder that cannot be listed, or a link that cannot be followed, is in the list:
    reading it says why.
    """
    found: list[Path] = []
    entered: set[tuple[int, int]] = set()
    folders, links = [root], list[Path]()
    while folders or links:
        folder = folders.pop() if folders else links.pop(0)
        try:
            facts = folder.stat()
            inside = (
                [] if (facts.st_dev, facts.st_ino) in entered else sorted(os.scandir(folder), key=attrgetter("name"))
            )
        except OSError:
            found.append(folder)
            continue
        entered.add((facts.st_dev, facts.st_ino))
        for entry in inside:
            if not entry.name.startswith(_IGNORED):
                _assign(entry, files=found, folders=folders, links=links)
    return sorted(found)


def _assign(entry: os.DirEntry[str], *, files: list[Path], folders: list[Path], links: list[Path]) -> None:
    try:
        if entry.is_dir():
            (links if entry.is_symlink() else folders).append(Path(entry.path))
        elif entry.name.lower().endswith(_SUFFIXES) and entry.is_file():
            files.append(Path(entry.path))
    except OSError:  # a link to itself, or into a folder that is closed
        files.append(Path(entry.path))


def read_file(path: Path, root: Path) -> FileContent:
    """Read one file of the library under ``root``; never raises for what the file says, or for its absence."""
    found, problems = read(path, root)
    return FileContent(tuple(made for _, made in found), tuple(map(str, problems)), path)


def merged(files: Iterable[FileContent]) -> Library:
    """Put files together in their order; of patterns with one id the first stays and the others are problems."""
    first: dict[str, Pattern] = {}
    problems: list[str] = []
    for content in files:
        of_file = list(content.problems)
        for found in content.patterns:
            if found.id in first:
                path = content.path if content.path.name else Path(found.source)
                of_file.append(problem_text(path, found.line, repeated(found, first[found.id])))
            else:
                first[found.id] = found
        problems += of_file[:MOST_PROBLEMS]
        if len(of_file) > MOST_PROBLEMS:
            problems.append(problem_text(content.path, 1, unlisted(len(of_file))))
    return Library(tuple(first.values()), tuple(problems))


def with_shipped(own: Library, shipped: Library) -> Library:
    """Add the patterns that ship with Loom to those of a user; one of the user's takes the place of its namesake."""
    taken = {pattern.id for pattern in own.patterns}
    added = tuple(pattern for pattern in shipped.patterns if pattern.id not in taken)
    return Library((*own.patterns, *added), own.problems)


def unlisted(count: int) -> str:
    """Says how many of the problems of one file are not listed."""
    return f"… and {count - MOST_PROBLEMS} more"


def repeated(found: Pattern, first: Pattern) -> str:
    """Why a pattern is left out whose id another one has."""
    return f"{found.id} is already defined in {first.source}; this one is left out"


def read(path: Path, root: Path) -> tuple[list[tuple[Unit, Pattern]], list[FileProblem]]:
    """Read one file: its patterns, each with what the file says of it, and what is left out."""
    relative = path.relative_to(root)
    if not str(relative).isprintable():
        reason = "the name of the file or its folder has characters that cannot be shown"
        return [], [FileProblem(path, 1, reason)]
    if len(relative.parts) == 1 and os.path.isfile(path):  # Path.is_file() raises for what a closed folder holds
        return [], [FileProblem(path, 1, f"a pattern file belongs in a library folder, such as sql/{path.name}")]
    try:
        documents = marked_documents(path)
    except Unreadable as error:
        return [], [FileProblem(path, error.line, error.reason)]
    problems: list[FileProblem] = []
    found: list[tuple[Unit, Pattern]] = []
    for document in documents:
        for unit in _units(document, path, problems):
            try:
                made = _pattern(unit, relative.parent.as_posix())
                found.append((unit, replace(made, source=relative.as_posix(), line=unit.line)))
            except InvalidField as error:
                problems.append(FileProblem(path, unit.line_of(error.place), unit.explain(error)))
            except ValueError as error:  # a number too long to be written in digits
                problems.append(FileProblem(path, unit.line, str(error)))
    return found, problems


def _units(document: Document, path: Path, problems: list[FileProblem]) -> list[Unit]:
    """The patterns of a document, without those that repeat a key; what is left out is added to the problems."""
    try:
        found = list(units(document))
    except InvalidField as error:
        problems.append(FileProblem(path, document.nearest_line(*error.place), str(error)))
        return []
    problems += [
        FileProblem(path, line, f"the key {key} stands twice in one mapping") for key, line in document.repeated()
    ]
    return [unit for unit in found if not unit.has_repeats]


def _pattern(unit: Unit, folder: str) -> Pattern:
    fields = PatternFields(mapping(unit.body, (), "" if unit.label else "a pattern"), aliases.PATTERN)
    name = folder.rsplit("/", 1)[-1]
    inherited = dict(unit.inherited)
    if not unit.is_flat and not inherited.get("category"):
        inherited["category"] = name
    # Two libraries in one folder may use the same names, so a library not called as its folder stands in the id.
    library = _NOT_IN_IDS.sub("-", str(unit.library.get("name") or "")).strip("-.")
    folder = f"{folder}/{library}" if library and library != name else folder
    return pattern(fields, folder=folder, inherited=inherited, library=unit.library)
