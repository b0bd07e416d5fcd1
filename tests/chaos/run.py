"""`python -m tests.chaos`: plays scenarios, prints what was done and what came of it; exit 0 if no promise was broken.

The last line is the whole result as JSON. What went wrong keeps its files, and the report says where.
"""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import click

from tests.chaos import report, scenarios
from tests.chaos.mutants import MUTANTS
from tests.chaos.play import Outcome, Scenario, play

TURNS = {"smoke": 0, "short": 500, "long": 10_000}


@click.command()
@click.option("--form", type=click.Choice(["smoke", "short", "long"]), default="short", show_default=True)
@click.option("--seed", type=int, help="Of everything that is left to chance here; a new one unless given.")
@click.option("--turns", type=int, help="Of the storm; 500 in the short form, 10,000 in the long one.")
@click.option("--mutant", type=click.Choice(sorted(MUTANTS)), help="Only this seeded bug: exit 0 if it is noticed.")
@click.option("--only", help="Only scenarios whose name has this in it.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep all files in this folder.")
@click.pass_context
def main(
    ctx: click.Context,
    form: str,
    seed: int | None,
    turns: int | None,
    mutant: str | None,
    only: str | None,
    keep: Path | None,
) -> None:
    """Prove under faults what Loom promises."""
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    click.echo(f"chaos, {form} form, seed {seed}")
    chosen: list[Scenario] = []
    if mutant is None:
        every = scenarios.of_form(form, seed=seed, turns=turns or TURNS[form])
        chosen = [one for one in every if only is None or only in one.name]
    outcomes = [_play(one, keep) for one in chosen]
    bugs = [mutant] if mutant else [] if form == "smoke" or only else list(MUTANTS)
    noticed = {name: _is_noticed(name, seed, keep) for name in bugs}
    is_good = not any(outcome.violations for outcome in outcomes) and all(noticed.values())
    click.echo(json.dumps(_result(form, seed, outcomes, noticed) | {"is_good": is_good}))
    ctx.exit(0 if is_good else 1)


def _play(scenario: Scenario, keep: Path | None) -> Outcome:
    click.echo(f"\n== {scenario.name}")
    outcome = play(scenario, _folder(keep, scenario))
    for line in report.lines(outcome):
        click.echo(line)
    _tidy(outcome, keep is not None or bool(outcome.violations))
    return outcome


def _is_noticed(name: str, seed: int, keep: Path | None) -> bool:
    scenario = scenarios.mutants(seed)[name]
    outcome = play(scenario, _folder(keep, scenario))
    is_noticed = report.is_noticed(name, outcome)
    found = dict(sorted(Counter(each.invariant for each in outcome.violations).items()))
    verdict = "noticed" if is_noticed else f"NOT NOTICED (expected one of {', '.join(MUTANTS[name][0])})"
    click.echo(f"== mutant {name}: {verdict}; broken: {found}; {outcome.numbers['seconds']:.1f} s")
    _tidy(outcome, keep is not None or not is_noticed)
    return is_noticed


def _folder(keep: Path | None, scenario: Scenario) -> Path | None:
    return keep / scenario.name.replace(" ", "-") if keep else None


def _tidy(outcome: Outcome, is_kept: bool) -> None:
    if is_kept:
        click.echo(f"   files: {outcome.folder}")
    else:
        outcome.discard()


def _result(form: str, seed: int, outcomes: list[Outcome], noticed: dict[str, bool]) -> dict[str, Any]:
    return {
        "form": form,
        "seed": seed,
        "scenarios": {outcome.scenario.name: report.numbers(outcome) for outcome in outcomes},
        "mutants": noticed,
        "violations": sum(len(outcome.violations) for outcome in outcomes),
    }
