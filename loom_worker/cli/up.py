"""`loom up`."""

import os

import click

from loom_worker.cli import setting_checks
from loom_worker.core.isolation import process_env
from loom_worker.core.settings import from_env


@click.command()
@click.option("--port", type=click.IntRange(1, 65_535), help="Where the web listens; default LOOM_PORT, else 8000.")
@click.option("--demo", is_flag=True, help="Answer with the scripted demo model, even if an API key is set.")
@click.pass_context
def up(ctx: click.Context, port: int | None, *, demo: bool) -> None:
    """Start everything on this machine, restart what dies, stop all on Ctrl-C."""
    from loom_worker.supervisor.launcher import forking

    # Handed on as a whole, as the children need PATH and its like; read through settings alone.
    environ = dict(os.environ)
    if port is not None:
        environ["LOOM_PORT"] = str(port)
    if demo:
        environ["LOOM_PROVIDER"] = "scripted"
    settings = from_env(environ, checks=(*setting_checks.START, setting_checks.serving))
    # Its children are given theirs from the copy; it needs none of them itself.
    settings = process_env.keep_to_itself(settings, process_env.EVERYTHING)
    is_explicit = bool(environ.get("LOOM_PORT", "").strip())
    with forking(environ, settings) as launcher:
        # Imported while the fork server does the same.
        from loom_worker.supervisor.up import up as run_all

        ctx.exit(run_all(settings, environ, is_port_explicit=is_explicit, say=click.echo, launcher=launcher))
