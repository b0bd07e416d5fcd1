"""The pattern library: YAML files under one folder, read into patterns; what cannot be read is told, not fatal."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from stat import S_ISDIR
from typing import Any

from loom_worker.core.text import one_line
from loom_worker.core.values.patterns import Pattern
from loom_worker.core.yaml_files import Document, Unreadable, marked_documents
from loom_worker.patterns import aliases
from loom_worker.patterns.fields import Misfit, mapping
from loom_worker.patterns.flat import pattern
from loom_worker.patterns.library_entries import Unit, units

_SUFFIXES = (".yaml", ".yml")
_NOT_OURS = (".", "#", "~")
"""How the names of hidden files and of editors' temporary ones begin."""
MOST_PROBLEMS = 20
"""Of one file that are told one by one; of the others, how many there are."""
MAX_PROBLEM_CHARS = 500
"""Longest complaint; of what it quotes from a file the beginning is enough to find it."""
_PATH_CHARS = 300
"""Of them for the path, so that a deep folder leaves room for the reason."""
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class Library:
    """What a folder of pattern files gave."""

    patterns: tuple[Pattern, ...]
    """In the order of their files, each id once."""
    problems: tuple[str, ...]
    """Why files or patterns were left out, each as ``complaint`` makes it, at most ``MOST_PROBLEMS`` of a file."""


@dataclass(frozen=True, slots=True)
class FileContent:
    """What one file gave; the same bytes under the same name give the same."""

    patterns: tuple[Pattern, ...] = ()
    problems: tuple[str, ...] = ()
    """Why patterns, or all of the file, were left out, each as ``file:line: reason``."""
    path: Path = field(default_factory=Path)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a file or a pattern of it is left out."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return problem_text(self.path, self.line, self.reason)


def problem_text(path: Path, line: int, reason: str, *, outcome: str = "") -> str:
    """``file:line: reason; outcome`` for a log, a terminal or an answer: one short line with nothing unseen in it."""
    where = f"{one_line(str(path), _PATH_CHARS)}:{line}: "
    return with_outcome(where + reason, outcome) if outcome else one_line(where + reason, MAX_PROBLEM_CHARS)


def with_outcome(told: str, outcome: str) -> str:
    """A complaint with what became of the matter at its end, no longer than complaints may be."""
    return f"{one_line(told, MAX_PROBLEM_CHARS - len(outcome) - 2)}; {outcome}"


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
    if fault := root_fault(root):
        return Library((), (problem_text(root, 1, fault),))
    return merged(read_file(path, root) for path in library_files(root))


def root_fault(root: Path) -> str:
    """Why there is no folder of this name; empty: there is."""
    try:
        return "" if S_ISDIR(root.stat().st_mode) else "no such folder"
    except FileNotFoundError:
        return "no such folder"
    except OSError as error:
        return error.strerror or str(error)


def library_files(root: Path) -> list[Path]:
    """The ``.yaml`` and ``.yml`` files under a folder, sorted, without hidden ones and editors' temporary ones.

    Links to folders are followed, and no folder is entered twice: one that lies under the root counts there, and
    not where a link leads to it. A folder that cannot be listed, or a link that cannot be followed, stands in the list:
    reading it tells why.
    """
    found: list[Path] = []
    entered: set[tuple[int, int]] = set()
    folders, links = [root], list[Path]()
    while folders or links:
        folder = folders.pop() if folders else links.pop(0)
        try:
            facts = folder.stat()
            inside = [] if (facts.st_dev, facts.st_ino) in entered else sorted(os.scandir(folder), key=_by_name)
        except OSError:
            found.append(folder)
            continue
        entered.add((facts.st_dev, facts.st_ino))
        ours = [entry for entry in inside if not entry.name.startswith(_NOT_OURS)]
        for entry in ours:
            goes_to = _sort(entry, files=found, folders=folders, links=links)
            goes_to.append(Path(entry.path))
    return sorted(found)


def _sort(entry: os.DirEntry[str], *, files: list[Path], folders: list[Path], links: list[Path]) -> list[Path]:
    """Which of the lists an entry belongs in; a new one for what is none of them."""
    try:
        if entry.is_dir():
            return links if entry.is_symlink() else folders
        return files if entry.name.lower().endswith(_SUFFIXES) and entry.is_file() else []
    except OSError:  # a link to itself, or into a folder that is closed
        return files


