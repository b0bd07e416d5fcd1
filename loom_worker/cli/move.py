"""`loom move`: all rows to another database, whichever engines the two have."""

import json
import os
import time
from dataclasses import asdict

import click

from loom_worker.core.errors import BadSettings, Conflict
from loom_worker.core.settings import Settings, from_env
from loom_worker.core.variables import DatabaseUrl


def _url(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    try:
        return value and DatabaseUrl().parse(value)
    except ValueError as error:
        raise click.BadParameter(f"expected {DatabaseUrl.expected}") from error


@click.command()
@click.option("--to", "new_url", metavar="URL", callback=_url, help="The new database: empty, or not made yet.")
@click.option("--undo", "is_undone", is_flag=True, help="Give up a move that has not ended: the old one is used again.")
@click.option(
    "--json", "as_json", is_flag=True, help="As one JSON object; what is done meanwhile goes to standard error."
)
def move(new_url: str | None, *, is_undone: bool, as_json: bool) -> None:
    """Move all rows from LOOM_DATABASE_URL to another database; stop Loom first.

    A move that was cut off goes on when it is called again.
    """
    from loom_worker.supervisor import home

    if (new_url is None) is not is_undone:
        raise click.UsageError("say --to URL, or --undo")
    settings = from_env()
    os.umask(0o077)
    home.prepare(settings.home)
    try:
        with home.locked(settings.home):
            _undo(settings, as_json=as_json) if new_url is None else _move(settings, new_url, as_json=as_json)
    except Conflict as error:
        raise BadSettings(str(error)) from error


def _undo(settings: Settings, *, as_json: bool) -> None:
    from loom_worker.store.move import undo

    other = undo(settings.database_url)
    said = f"the move to {other} is given up: Loom uses the old database again; empty the new one"
    click.echo(json.dumps({"given_up": other}) if as_json else said)


def _move(settings: Settings, new_url: str, *, as_json: bool) -> None:
    from loom_worker.store.move import move

    began_s = time.monotonic()
    tables = move(settings.database_url, new_url, say=lambda text: click.echo(text, err=as_json))
    seconds = round(time.monotonic() - began_s, 1)
    if as_json:
        click.echo(json.dumps({"tables": [asdict(each) for each in tables], "seconds": seconds}, indent=2))
        return
    for each in tables:
        mended = f"  {each.mended:,} values mended" if each.mended else ""
        click.echo(f"{each.table:24}{each.rows:>14,}  {each.sha256[:16]}{mended}")
    click.echo(f"both are equal; moved in {seconds:,} s. Set LOOM_DATABASE_URL to the new one and run `loom up`.")
