"""Workflows from YAML files (docs/workflows.md); an error in a file affects the workflows of that document alone."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from loom_worker.agents.load import files_of
from loom_worker.core.fields import InvalidField
from loom_worker.core.values.problems import Problem, line_near
from loom_worker.core.values.workflows import Workflow
from loom_worker.core.yaml_files import MAX_BYTES, Document, Unreadable, marked_documents
from loom_worker.workflows.document import NAME, read

_SUFFIXES = (".yaml", ".yml")
_NAMED = re.compile(rf"\bname[\"']?\s*:\s*[\"']?({NAME.pattern})")
"""What may be the name of a workflow in a text that is no YAML."""


@dataclass(frozen=True, slots=True)
class Workflows:
    """All workflows of a folder."""

    workflows: Mapping[str, Workflow] = field(default_factory=lambda: MappingProxyType({}))
    """By name."""
    problems: tuple[Problem, ...] = ()
    """What was left out or is not known."""
    refused: Mapping[str, Problem] = field(default_factory=lambda: MappingProxyType({}))
    """Names that a file defines and that are not among ``workflows`` because of an error in it, with that error."""
    unread: frozenset[Path] = frozenset()
    """Files that cannot be read, so that their workflows are not known."""
    suspected: Mapping[str, Problem] = field(default_factory=lambda: MappingProxyType({}))
    """Names that a file with an error seems to define; they explain why a workflow is missing, and remove none."""

    def fault(self, name: str) -> str:
        """Why this workflow is missing although it has a file; empty if it is not missing, or has none."""
        problem = self.refused.get(name) or (None if name in self.workflows else self.suspected.get(name))
        return f"The workflow {name!r} cannot run, its file is broken: {problem}" if problem else ""

    def current(self, wanted: str | None = None) -> "Workflows":
        """These workflows; ``LiveWorkflows`` follow their files."""
        return self


@dataclass(slots=True)
class _Found:
    """What the files define, as far as they are read."""

    workflows: dict[str, Workflow] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    refused: dict[str, Problem] = field(default_factory=dict)
    unread: list[Path] = field(default_factory=list)
    suspected: dict[str, Problem] = field(default_factory=dict)


def load(folder: Path | None) -> Workflows:
    """Read every ``*.yaml`` and ``*.yml`` of a folder, several workflows per file; None gives none.

    A workflow with a value of the wrong type is left out. A key that Loom does not know or use is kept and reported.
    """
    found = _Found()
    if folder is not None and not folder.is_dir():
        found.problems.append(Problem("no such folder", file=str(folder)))
    found.problems += _skipped(folder)
    for path in files_of(folder):
        _read_file(found, path)
    kept = {name: workflow for name, workflow in found.workflows.items() if name not in found.refused}
    return Workflows(
        MappingProxyType(kept),
        tuple(found.problems),
        MappingProxyType(found.refused),
        frozenset(found.unread),
        MappingProxyType(found.suspected),
    )


def used_folder(own: Path | None, shipped: Path | None) -> Path | None:
    """The user's folder; the package's where none is named, or no file is in it, as in a mount that is empty."""
    return own if files_of(own) else shipped or own


def _skipped(folder: Path | None) -> Iterator[Problem]:
    """Files that look like those of workflows and have other suffixes."""
    for path in sorted(folder.glob("*")) if folder else ():
        is_alike = any(suffix.lower() in _SUFFIXES for suffix in path.suffixes)
        if is_alike and path.suffix not in _SUFFIXES and path.is_file():
            yield Problem("is not read", "files of workflows end in .yaml or .yml", str(path), is_warning=True)


def _read_file(found: _Found, path: Path) -> None:
    try:
        documents = marked_documents(path)
    except Unreadable as error:
        _note_unread(found, path, Problem(error.reason, file=str(path), line=error.args[1]))
        return
    if not documents:
        found.problems.append(Problem("no workflow in it", file=str(path), is_warning=True))
        found.suspected.setdefault(path.stem, found.problems[-1])
    for document in documents:
        try:
            workflow, problems = read(path, document)
        except InvalidField as error:
            _refuse(found, path, document, error)
        else:
            found.problems += problems
            _add(found, workflow)


def _add(found: _Found, workflow: Workflow) -> None:
    if workflow.name not in found.workflows:
        found.workflows[workflow.name] = workflow
        return
    text = f"workflow {workflow.name} is already defined in {found.workflows[workflow.name].source}"
    line = int(workflow.source.rpartition(":")[2])
    found.problems.append(Problem(text, "rename one of them, or take it out", workflow.file, line))


def _note_unread(found: _Found, path: Path, problem: Problem) -> None:
    """Note a file of which at most the text is known."""
    text = ""
    with contextlib.suppress(OSError), path.open("rb") as file:
        text = file.read(MAX_BYTES).decode("utf-8", "replace")
    found.problems.append(problem)
    found.unread.append(path)
    for name in (path.stem, *_NAMED.findall(text)):
        found.suspected.setdefault(name, problem)


def _refuse(found: _Found, path: Path, document: Document, error: InvalidField) -> None:
    """Note a document with an error, under the name that it gives."""
    fields = document.content if isinstance(document.content, dict) else {}
    meta = fields.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    line = line_near(document.lines(), error.path) or document.line
    problem = Problem(error.reason, file=str(path), line=line, field=error.path)
    found.problems.append(problem)
    found.suspected.setdefault(name if isinstance(name, str) else path.stem, problem)
    if isinstance(name, str) and fields.get("kind") == "Workflow":
        found.refused[name] = problem
