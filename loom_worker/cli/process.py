"""All processes (`loom up`), and each alone, as `loom up`, a Procfile or a container runs it."""

import contextlib
import logging
import os
import time
from dataclasses import replace
from datetime import date
from pathlib import Path

import click

from loom_worker.cli import setting_checks
from loom_worker.core.errors import BadSettings, Unavailable
from loom_worker.core.isolation import home_secrets, process_env
from loom_worker.core.settings import SettingCheck, Settings, from_env
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.variables import is_server

log = logging.getLogger(__name__)

QUEUES = ("turn", "tool", "judge", "workflow", "webhook", "summary", "trace")
"""Those of the Celery app, which is too heavy to be asked here; a test holds them together."""

SERVER_PAUSE_S = 0.5
"""Between two tries to reach the database's server at the start."""


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


@click.command()
@click.option(
    "--vacuum", "is_shrunk", is_flag=True, help="Make the database file as small as it can be; stop Loom first."
)
def prepare(*, is_shrunk: bool) -> None:
    """Make or migrate the database, and the sample shop if no other data is set; `loom up` does it itself."""
    from loom_worker.store import prepare as database
    from loom_worker.store.database import engine_of
    from loom_worker.supervisor import home

    settings = process_env.keep_to_itself(from_env(checks=setting_checks.ALL), process_env.PREPARE)
    home.prepare(settings.home)
    has_changed = database.prepare(settings)
    engine = engine_of(settings.database_url)
    click.echo(f"{engine.where}: {'made, or brought to the schema of this Loom' if has_changed else 'up to date'}")
    if is_shrunk:
        before, after = engine.shrink()
        click.echo(f"{before / 1e6:.1f} MB before, {after / 1e6:.1f} MB now")
    if settings.has_sample_backend:
        _make_shop(settings.home)


def _make_shop(folder: Path) -> None:
    from loom_worker.demo import shop
    from loom_worker.store.engines.sqlite_file import failure_of
    from loom_worker.supervisor import home

    file = folder / "shop.db"
    try:
        with home.usable(folder):
            shop.ensure(file, today=date.today())
        click.echo(f"{file}: the sample shop, as LOOM_BACKEND_URL is not set")
    except sqlite3.OperationalError as error:
        failure = failure_of(error, file)
        if failure is None:
            raise
        raise Unavailable(f"{file} {failure.text}; {failure.fix}", failure.slug) from error


def _settings(needs: process_env.Needs, *, checks: tuple[SettingCheck, ...]) -> Settings:
    """The settings of a process that runs long, with the secrets that it needs; its logs are as they say."""
    from loom_worker.core import logs
    from loom_worker.guard.findings import redacted

    settings = process_env.keep_to_itself(from_env(checks=checks), needs)
    logs.set_up(settings.log, redacted)
    for problem in settings.problems:
        log.warning("%s", problem)
    return settings


def _with_database(needs: process_env.Needs, *, checks: tuple[SettingCheck, ...] = setting_checks.ALL) -> Settings:
    """The settings of a process that works on the database, once that is known to be fit for it."""
    from loom_worker.store import prepare as database

    settings = _settings(needs, checks=checks)
    if is_server(settings.database_url):
        _await_server(settings)
    database.check(settings)
    return _with_password(settings)


def _await_server(settings: Settings) -> None:
    """Wait until the database's server answers, which may be started, or have its failover, just now."""
    from loom_worker.store.engines.postgresql_report import report

    told = ""
    while True:
        try:
            found = report(settings.database_url)
        except Unavailable as error:
            if str(error) != told:
                log.error("%s; still trying", error)
            told = str(error)
            time.sleep(SERVER_PAUSE_S)
        else:
            for warning in found.warnings:
                log.warning("LOOM_DATABASE_URL: %s", warning)
            return


def _with_password(settings: Settings) -> Settings:
    if settings.has_embedded_redis:
        with contextlib.suppress(OSError):  # a read-only home; any other gets one now, should `loom up` start later
            return replace(settings, redis_url=home_secrets.embedded_with_password(settings.home))
    return settings


