"""`loom trace`: where a turn's time went, as a tree."""

import json
from collections.abc import Iterator

import click

from loom_worker.cli.http import LoomClient, client, in_path
from loom_worker.cli.show import common
from loom_worker.cli.talk import printable
from loom_worker.core.settings import from_env
from loom_worker.core.values.json import Json
from loom_worker.trace import tree


@click.command()
@click.argument("turn_id")
@common
def trace(turn_id: str, *, url: str | None, as_json: bool) -> None:
    """Show a turn's trace as a tree: when each part began, how long it took, its tokens, its cost.

    A turn that goes on shows what it has done so far.
    """
    spans = list(_spans(client(from_env(), url), turn_id))
    if as_json:
        click.echo(json.dumps({"object": "list", "data": spans}, indent=2, ensure_ascii=False))
        return
    click.echo(f"trace {spans[0]['trace_id']}" if spans else "no spans")
    for line in tree.lines(spans):
        click.echo(printable(line))


def _spans(loom: LoomClient, turn_id: str) -> Iterator[Json]:
    after = ""
    while True:
        page = loom.call("GET", f"/v1/turns/{in_path(turn_id)}/trace{after}")
        yield from page["data"]
        if not page["has_more"]:
            return
        after = f"?after={page['next']}"
