"""`loom trace`: where the time of a turn or run went, as a tree; and export on request."""

import json

import click

from loom_worker.cli.http import client, path_to
from loom_worker.cli.show import common
from loom_worker.cli.talk import printable
from loom_worker.core.errors import BadSettings
from loom_worker.core.isolation import process_env
from loom_worker.core.settings import from_env
from loom_worker.trace import tree


@click.command()
@click.argument("traced", metavar="[TURN|RUN]", required=False)
@click.option("--flush", "is_flushed", is_flag=True, help="Have the traces that wait exported now.")
@common
def trace(traced: str | None, *, is_flushed: bool, url: str | None, as_json: bool) -> None:
    """Show the trace of a turn or run as a tree: when each part began, how long it took, its tokens, its cost.

    What goes on shows what it has done so far.
    """
    if is_flushed == bool(traced) or (is_flushed and url):
        raise click.UsageError("name one turn or run; or say --flush, which is for the Loom of this LOOM_HOME")
    if traced is None:
        waiting = _flushed()
        click.echo(json.dumps({"waiting": waiting}) if as_json else f"{waiting} waiting; their export was asked for")
        return
    kind = "runs" if traced.startswith("run_") else "turns"
    spans = list(client(from_env(), url).every(path_to(kind, traced, "trace")))
    if as_json:
        click.echo(json.dumps({"object": "list", "data": spans}, indent=2, ensure_ascii=False))
        return
    click.echo(f"trace {spans[0]['trace_id']}" if spans else "no spans")
    for line in tree.lines(spans):
        click.echo(printable(line))


def _flushed() -> int:
    """Ask for the export of what waits; how many turns do."""
    from loom_worker.runtime.sweeping import Links

    settings = process_env.keep_to_itself(from_env(), process_env.NOTHING)
    if settings.trace.endpoint is None:
        raise BadSettings("LOOM_TRACE_ENDPOINT is not set: no traces are exported")
    links = Links.of(settings, runs_tasks=False)
    try:
        waiting = links.traces.outbox.waiting()
        links.traces.call.send(is_last=True)
    finally:
        links.database.close()
    return waiting