def _with_redis(settings: Settings) -> Settings:
    """Say which setting is wrong if Redis does not answer; BadSettings if nobody will start it, else it is retried."""
    from loom_worker.core import redis_client
    from loom_worker.supervisor import home

    try:
        redis_client.probe(redis_client.client(settings.redis_url, connections=1, timeout_s=redis_client.LOOK_S))
    except Unavailable as error:
        if settings.has_embedded_redis and home.running(settings.home) is None:
            why = f"LOOM_REDIS_URL is not set, and no `loom up` runs on {settings.home}: set it to a Redis that runs"
            raise BadSettings(f"{why}, or run `loom up`, which brings its own ({error})") from error
        log.error("LOOM_REDIS_URL: %s. Start that server, or correct the setting; still trying", error)
    return settings


@click.command()
def web() -> None:
    """Serve the HTTP API on LOOM_HOST and LOOM_PORT."""
    from loom_worker.runtime.build import service
    from loom_worker.supervisor import home, ports
    from web.serve import serve

    settings = _with_database(process_env.WEB, checks=(*setting_checks.ALL, setting_checks.serving))
    # For its error about a host that is not this machine's; a port in use is reported by the server.
    ports.is_free(settings.web.host, settings.web.port)
    with home.announced(settings.home, ports.url_of(settings.web.host, settings.web.port)):
        serve(service(_with_redis(settings)))


def _queues(_ctx: click.Context, _parameter: click.Parameter, value: str) -> tuple[str, ...]:
    queues = tuple(name.strip() for name in value.split(",") if name.strip())
    unknown = [name for name in queues if name not in QUEUES]
    if unknown or not queues:
        raise click.BadParameter(f"expected some of {', '.join(QUEUES)}, separated by commas")
    return queues


@click.command()
@click.option("--queues", default=",".join(QUEUES), callback=_queues, help=f"Of {', '.join(QUEUES)}; default all.")
@click.option("--concurrency", type=click.IntRange(1, 1024), help="Threads; default LOOM_WORKER_CONCURRENCY.")
@click.option("--name", default="worker", show_default=True, help="Of the node; no two on one machine may share it.")
@click.pass_context
def worker(ctx: click.Context, queues: tuple[str, ...], concurrency: int | None, name: str) -> None:
    """Run turns, tool calls, webhooks and summaries: a Celery worker."""
    from loom_worker.runtime.worker_process import run_worker

    needs = process_env.of_worker(queues)
    calls_model = process_env.PROVIDER in needs
    settings = _with_database(needs, checks=setting_checks.WITH_MODEL if calls_model else setting_checks.ALL)
    threads = concurrency or settings.worker_concurrency
    ctx.exit(run_worker(_with_redis(settings), queues=queues, concurrency=threads, name=name))


@click.command()
def beat() -> None:
    """Re-send lost wake-ups, even when no worker is running."""
    from loom_worker.runtime.sweeping import run_beat

    run_beat(_with_redis(_with_database(process_env.NOTHING)))


@click.command()
@click.option("--port", type=click.IntRange(1, 65_535), help="Default LOOM_FLOWER_PORT, else 5555.")
@click.option("--address", help="What to listen on; default LOOM_FLOWER_ADDRESS, else 127.0.0.1.")
def flower(port: int | None, address: str | None) -> None:
    """Serve Flower, Celery's monitor; user loom, password in LOOM_HOME/flower.password."""
    from loom_worker.runtime.flower import run_flower
    from loom_worker.supervisor import home

    settings = _settings(process_env.NOTHING, checks=setting_checks.LIGHT)
    home.prepare(settings.home)
    own = settings.flower
    chosen = replace(own, port=port or own.port, address=address or own.address)
    run_flower(_with_password(replace(settings, flower=chosen)), password=home.flower_password(settings.home).text)
