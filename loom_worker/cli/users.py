"""`loom users`: delete all that belongs to a user."""

import click

from loom_worker.cli.http import client, path_to
from loom_worker.cli.show import as_text, common
from loom_worker.core.settings import from_env


@click.group()
def users() -> None:
    """Delete what belongs to a user of a workspace."""


@users.command()
@click.argument("user")
@common
def delete(user: str, *, url: str | None, as_json: bool) -> None:
    """Delete USER's sessions with all in them, and revoke USER's keys; turns that run are stopped.

    It needs a key with the scope admin. Ledger and audit keep the ids.
    """
    deleted = client(from_env(), url).call("DELETE", path_to("users", user))
    counts = ", ".join(f"{deleted[name]} {name}" for name in ("sessions", "turns", "keys"))
    click.echo(as_text(deleted) if as_json else f"deleted: {counts}")
