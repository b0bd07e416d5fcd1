"""`loom agents`: list them, show one."""

from typing import Any

import click

from loom_worker.cli.http import in_path
from loom_worker.cli.show import ShowsByName, common, refuse_options_of_the_list, show


@click.group(cls=ShowsByName, invoke_without_command=True, subcommand_metavar="[NAME | show NAME]")
@common
@click.pass_context
def agents(ctx: click.Context, /, **asked: Any) -> None:
    """List the agents, or show one.

    `loom agents NAME` is short for `loom agents show NAME`.
    """
    if ctx.invoked_subcommand is not None:
        refuse_options_of_the_list(ctx)
        return
    show("/v1/agents", {}, ("name", "version", "description"), **asked)


@agents.command(name="show")
@click.argument("name")
@common
def show_one(name: str, *, url: str | None, as_json: bool) -> None:
    """Show one agent, field by field."""
    show(f"/v1/agents/{in_path(name)}", {}, (), url=url, as_json=as_json)
