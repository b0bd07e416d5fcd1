"""`loom facts`: what is known of a user is listed, corrected and forgotten."""

from typing import Any, get_args

import click

from loom_worker.cli.http import client, path_to
from loom_worker.cli.show import as_text, common, paged, show
from loom_worker.cli.talk import printable
from loom_worker.core.settings import from_env
from loom_worker.core.values.facts import FactStatus
from loom_worker.core.values.json import Json

_COLUMNS = ("id", "subject", "relation", "object", "since", "until", "confidence")


@click.group()
def facts() -> None:
    """See, correct and forget what is known of a user beyond sessions."""


@facts.command("list")
@click.argument("user")
@click.option("--status", type=click.Choice(get_args(FactStatus)), default="open", show_default=True)
@click.option("--topic", help="Only facts that share a word with it.")
@paged
@common
def list_(user: str, *, url: str | None, as_json: bool, **query: Any) -> None:
    """List what is known of USER, the newest first: what holds, unless --status says otherwise."""
    show(path_to("users", user, "facts"), query, _COLUMNS, url=url, as_json=as_json)


@facts.command()
@click.argument("user")
@click.argument("fact")
@click.option("--object", help="What holds instead.")
@click.option("--relation", help="How subject and object belong together.")
@click.option("--until", help="When it ceased to hold, as 2026-05-17T00:00:00Z.")
@click.option("--confidence", type=click.FloatRange(0, 1), help="0 to 1; unless given, 1.")
@common
def correct(user: str, fact: str, *, url: str | None, as_json: bool, **given: Any) -> None:
    """Correct FACT of USER: it is closed, and another one takes its place, which is printed."""
    body: Json = {name: value for name, value in given.items() if value is not None}
    if not body:
        raise click.UsageError("say what is to be corrected: --object, --relation, --until or --confidence")
    made = client(from_env(), url).call("PATCH", path_to("users", user, "facts", fact), body=body)
    line = printable(f"{made['id']}: {made['subject']} {made['relation']} {made['object']}")
    click.echo(as_text(made) if as_json else line)


@facts.command()
@click.argument("user")
@click.argument("fact")
@common
def forget(user: str, fact: str, *, url: str | None, as_json: bool) -> None:
    """Delete FACT of USER for good: what was said so far does not bring it back."""
    client(from_env(), url).call("DELETE", path_to("users", user, "facts", fact))
    click.echo(as_text({"id": fact, "deleted": True}) if as_json else f"forgotten: {printable(fact)}")
