"""`loom agents`: list them, show one, and say which version of it new sessions get."""

from collections.abc import Iterator
from typing import Any

import click

from loom_worker.cli.http import path_to, sendable
from loom_worker.cli.show import Api, ShowsByName, as_text, common, fields, flat, listing, paged, printable
from loom_worker.core.errors import Rejected
from loom_worker.core.text import clean
from loom_worker.core.values.agent_versions import LABELS
from loom_worker.core.values.json import Json

_COLUMNS = ("version", "active", "labels", "by", "created_at", "digest")


@click.group(cls=ShowsByName, invoke_without_command=True, subcommand_metavar="[NAME | COMMAND …]")
@common
@listing
def agents(*, api: Api) -> None:
    """List the agents, show one, or look after the versions of one.

    `loom agents NAME` is short for `loom agents show NAME`.
    """
    api.show("agents", columns=("name", "version", "description"))


@agents.command(name="show")
@click.argument("name")
@common
def show_one(name: str, *, api: Api) -> None:
    """Show one agent, key by key; NAME@VERSION shows a version with its document, prompt included."""
    agent, at, version = name.partition("@")
    found = api.get("agents", agent, *(("versions", version) if at else ()))
    api.tell(found, lambda each: fields(dict(flat(each))))


@agents.command()
@click.argument("name")
@paged
@common
def versions(name: str, *, api: Api, **query: Any) -> None:
    """List the versions of an agent, the newest first."""
    api.show("agents", name, "versions", query=query, columns=_COLUMNS)


@agents.command()
@click.argument("name")
@click.argument("before")
@click.argument("after")
@common
def diff(name: str, before: str, after: str, *, api: Api) -> None:
    """Show what version AFTER of an agent changed since version BEFORE; labels and `latest` will do, too."""
    found = api.get("agents", name, "versions", after, "diff", query={"from": before})
    text = found["diff"] or f"{found['from']} and {found['to']} say the same\n"
    click.echo(as_text(found) if api.as_json else "\n".join(map(clean, text.split("\n"))), nl=api.as_json)


@agents.command()
@click.argument("name")
@click.argument("version")
@click.option("--as", "label", type=click.Choice(LABELS), default="production", show_default=True, help="The label.")
@click.option("--share", type=click.FloatRange(0, 1), help="Of new sessions, for a canary: 0.1 is every tenth.")
@click.option("--all-sessions", is_flag=True, help="Move sessions that have begun to the version, too.")
@common
def activate(name: str, version: str, *, label: str, share: float | None, all_sessions: bool, api: Api) -> None:
    """Let new sessions have a version of an agent; `latest` lets them follow its file again."""
    body: Json = {"version": sendable(version), "as": label, "sessions": "all" if all_sessions else "new"}
    _activate(api, name, body | ({} if share is None else {"share": share}))


@agents.command()
@click.argument("name")
@click.option("--all-sessions", is_flag=True, help="Move sessions that have begun to the version, too.")
@common
def rollback(name: str, *, all_sessions: bool, api: Api) -> None:
    """Let new sessions have the version before the one that is active now."""
    former = _behind_active(api.loom.every(path_to("agents", name, "versions")))
    if former is None:
        raise Rejected(f"there is no version of {name} before the active one; see `loom agents versions {name}`")
    _activate(api, name, {"version": former, "sessions": "all" if all_sessions else "new"})


def _behind_active(found: Iterator[Json]) -> str | None:
    """The version that follows the active one in a list that begins with the newest."""
    for each in found:
        if each["active"]:
            former = next(found, None)
            return None if former is None else str(former["version"])
    return None


def _activate(api: Api, name: str, body: Json) -> None:
    def told(found: Json) -> str:
        labels = f" ({', '.join(found['labels'])})" if found["labels"] else ""
        moved = f", {found['moved_sessions']} sessions moved to it" if body["sessions"] == "all" else ""
        return printable(f"{name}@{found['version']}{labels}{moved}")

    api.tell(api.post("agents", name, "activate", body=body), told)
