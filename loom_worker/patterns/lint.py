"""What is wrong with a pattern library, and what would make it better, each with file and line."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

from loom_worker.core.text import one_line
from loom_worker.core.values.patterns import Pattern
from loom_worker.patterns import lint_rules
from loom_worker.patterns.library import (
    MAX_PROBLEM_CHARS,
    MOST_PROBLEMS,
    library_files,
    read,
    repeated,
    root_error,
    unlisted,
)
from loom_worker.patterns.library_entries import Unit

_WHAT_CHARS, _ADVICE_CHARS = 300, 100

Level = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One error or warning."""

    path: Path
    line: int
    """Of the key it is about, from 1."""
    level: Level
    """error: the pattern, or its file, is left out · warning: it loads, and something in it has no effect."""
    what: str
    advice: str = ""

    def __str__(self) -> str:
        text = f"{self.path}:{self.line}: {'problem' if self.level == 'error' else self.level}: {self.what}"
        return one_line(f"{text} ({self.advice})" if self.advice else text, MAX_PROBLEM_CHARS)


def lint(root: Path, *, others: Iterable[str] = ()) -> tuple[LintFinding, ...]:
    """Check every pattern file under a folder: all that ``load`` leaves out, and warnings; by file and line.

    Args:
        others: ids of patterns from elsewhere, which may be named as related.

    Of a file with more than ``MOST_PROBLEMS`` errors, or warnings, the first are listed and the others counted.
    """
    if error := root_error(root):
        return (LintFinding(root, 1, "error", error),)
    found: list[LintFinding] = []
    loaded: dict[str, tuple[Path, Unit, Pattern]] = {}
    for path in library_files(root):
        units, problems = read(path, root)
        found += [_finding(problem.path, problem.line, "error", problem.reason) for problem in problems]
        for unit, pattern in units:
            if pattern.id in loaded:
                what = repeated(pattern, loaded[pattern.id][2])
                found.append(_finding(path, pattern.line, "error", what, "give it another name"))
            else:
                loaded[pattern.id] = (path, unit, pattern)
    library = lint_rules.Surroundings.of([pattern for _, _, pattern in loaded.values()], others)
    for path, unit, pattern in loaded.values():
        for place, what, advice in lint_rules.warnings(unit, pattern, library):
            found.append(_finding(path, unit.line_of(place), "warning", what, advice))
    found.sort(key=lambda finding: (str(finding.path), finding.line))
    return tuple(each for _, of_file in groupby(found, key=lambda finding: finding.path) for each in _bounded(of_file))


def _finding(path: Path, line: int, level: Level, what: str, advice: str = "") -> LintFinding:
    return LintFinding(path, line, level, one_line(what, _WHAT_CHARS), one_line(advice, _ADVICE_CHARS))


def _bounded(of_file: Iterable[LintFinding]) -> Iterator[LintFinding]:
    counts: dict[Level, int] = {}
    for finding in of_file:
        counts[finding.level] = counts.get(finding.level, 0) + 1
        if counts[finding.level] <= MOST_PROBLEMS:
            yield finding
    for level, count in counts.items():
        if count > MOST_PROBLEMS:
            yield LintFinding(finding.path, 1, level, unlisted(count))
