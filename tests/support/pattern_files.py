"""Pattern files in a folder of a test."""

from pathlib import Path

from loom_worker.core.values.patterns import Pattern
from loom_worker.patterns.library import Library, load

MINIMAL = "name: top_n\ncategory: ranking\n"


def write(root: Path, **files: str) -> Path:
    """Write ``sql__a="…"`` as ``root/sql/a.yaml``; the line of a problem counts from the first character."""
    for name, text in files.items():
        path = root / (name.replace("__", "/") + ".yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def library(root: Path, **files: str) -> Library:
    return load(write(root, **files))


def only(root: Path, text: str) -> Pattern:
    """The one pattern of a file ``sql/a.yaml`` in which nothing is wrong."""
    found = library(root, sql__a=text)
    assert found.problems == ()
    (pattern,) = found.patterns
    return pattern


def refused(root: Path, text: str) -> tuple[str, ...]:
    """What is wrong with a file ``sql/a.yaml`` that gives nothing, each as ``line: reason``."""
    found = library(root, sql__a=text)
    assert found.patterns == ()
    return tuple(problem.removeprefix(f"{root}/sql/a.yaml:") for problem in found.problems)
