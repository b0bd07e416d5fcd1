"""`loom backup`: a copy of the database, made while Loom runs."""

import json
import time
from dataclasses import asdict
from pathlib import Path

import click

from loom_worker.core.errors import LoomError
from loom_worker.core.settings import from_env
from loom_worker.core.variables import database_path


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def backup(file: Path, *, force: bool, as_json: bool) -> None:
    """Copy the database to FILE, also while Loom runs and writes.

    The copy is checked before it gets its name. To restore it: docs/operations.md.
    """
    from loom_worker.store import prepare
    from loom_worker.store.backup import back_up

    settings = from_env()
    source = database_path(settings.database_url)
    began_s = time.monotonic()
    if prepare.version_of(settings.database_url) is None:
        raise LoomError(f"there is nothing to back up: {source} is not made yet")
    made = back_up(source, file, may_replace=force)
    seconds = round(time.monotonic() - began_s, 2)
    if as_json:
        click.echo(json.dumps({**asdict(made), "file": str(made.file), "seconds": seconds}, indent=2))
    else:
        click.echo(f"{made.file}: {made.turns} turns, {made.size_bytes / 1e6:.1f} MB, in {seconds:.1f} s")
