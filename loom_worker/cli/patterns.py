"""`loom patterns`: what the library holds, what it finds for a question and why, and what is wrong with its files."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from loom_worker.cli.show import Api, common, in_a_line, listing, table
from loom_worker.core.errors import LoomError
from loom_worker.core.settings import from_env
from loom_worker.core.text import one_line
from loom_worker.core.values.patterns import PatternMatch

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_COLUMNS = ("id", "title", "confidence", "score", "terms")


@click.group(invoke_without_command=True)
@click.option("--category", help="Of this category, library or folder of libraries only.")
@common
@listing
def patterns(*, category: str | None, api: Api) -> None:
    """List the patterns; `show`, `match` and `lint` look closer."""
    api.show("patterns", query={"category": category}, columns=("id", "title", "category"))


@patterns.command("show")
@click.argument("pattern_id")
@common
def show_one(pattern_id: str, *, api: Api) -> None:
    """Show one pattern, and what came of turns that used it."""
    parts = pattern_id.split("/")
    # Ids have a folder; without one, or with such parts, a URL leads to something else.
    if len(parts) < 2 or not {"", ".", ".."}.isdisjoint(parts):
        raise LoomError(f"there is no pattern {one_line(pattern_id)!r}")
    api.show("patterns", *parts)


@patterns.command()
@click.argument("question")
@click.option("-k", default=3, show_default=True, type=click.IntRange(1, 20), help="Most candidates.")
@click.option("--agent", help="Only patterns that fit what this agent works on.")
@click.option("--dir", "folder", type=_FOLDER, help="Of this folder, read now; no Loom needs to run.")
@common
def match(question: str, *, k: int, agent: str | None, folder: Path | None, api: Api) -> None:
    """Find the patterns that fit a question, and the words that counted."""
    if folder is not None and agent is not None:
        raise click.UsageError("--agent needs a running Loom; with --dir all patterns of the folder count")
    if folder is None:
        api.show("patterns", "match", query={"q": question, "k": k, "agent": agent}, columns=_COLUMNS)
        return
    found = [candidate.as_json() for candidate in _matches(folder, question, k)]
    answer = {"object": "list", "data": found, "has_more": False, "next": None}
    api.tell(answer, lambda _: table(found, _COLUMNS))


@patterns.command()
@click.argument("folder", required=False, type=_FOLDER)
@click.option("--json", "as_json", is_flag=True, help="The findings as JSON.")
def lint(folder: Path | None, *, as_json: bool) -> None:
    """Say what is wrong with the files of a library (unless given, that of LOOM_PATTERNS_DIR), with file and line.

    Warnings alone are no failure: the exit code is 1 only for what would not be loaded.
    """
    from loom_worker.patterns.library import load, packaged_root
    from loom_worker.patterns.lint import lint as findings_of

    own = from_env().patterns
    root = folder or own.folder or packaged_root()
    shipped = load(packaged_root()).patterns if own.is_shipped_added else ()
    findings = findings_of(root, others=(pattern.id for pattern in shipped))
    if as_json:
        click.echo(json.dumps([{**asdict(each), "path": str(each.path)} for each in findings], indent=2))
    else:
        for each in findings:
            click.echo(in_a_line(str(each)))
        errors = sum(each.level == "error" for each in findings)
        count = len(load(root).patterns)
        click.echo(in_a_line(f"{count} patterns, {errors} problems, {len(findings) - errors} warnings in {root}"))
    if any(each.level == "error" for each in findings):
        raise click.exceptions.Exit(1)


def _matches(folder: Path, question: str, k: int) -> tuple[PatternMatch, ...]:
    from loom_worker.patterns.library import load
    from loom_worker.patterns.match import Matcher

    library = load(folder)
    for problem in library.problems:
        click.echo(in_a_line(problem), err=True)
    if not library.patterns:
        raise LoomError(f"{folder} holds no pattern; `loom patterns lint {folder}` says why")
    return Matcher(library.patterns).match(question, k)
