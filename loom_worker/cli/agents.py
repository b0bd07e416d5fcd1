"""`loom agents`: list them, show one, and say which version of it new sessions get."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import click

from loom_worker.cli.http import LoomClient, client, path_to, sendable
from loom_worker.cli.show import ShowsByName, as_text, common, fields, flat, paged, refuse_options_of_the_list, show
from loom_worker.cli.talk import printable
from loom_worker.core.errors import Rejected
from loom_worker.core.settings import from_env
from loom_worker.core.text import clean
from loom_worker.core.values.agent_versions import LABELS
from loom_worker.core.values.json import Json

_COLUMNS = ("version", "active", "labels", "by", "created_at", "digest")


@click.group(cls=ShowsByName, invoke_without_command=True, subcommand_metavar="[NAME | COMMAND …]")
@common
@click.pass_context
def agents(ctx: click.Context, /, **asked: Any) -> None:
    """List the agents, show one, or look after the versions of one.

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
    """Show one agent, key by key; NAME@VERSION shows a version with its document, prompt included."""
    agent, at, version = name.partition("@")
    path = path_to("agents", agent, "versions", version) if at else path_to("agents", agent)
    found = client(from_env(), url).call("GET", path)
    click.echo(as_text(found) if as_json else fields(dict(flat(found))))


@agents.command()
@click.argument("name")
@paged
@common
def versions(name: str, *, url: str | None, as_json: bool, **query: str | int | None) -> None:
    """List the versions of an agent, the newest first."""
    show(path_to("agents", name, "versions"), query, _COLUMNS, url=url, as_json=as_json)


@agents.command()
@click.argument("name")
@click.argument("before")
@click.argument("after")
@common
def diff(name: str, before: str, after: str, *, url: str | None, as_json: bool) -> None:
    """Show what version AFTER of an agent changed since version BEFORE; labels and `latest` will do, too."""
    query = urlencode({"from": sendable(before)})
    found = client(from_env(), url).call("GET", path_to("agents", name, "versions", after, "diff") + f"?{query}")
    text = found["diff"] or f"{found['from']} and {found['to']} say the same\n"
    click.echo(as_text(found) if as_json else "\n".join(map(clean, text.split("\n"))), nl=as_json)


@agents.command()
@click.argument("name")
@click.argument("version")
@click.option("--as", "label", type=click.Choice(LABELS), default="production", show_default=True, help="The label.")
@click.option("--share", type=click.FloatRange(0, 1), help="Of new sessions, for a canary: 0.1 is every tenth.")
@click.option("--all-sessions", is_flag=True, help="Move sessions that have begun to the version, too.")
@common
def activate(
    name: str, version: str, *, label: str, share: float | None, all_sessions: bool, url: str | None, as_json: bool
) -> None:
    """Let new sessions have a version of an agent; `latest` lets them follow its file again."""
    body: Json = {"version": sendable(version), "as": label, "sessions": "all" if all_sessions else "new"}
    loom = client(from_env(), url)
    _activate(loom, name, body | ({} if share is None else {"share": share}), as_json=as_json)


@agents.command()
@click.argument("name")
@click.option("--all-sessions", is_flag=True, help="Move sessions that have begun to the version, too.")
@common
def rollback(name: str, *, all_sessions: bool, url: str | None, as_json: bool) -> None:
    """Let new sessions have the version before the one that is active now."""
    loom = client(from_env(), url)
    former = _behind_active(loom.every(path_to("agents", name, "versions")))
    if former is None:
        raise Rejected(f"there is no version of {name} before the active one; see `loom agents versions {name}`")
    _activate(loom, name, {"version": former, "sessions": "all" if all_sessions else "new"}, as_json=as_json)


def _behind_active(found: Iterator[Json]) -> str | None:
    """The version that follows the active one in a list that begins with the newest."""
    for each in found:
        if each["active"]:
            former = next(found, None)
            return None if former is None else str(former["version"])
    return None


def _activate(loom: LoomClient, name: str, body: Json, *, as_json: bool) -> None:
    found = loom.call("POST", path_to("agents", name, "activate"), body=body)
    labels = f" ({', '.join(found['labels'])})" if found["labels"] else ""
    moved = f", {found['moved_sessions']} sessions moved to it" if body["sessions"] == "all" else ""
    click.echo(as_text(found) if as_json else printable(f"{name}@{found['version']}{labels}{moved}"))
