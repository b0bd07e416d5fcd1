"""`loom doctor`: look at the installation and say what to mend."""

import json
import os
from collections.abc import Container, Sequence
from dataclasses import asdict
from typing import Any

import click

from loom_worker import settings as all_settings
from loom_worker.cli import judges
from loom_worker.cli.checks import Check, of_installation, of_settings
from loom_worker.cli.growth import Growth, growth
from loom_worker.cli.knobs import Knob, knobs
from loom_worker.errors import BadSettings


@click.command()
@click.option("--full", "is_full", is_flag=True, help="Look through the database's indexes too, which takes longer.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_context
def doctor(ctx: click.Context, *, is_full: bool, as_json: bool) -> None:
    """Check the installation, print every setting with its source and what grows; exit code 1 if anything is wrong."""
    found, table, grown = _look(is_full=is_full, project=ctx.find_object(dict) or {})
    is_sound = all(check.is_ok for check in found)
    if as_json:
        parts: dict[str, Sequence[Any]] = {"checks": found, "settings": table, "growth": grown}
        report = {"ok": is_sound, **{name: [asdict(each) for each in part] for name, part in parts.items()}}
        click.echo(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        for knob in table:
            click.echo(f"{knob.name:<30}{knob.value}  ({knob.source})")
        for check in found:
            click.echo(line(check))
        if grown:
            click.echo("\nWhat grows, and what bounds it:")
        for each in grown:
            click.echo(f"{each.name:<30}{each.size:<34}{each.bound}")
    ctx.exit(0 if is_sound else 1)


def _look(*, is_full: bool, project: Container[str]) -> tuple[list[Check], list[Knob], list[Growth]]:
    try:
        settings = all_settings.from_env(judges=(*judges.START, judges.serving))
    except BadSettings as error:
        fix = "correct the variable; docs/settings.md lists them all"
        wrong = (Check("settings", False, complaint, fix) for complaint in str(error).splitlines())
        return [*of_installation(), *wrong], [], []
    checks = [*of_installation(), *of_settings(settings, is_full=is_full)]
    return checks, knobs(settings, os.environ, project=project), list(growth(settings))


def line(check: Check) -> str:
    """The check as a line, and another with what to do or to know."""
    mark, more = ("FAIL", check.fix) if not check.is_ok else ("warn", check.warning) if check.warning else ("ok", "")
    return f"{mark:<6}{check.name:<28}{check.found}" + (f"\n      → {more}" if more else "")
