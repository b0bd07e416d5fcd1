"""`loom audit`: who did what, and whether the rows that say so are as they were written."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from loom_worker.cli.show import common, paged, refuse_options_of_the_list, show
from loom_worker.core.settings import from_env
from loom_worker.core.values.audit import ACTIONS

if TYPE_CHECKING:
    from loom_worker.store.audit import AuditRows

_COLUMNS = ("seq", "at", "kind", "actor", "user", "agent", "session_id", "turn_id", "subject", "status", "usage")


@click.group(invoke_without_command=True)
@click.option("--kind", type=click.Choice(ACTIONS), help="Of this kind only.")
@click.option("--user", help="Of this user only.")
@click.option("--agent", help="Of this agent only.")
@click.option("--session", help="Of this session only.")
@click.option("--turn", help="Of this turn only.")
@click.option("--since", help="From this time on, such as 2026-11-24T00:00:00Z.")
@click.option("--until", help="Before this time.")
@paged
@common
@click.pass_context
def audit(ctx: click.Context, /, *, url: str | None, as_json: bool, **query: Any) -> None:
    """List who did what, the newest first; the commands verify the rows and print their last hashes."""
    if ctx.invoked_subcommand is None:
        show("/v1/audit", query, _COLUMNS, url=url, as_json=as_json)
    else:
        refuse_options_of_the_list(ctx)


@audit.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_context
def verify(ctx: click.Context, *, as_json: bool) -> None:
    """Read all rows in the database of this LOOM_HOME; exit code 1 if one was changed, removed or put in between."""
    with _rows() as rows:
        broken = rows.verify()
        heads = rows.heads()
    if as_json:
        click.echo(json.dumps({"ok": not broken, "broken": [asdict(each) for each in broken]}, indent=2))
    else:
        for each in broken:
            click.echo(f"FAIL  workspace {each.workspace}, row {each.seq}: {each.why}")
        for name in sorted(set(heads) - {each.workspace for each in broken}):
            click.echo(f"ok    workspace {name}: sound up to row {heads[name].seq}")
    ctx.exit(1 if broken else 0)


@audit.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def head(*, as_json: bool) -> None:
    """Print each workspace's last row and its hash; kept elsewhere, they show whether rows were replaced since."""
    with _rows() as rows:
        heads = rows.heads()
    if as_json:
        data = [{"workspace": name, "seq": last.seq, "hash": last.hash} for name, last in heads.items()]
        click.echo(json.dumps({"object": "list", "data": data}, indent=2))
    else:
        for name, last in heads.items():
            click.echo(f"{name} {last.seq} {last.hash}")


@contextmanager
def _rows() -> Iterator["AuditRows"]:
    """The audit in the database of these settings.

    Raises:
        BadSettings: the database is not made yet, or has another schema.
    """
    from loom_worker.store import prepare
    from loom_worker.store.audit import AuditRows
    from loom_worker.store.database import Database

    settings = from_env()
    prepare.check(settings)
    database = Database(settings.database_url)
    try:
        yield AuditRows(database)
    finally:
        database.close()
