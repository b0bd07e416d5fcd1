"""Files of a folder that define agents or workflows by name: what they define, and why the rest is left out."""

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from loom_worker.core.fields import NAME, Fields, InvalidField
from loom_worker.core.values.agents import Agent
from loom_worker.core.values.problems import Problem, line_near
from loom_worker.core.values.workflows import Workflow
from loom_worker.core.yaml_files import MAX_BYTES, Document, Unreadable, marked_documents

SUFFIXES = (".yaml", ".yml")
API_VERSION = "loom/v1"
_NAMED = re.compile(rf"\bname[\"']?\s*:\s*[\"']?({NAME})")
"""What may be the name of an entry in a text that is no YAML."""


EntryT = TypeVar("EntryT", Agent, Workflow)


class DefiningFiles(ABC, Generic[EntryT]):
    """What files of one kind define, as far as they have been read."""

    noun: ClassVar[str]
    """What a document defines, in a word."""

    def __init__(self) -> None:
        self.entries: dict[str, EntryT] = {}
        self.problems: list[Problem] = []
        self.refused: dict[str, Problem] = {}
        """Names that a document with an error defines."""
        self.suspected: dict[str, Problem] = {}
        """Names that a file with an error seems to define."""
        self.unread: list[Path] = []

    @abstractmethod
    def read(self, path: Path, document: Document) -> tuple[EntryT, list[Problem]]:
        """What a document defines, and which of its keys have no effect.

        Raises:
            InvalidField: a value cannot be used.
        """

    @abstractmethod
    def head(self, content: dict[str, Any]) -> tuple[Any, bool]:
        """The part of a document that holds its name, and whether the document says that it is of this kind."""

    def add_folder(self, folder: Path | None, files: Iterable[Path]) -> None:
        """Read these files of a folder, and note which others look like them."""
        if folder is not None and not folder.is_dir():
            self.problems.append(Problem("no such folder", file=str(folder)))
        self.problems += self._skipped(folder)
        for path in files:
            self.add(path)

    def add(self, path: Path) -> None:
        """Read a file; what of it cannot be used is noted, and affects its own document alone."""
        try:
            documents = marked_documents(path)
        except Unreadable as error:
            self.note_unread(path, Problem(error.reason, file=str(path), line=error.args[1]))
            return
        if not documents:
            self.problems.append(Problem(f"no {self.noun} in it", file=str(path), is_warning=True))
            self.suspected.setdefault(path.stem, self.problems[-1])
        for document in documents:
            try:
                entry, problems = self.read(path, document)
            except InvalidField as error:
                self._refuse(path, document, error)
            else:
                self.problems += problems
                self._define(entry)

    def note_unread(self, path: Path, problem: Problem) -> str:
        """Note a file of which at most the text is known, and return that."""
        text: str = _text_of(path)
        self.problems.append(problem)
        self.unread.append(path)
        for name in (path.stem, *_NAMED.findall(text)):
            self.suspected.setdefault(name, problem)
        return text

    def _skipped(self, folder: Path | None) -> Iterator[Problem]:
        """Files that look like those of this kind and have other suffixes."""
        for path in sorted(folder.glob("*")) if folder else ():
            is_alike = any(suffix.lower() in SUFFIXES for suffix in path.suffixes)
            if is_alike and path.suffix not in SUFFIXES and path.is_file():
                fix = f"files of {self.noun}s end in .yaml or .yml"
                yield Problem("is not read", fix, str(path), is_warning=True)

    def _define(self, entry: EntryT) -> None:
        known = self.entries.setdefault(entry.name, entry)
        if known is not entry:
            file, _, line = entry.source.rpartition(":")
            text = f"{self.noun} {entry.name} is already defined in {known.source}"
            self.problems.append(Problem(text, "rename one of them, or take it out", file, int(line)))

    def _refuse(self, path: Path, document: Document, error: InvalidField) -> None:
        content = document.content if isinstance(document.content, dict) else {}
        head, is_ours = self.head(content)
        given = head.get("name") if isinstance(head, dict) else None
        name = given if isinstance(given, str) else ""
        line = line_near(document.lines(), error.path) or document.line
        agent = name if self.noun == "agent" else ""
        problem = Problem(error.reason, file=str(path), line=line, agent=agent, field=error.path)
        self.problems.append(problem)
        self.suspected.setdefault(name or path.stem, problem)
        if name and is_ours:
            self.refused[name] = problem


def _text_of(path: Path) -> str:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(MAX_BYTES).decode("utf-8", "replace")
    return ""


def check_kind(root: Fields, kind: str) -> None:
    """Raise InvalidField unless a document says that it is of this kind and version."""
    for key, needed in (("kind", kind), ("apiVersion", API_VERSION)):
        if (given := root.text(key)) != needed:
            raise InvalidField((key,), f"{needed} is needed, not {given or 'nothing'}")


def without_effect(
    entry: EntryT, unknown: Iterable[tuple[str, str]], unused: Iterable[str], document: Document
) -> Iterator[Problem]:
    """Warn of a document's keys that are not known, have no effect yet, or stand twice.

    Args:
        unknown: paths, each with the known key that it resembles, or nothing.
    """
    for path, similar in unknown:
        advice = f"did you mean {similar}?" if similar else "it has no effect"
        yield entry.problem(path, "unknown key", advice, is_warning=True)
    for path in unused:
        yield entry.problem(path, "without effect yet", is_warning=True)
    for key, line in document.repeated():
        text = f"{key} stands there twice, and this one counts"
        yield replace(entry.problem("", text, "take one of them out", is_warning=True), line=line)
