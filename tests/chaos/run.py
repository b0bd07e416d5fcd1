"""`python -m tests.chaos`: plays scenarios, prints what was done and what came of it; exit 0 if no promise was broken.

The last line of stdout is the whole result as JSON. What went wrong keeps its files, and the report says where; it is
told once more at the very end on stderr, for logs of which only the end is kept.
"""

import json
import multiprocessing
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from tests.chaos import report, scenarios
from tests.chaos.mutants import MUTANTS
from tests.chaos.play import Outcome, Scenario, play
from tests.support.postgres import postgres_folder

TURNS = {"smoke": 0, "short": 500, "long": 10_000}


@click.command()
@click.option("--form", type=click.Choice(["smoke", "short", "long"]), default="short", show_default=True)
@click.option("--seed", type=int, help="Of everything that is left to chance here; a new one unless given.")
@click.option("--turns", type=int, help="Of the storm; 500 in the short form, 10,000 in the long one.")
@click.option(
    "--mutant",
    type=click.Choice(["all", "none", *sorted(MUTANTS)]),
    default="all",
    show_default=True,
    help="Only this planted bug, without scenarios: exit 0 if it is noticed; none: only scenarios.",
)
@click.option("--only", help="Only scenarios whose name has this in it.")
@click.option("--without", help="Not the scenarios whose name has this in it.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep all files in this folder.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Scenarios played at a time.")
@click.pass_context
def main(
    ctx: click.Context,
    form: str,
    seed: int | None,
    turns: int | None,
    mutant: str,
    only: str | None,
    without: str | None,
    keep: Path | None,
    jobs: int,
) -> None:
    """Prove under faults what Loom promises."""
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    click.echo(f"chaos, {form} form, seed {seed}")
    chosen: list[Scenario] = []
    if mutant in ("all", "none"):
        has_server = postgres_folder() is not None
        every = scenarios.of_form(form, seed=seed, turns=turns or TURNS[form], has_server=has_server)
        if not has_server:
            click.echo("PostgreSQL is not installed: the scenario with a store on a server is left out")
        chosen = [one for one in every if (only or "") in one.name and (without is None or without not in one.name)]
    bugs = [mutant] if mutant in MUTANTS else []
    if mutant == "all" and form != "smoke" and not only:
        bugs = list(MUTANTS)
    planted = scenarios.mutants(seed)
    shown: list[Shown] = []
    for one in _played([*chosen, *(planted[name] for name in bugs)], keep, jobs):
        click.echo("\n".join(one.lines))
        shown.append(one)
    is_good = all(one.is_good for one in shown)
    click.echo(json.dumps(_result(form, seed, shown) | {"is_good": is_good}))
    for one in shown:
        if not one.is_good:
            click.echo("\n".join(one.lines), err=True)
    ctx.exit(0 if is_good else 1)


@dataclass(frozen=True)
class Shown:
    """What is told of a scenario; its evidence is left behind in the process that played it."""

    name: str
    is_good: bool
    """No promise was broken; of a planted bug: it was noticed."""
    lines: tuple[str, ...]
    numbers: dict[str, Any] = field(default_factory=dict)
    """Empty for a planted bug."""
    violations: int = 0


def _played(chosen: Iterable[Scenario], keep: Path | None, jobs: int) -> Iterator[Shown]:
    """Play all of them, in processes of their own if several at a time; in the order given."""
    show = partial(_shown, keep=keep)
    if jobs == 1:
        yield from map(show, chosen)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(show, chosen)


def _shown(scenario: Scenario, keep: Path | None) -> Shown:
    outcome = play(scenario, keep / scenario.name.replace(" ", "-") if keep else None)
    mutant = scenario.plan.mutant
    shown = _noticed(mutant, outcome) if mutant else _proved(outcome)
    if keep is not None or not shown.is_good:
        return replace(shown, lines=(*shown.lines, f"   files: {outcome.folder}"))
    outcome.discard()
    return shown


def _proved(outcome: Outcome) -> Shown:
    name, count = outcome.scenario.name, len(outcome.violations)
    return Shown(name, not count, ("", f"== {name}", *report.lines(outcome)), report.numbers(outcome), count)


def _noticed(mutant: str, outcome: Outcome) -> Shown:
    is_noticed = report.is_noticed(mutant, outcome)
    found = dict(sorted(Counter(each.invariant for each in outcome.violations).items()))
    verdict = "noticed" if is_noticed else f"NOT NOTICED (expected one of {', '.join(MUTANTS[mutant][0])})"
    seconds = outcome.numbers["seconds"]
    return Shown(mutant, is_noticed, (f"== mutant {mutant}: {verdict}; broken: {found}; {seconds:.1f} s",))


def _result(form: str, seed: int, shown: list[Shown]) -> dict[str, Any]:
    return {
        "form": form,
        "seed": seed,
        "scenarios": {one.name: one.numbers for one in shown if one.numbers},
        "mutants": {one.name: one.is_good for one in shown if not one.numbers},
        "violations": sum(one.violations for one in shown),
    }
