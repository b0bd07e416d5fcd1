"""`loom doctor`: look at the installation and say what to mend."""

import contextlib
import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, replace

import click

from loom_worker.cli import setting_checks
from loom_worker.cli.checks import InstallationCheck, of_installation, of_settings
from loom_worker.cli.growth import Growth, growth
from loom_worker.cli.show import grid, waiting
from loom_worker.core.errors import BadSettings
from loom_worker.core.isolation import process_env
from loom_worker.core.settings import Settings, from_env
from loom_worker.core.settings_tree import declared
from loom_worker.core.text import clean
from loom_worker.core.values.json import Json
from loom_worker.core.values.problems import Problem


@click.command()
@click.option("--full", "is_full", is_flag=True, help="Look through the database's indexes too, which takes longer.")
@click.option("--problems", "only_problems", is_flag=True, help="Only what is wrong with variables, agents and tools.")
@click.option(
    "--offline", "is_offline", is_flag=True, help="Ask no model: else it gets two requests, which cost little."
)
@click.option("--settings", "has_settings", is_flag=True, help="Every setting with its value and source, too.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object, settings included.")
@click.pass_context
def doctor(
    ctx: click.Context, *, is_full: bool, only_problems: bool, is_offline: bool, has_settings: bool, as_json: bool
) -> None:
    """Check the installation and say what grows, problems first; exit code 1 if there are any."""
    project = ctx.find_object(dict) or {}
    with waiting("looking at the installation"):
        if only_problems:
            report = Report(problems=_found(from_env(checks=setting_checks.LIGHT)))
        else:
            report = _look(is_full=is_full, project=project, asks_model=not is_offline)
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2, ensure_ascii=False))
    elif only_problems:
        for problem in report.problems:
            click.echo(f"{problem.level:<9}{clean(str(problem))}")
    else:
        _show(report if has_settings else replace(report, settings=()))
    ctx.exit(0 if report.is_sound else 1)


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One variable with its value in effect."""

    name: str
    value: str
    source: str
    """``environment``, ``.env`` or ``default``."""


def setting_rows(
    settings: Settings, environ: Mapping[str, str], *, project: Container[str] = ()
) -> tuple[SettingRow, ...]:
    """All variables, secrets masked.

    Args:
        project: names of those in ``environ`` that come from the `.env` of a project.
    """

    def source(name: str) -> str:
        return ".env" if name in project else "environment" if environ.get(name, "").strip() else "default"

    return tuple(
        SettingRow(variable.name, variable.shown(value), source(variable.name))
        for variable, value in declared(settings)
    )


@dataclass(frozen=True, slots=True)
class Report:
    """All that was found."""

    checks: tuple[InstallationCheck, ...] = ()
    settings: tuple[SettingRow, ...] = ()
    growth: tuple[Growth, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def is_sound(self) -> bool:
        """True if everything can work."""
        return all(check.is_ok for check in self.checks) and all(each.is_warning for each in self.problems)

    def as_json(self) -> Json:
        """For programs."""
        parts = ("checks", "settings", "growth", "problems")
        return {"ok": self.is_sound, **{name: [asdict(each) for each in getattr(self, name)] for name in parts}}


def _show(report: Report) -> None:
    count = Counter(check.level for check in report.checks)
    click.echo(f"problems: {count['problem']}, warnings: {count['warning']}, ok: {count['ok']}\n")
    for check in sorted(report.checks, key=lambda check: (check.is_ok, not check.warning)):
        click.echo(line(check))
    sizes = [(each.name, each.size, each.bound) for each in report.growth]
    rows = [(row.name, f"{row.value}  ({row.source})") for row in report.settings]
    for headline, cells in (("What grows, and what bounds it:", sizes), ("Settings:", rows)):
        if cells:
            click.echo(f"\n{headline}\n{grid(cells)}")


def _look(*, is_full: bool, project: Container[str], asks_model: bool) -> Report:
    try:
        settings = from_env(checks=(*setting_checks.START, setting_checks.serving))
    except BadSettings as error:
        fix = "correct the variable; docs/settings.md lists them all"
        wrong = (InstallationCheck("settings", False, complaint, fix) for complaint in str(error).splitlines())
        return Report((*of_installation(), *wrong))
    rows = setting_rows(settings, os.environ, project=project)
    found = _found(settings)
    checks = (*of_installation(), *of_settings(settings, found, is_full=is_full, asks_model=asks_model))
    return Report(checks, rows, tuple(growth(settings)), found)


def _found(settings: Settings) -> tuple[Problem, ...]:
    """All problems. Databases are connected to and servers started for that, and closed again.

    Users' files are imported as in a worker, with no secret in the environment. What they print goes to stderr, and
    what is logged meanwhile is dropped.
    """
    from loom_worker.agents.load import load
    from loom_worker.core import redis_client
    from loom_worker.core.stopping import Stopping
    from loom_worker.runtime.components import components
    from loom_worker.runtime.installation import Inspection
    from loom_worker.store.database import Database

    settings = process_env.keep_to_itself(settings, process_env.of_worker(("turn",)))
    logging.getLogger().addHandler(logging.NullHandler())
    agents = load(settings.agents_dir)
    with contextlib.redirect_stdout(sys.stderr), contextlib.closing(Database.of(settings)) as database:
        client = redis_client.client(settings.redis_url, connections=4)
        stopping = Stopping(settings.lanes.drain_s)
        made = components(settings, agents, database, client, process="doctor", stopping=stopping)
        with contextlib.closing(made):
            inspection = Inspection(settings, made.registry, calls_model=True, reaches_out=True)
            return inspection.problems(agents)


def line(check: InstallationCheck) -> str:
    """The check as a line, and another with what to do or to know."""
    more = check.warning if check.is_ok else check.fix
    return f"{check.level:<9}{check.name:<27} {clean(check.found)}" + (f"\n         → {clean(more)}" if more else "")
