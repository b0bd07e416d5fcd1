"""`loom workflow`: list and show workflows, run one and follow it, and check the files of workflows."""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loom_worker.cli.http import path_to
from loom_worker.cli.runs import still_running, watch
from loom_worker.cli.show import Api, as_text, common, in_a_line, paged
from loom_worker.core.errors import Transient
from loom_worker.core.settings import Settings, from_env
from loom_worker.core.values.json import Json
from loom_worker.core.values.problems import Problem, in_order

if TYPE_CHECKING:
    from loom_worker.core.values.workflows import Workflow

_SUFFIXES = (".yaml", ".yml")


@click.group()
def workflow() -> None:
    """List the workflows, show one, run one, or check their files; `loom runs` is about the runs."""


@workflow.command(name="list")
@paged
@common
def list_all(*, api: Api, **query: Any) -> None:
    """List the workflows, and what is wrong with their files."""
    api.show("workflows", query=query, columns=("name", "version", "pattern_type", "description"))


@workflow.command(name="show")
@click.argument("name")
@common
def show_one(name: str, *, api: Api) -> None:
    """Show one workflow, field by field."""
    api.show("workflows", name)


@workflow.command()
@click.argument("name")
@click.option("--var", "pairs", multiple=True, metavar="NAME=VALUE", help="A variable; may be given several times.")
@click.option("--var-file", "files", multiple=True, metavar="NAME=PATH", help="A variable: the text of this file.")
@click.option("--input", "input_text", help="What the run works on: the variable input.")
@click.option("--budget-usd", type=click.FloatRange(min=0), help="What all stages may cost together, in USD.")
@click.option("--budget-tokens", type=click.IntRange(min=0), help="How many tokens all stages may use together.")
@click.option(
    "--deadline", type=click.FloatRange(min=0, min_open=True), help="Seconds after which the run is given up."
)
@click.option("--detach", is_flag=True, help="Print the run's id and leave it to itself.")
@common
@click.pass_context
def run(ctx: click.Context, /, name: str, *, detach: bool, api: Api, **given: Any) -> None:
    """Run a workflow and print its result; exit code 0 if the run completed.

    On a terminal its stages are shown as a tree while they are done; to a pipe or file goes the result alone. Ctrl-C
    leaves the run to itself.
    """
    begun = _started(api, name, _body(**given))
    if not detach:
        ctx.exit(watch(api, begun))
    api.tell(begun, lambda run: str(run["id"]))
    if not api.as_json:
        click.echo(still_running(begun["id"]), err=True)


def _started(api: Api, name: str, body: Json) -> Json:
    """The accepted run. A request that may be lost is sent twice; its key keeps it from starting two runs."""
    path = path_to("workflows", name, "runs")
    key = f"loom-workflow-run-{secrets.token_hex(8)}"
    try:
        return api.loom.call_once(path, key=key, body=body)[0]
    except Transient:
        return api.loom.call_once(path, key=key, body=body)[0]


def _body(
    *,
    pairs: Sequence[str],
    files: Sequence[str],
    input_text: str | None,
    budget_usd: float | None,
    budget_tokens: int | None,
    deadline: float | None,
) -> Json:
    """The request; what was not given is not in it."""
    amounts = {"usd": budget_usd, "tokens": budget_tokens}
    budget = {name: amount for name, amount in amounts.items() if amount is not None}
    text = None if input_text is None else _valid(input_text, "--input")
    given = {"input": text, "deadline_s": deadline, "budget": budget or None}
    return {"variables": _variables(pairs, files), **{name: given[name] for name in given if given[name] is not None}}


