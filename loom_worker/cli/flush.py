"""`loom flush`: have the traces that wait exported now."""

import click

from loom_worker.core.errors import BadSettings
from loom_worker.core.isolation import process_env
from loom_worker.core.settings import from_env


@click.command()
def flush() -> None:
    """Send the traces that wait to the collector now, not within ten seconds.

    A worker of the queue `trace` does it; this command only asks.
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
    click.echo(f"{waiting} waiting, asked for")
