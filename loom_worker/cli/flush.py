"""`loom flush`: have the traces that wait exported now."""

import json

import click

from loom_worker.core.errors import BadSettings
from loom_worker.core.isolation import process_env
from loom_worker.core.settings import from_env


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def flush(*, as_json: bool) -> None:
    """Have the traces that wait exported now, not within ten seconds.

    A worker of the queue `trace` does it; this command asks for it and says how many turns wait.
    """
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
    click.echo(json.dumps({"waiting": waiting}) if as_json else f"{waiting} waiting; their export was asked for")