def _variables(pairs: Iterable[str], files: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    given = [*(("--var", pair) for pair in pairs), *(("--var-file", pair) for pair in files)]
    for option, pair in given:
        name, is_split, value = pair.partition("=")
        if not is_split or not name:
            raise click.UsageError(f"{option} {pair}: write it as name={'value' if option == '--var' else 'path'}")
        if name in found:
            raise click.UsageError(f"the variable {name} is given twice")
        found[_valid(name, option)] = _valid(value, option) if option == "--var" else _text_of(Path(value))
    return found


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"--var-file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise click.UsageError(f"--var-file {path}: not UTF-8") from error


def _valid(text: str, option: str) -> str:
    if any("\ud800" <= letter <= "\udfff" for letter in text):  # bytes that were no UTF-8
        raise click.UsageError(f"{option}: not valid text in this terminal's encoding")
    return text


@dataclass(frozen=True, slots=True)
class _Findings:
    """What files of workflows hold."""

    workflows: tuple["Workflow", ...]
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> int:
        """Problems that keep a workflow from running."""
        return sum(not problem.is_warning for problem in self.problems)

    def as_json(self) -> Json:
        """For programs."""
        names = ("name", "pattern_type", "agents", "variables")
        told = [{**{name: each.as_json()[name] for name in names}, "source": each.source} for each in self.workflows]
        return {"workflows": told, "problems": [problem.as_json() for problem in self.problems]}


@workflow.command()
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Workflows and problems as JSON.")
@click.pass_context
def lint(ctx: click.Context, /, paths: Sequence[Path], *, as_json: bool) -> None:
    """Say what is wrong with files or folders of workflows (unless given, LOOM_WORKFLOWS_DIR), with file and line.

    They are read now, and no Loom needs to run. Warnings alone are no failure: the exit code is 1 only if a workflow
    could not be run.
    """
    from loom_worker.demo.workflows import shipped_workflows
    from loom_worker.workflows.load import used_folder

    settings = from_env()
    looked_at = paths or (used_folder(settings.workflows_dir, shipped_workflows()) or Path(),)
    found = _findings(looked_at, settings)
    if as_json:
        click.echo(as_text(found.as_json()))
    else:
        for problem in found.problems:
            click.echo(in_a_line(f"{problem.level:<9}{problem}"))
        for each in found.workflows:
            click.echo(in_a_line(_summary(each)))
        places = ", ".join(map(str, looked_at))
        warnings = len(found.problems) - found.errors
        count = f"{len(found.workflows)} workflows, {found.errors} problems, {warnings} warnings"
        click.echo(in_a_line(f"{count} in {places}"))
    ctx.exit(1 if found.errors else 0)


def _findings(paths: Iterable[Path], settings: Settings) -> _Findings:
    from loom_worker.agents.load import load as load_agents
    from loom_worker.workflows.load import faults

    agents = load_agents(settings.agents_dir)
    workflows: dict[str, Workflow] = {}
    problems: list[Problem] = []
    for path in paths:
        read = _read(path)
        problems += [*read.problems, *(fault for each in read.workflows for fault in faults(each, agents))]
        workflows |= {each.source: each for each in read.workflows}
    return _Findings(tuple(workflows.values()), in_order(problems))


def _read(path: Path) -> _Findings:
    """What a folder holds, or one file of it: its names must not be those of the files beside it."""
    from loom_worker.workflows.load import load

    if path.is_file() and path.suffix not in _SUFFIXES:
        return _Findings((), (Problem("is not read", "files of workflows end in .yaml or .yml", str(path)),))
    found = load(path.parent if path.is_file() else path)
    is_meant = {str(path)} if path.is_file() else None
    workflows = tuple(each for each in found.workflows.values() if is_meant is None or each.file in is_meant)
    problems = tuple(each for each in found.problems if is_meant is None or each.file in is_meant)
    return _Findings(workflows, problems)


def _summary(each: "Workflow") -> str:
    """A workflow in a line, with the variables that a run must give."""
    needs = ", ".join(f"{name} (line {line})" if line else name for name, line in each.needed.items())
    return f"{each.name}: {each.pattern.type}, {f'a run must give {needs}' if needs else 'no variable must be given'}"
