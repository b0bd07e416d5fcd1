"""`loom messages`: list the messages between agents, show one, queue a dead one again."""

from typing import Any, get_args

import click

from loom_worker.cli.http import client, path_to
from loom_worker.cli.show import ShowsByName, as_text, common, fields, paged, show
from loom_worker.cli.talk import printable
from loom_worker.core.settings import from_env
from loom_worker.core.values.agent_messages import MessageStatus

_COLUMNS = ("id", "from", "to", "kind", "status", "reason", "attempts", "created_at", "message")


@click.group(cls=ShowsByName, prefix="amsg_", subcommand_metavar="ID | COMMAND [ARGS]...")
def messages() -> None:
    """List the messages between agents, show one, or queue a dead one again.

    `loom messages ID` is short for `loom messages show ID`.
    """


@messages.command(name="list")
@click.option("--agent", help="Only messages to this agent.")
@click.option("--status", type=click.Choice(get_args(MessageStatus)), help="With this status only.")
@paged
@common
def list_all(*, url: str | None, as_json: bool, **query: Any) -> None:
    """List the messages, the newest first."""
    show("/v1/agent-messages", query, _COLUMNS, url=url, as_json=as_json)


@messages.command(name="show")
@click.argument("message_id")
@common
def show_one(message_id: str, *, url: str | None, as_json: bool) -> None:
    """Show one message: its fields, then its text."""
    message = client(from_env(), url).call("GET", path_to("agent-messages", message_id))
    if as_json:
        click.echo(as_text(message))
        return
    told = {name: value for name, value in message.items() if name != "message"}
    click.echo(f"{fields(told)}\n\n{printable(message['message'])}")


@messages.command()
@click.argument("message_id")
@common
def replay(message_id: str, *, url: str | None, as_json: bool) -> None:
    """Queue a dead message again, with its four attempts and its 24 hours anew."""
    message = client(from_env(), url).call("POST", path_to("agent-messages", message_id, "replay"))
    click.echo(as_text(message) if as_json else printable(f"{message['id']} is {message['status']}"))