def _by_name(entry: os.DirEntry[str]) -> str:
    return entry.name


def read_file(path: Path, root: Path) -> FileContent:
    """Read one file of the library under ``root``; never raises for what the file says, or for its absence."""
    found, problems = read(path, root)
    return FileContent(tuple(made for _, made in found), tuple(map(str, problems)), path)


def merged(files: Iterable[FileContent]) -> Library:
    """Put files together in their order; of patterns with one id the first stays and the others are problems."""
    first: dict[str, Pattern] = {}
    problems: list[str] = []
    for content in files:
        told = list(content.problems)
        for found in content.patterns:
            if found.id in first:
                told.append(str(_repeat(found, first[found.id], content.path)))
            else:
                first[found.id] = found
        problems += told[:MOST_PROBLEMS]
        if len(told) > MOST_PROBLEMS:
            problems.append(problem_text(content.path, 1, unlisted(len(told))))
    return Library(tuple(first.values()), tuple(problems))


def with_shipped(own: Library, shipped: Library) -> Library:
    """Add the patterns that ship with Loom to those of a user; one of the user's takes the place of its namesake."""
    taken = {pattern.id for pattern in own.patterns}
    added = tuple(pattern for pattern in shipped.patterns if pattern.id not in taken)
    return Library((*own.patterns, *added), own.problems)


def unlisted(count: int) -> str:
    """How many of so many complaints about one file are not told one by one."""
    return f"… and {count - MOST_PROBLEMS} more"


def _repeat(found: Pattern, first: Pattern, path: Path) -> Problem:
    reason = f"{found.id} is already defined in {first.source}; this one is left out"
    return Problem(path if path.name else Path(found.source), found.line, reason)


def read(path: Path, root: Path) -> tuple[list[tuple[Unit, Pattern]], list[Problem]]:
    """Read one file: its patterns, each with what the file says of it, and what is left out."""
    relative = path.relative_to(root)
    problems = _misplaced(path, relative)
    found: list[tuple[Unit, Pattern]] = []
    for document in [] if problems else _documents(path, problems):
        for unit in _units(document, path, problems):
            try:
                made = _built(unit, relative.parent.as_posix())
                found.append((unit, replace(made, source=relative.as_posix(), line=unit.line)))
            except Misfit as error:
                problems.append(Problem(path, unit.line_of(error.place), unit.told(error)))
            except ValueError as error:  # a number too long to be written in digits
                problems.append(Problem(path, unit.line, str(error)))
    return found, problems


def _misplaced(path: Path, relative: Path) -> list[Problem]:
    if not str(relative).isprintable():
        return [Problem(path, 1, "the name of the file or its folder has characters that cannot be shown")]
    if len(relative.parts) == 1 and os.path.isfile(path):  # Path.is_file() raises for what a closed folder holds
        return [Problem(path, 1, f"a pattern file belongs in a library folder, such as sql/{path.name}")]
    return []


def _documents(path: Path, problems: list[Problem]) -> list[Document]:
    try:
        return marked_documents(path)
    except Unreadable as error:
        problems.append(Problem(path, error.line, error.reason))
        return []


def _units(document: Document, path: Path, problems: list[Problem]) -> list[Unit]:
    """The patterns a document says, without those that say a thing twice; what is left out is added to the problems."""
    try:
        found = list(units(document))
    except Misfit as error:
        problems.append(Problem(path, document.nearest_line(*error.place), str(error)))
        return []
    problems += [Problem(path, line, f"the key {key} stands twice in one mapping") for key, line in document.repeated()]
    return [unit for unit in found if not unit.has_repeats]


def _built(unit: Unit, folder: str) -> Pattern:
    fields = aliases.sort(mapping(unit.body, (), "" if unit.label else "a pattern"), aliases.PATTERN)
    inherited = dict(unit.inherited)
    if not unit.is_flat and not inherited.get("category"):
        inherited["category"] = folder.rsplit("/", 1)[-1]
    return pattern(fields, folder=_id_folder(folder, unit.library), inherited=inherited, library=unit.library)


def _id_folder(folder: str, library: Mapping[str, Any]) -> str:
    """What stands before a pattern's name in its id: two libraries in one folder may use the same names."""
    name = _NOT_IN_IDS.sub("-", str(library.get("name") or "")).strip("-.")
    return f"{folder}/{name}" if name and name != folder.rsplit("/", 1)[-1] else folder
