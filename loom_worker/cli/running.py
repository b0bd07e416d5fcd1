"""`loom status` and `loom stop`: the Loom that `loom up` started."""

import json
from pathlib import Path
from urllib.parse import urlsplit

import click

from loom_worker.cli.http import address, nobody
from loom_worker.core.settings import from_env
from loom_worker.core.text import clean
from loom_worker.core.values.json import Json
from loom_worker.supervisor import home


@click.command()
@click.option("--url", envvar="LOOM_URL", help="Of another Loom than the one of this LOOM_HOME.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_context
def status(ctx: click.Context, url: str | None, *, as_json: bool) -> None:
    """Say what runs, and whether it serves; exit code 1 if it does not."""
    from loom_worker.supervisor.ready import readiness

    settings = from_env()
    where = address(settings, url)
    state = home.running(settings.home)
    is_ours = not url or (state is not None and where is not None and _place(state.url) == _place(where))
    state = state if is_ours else None
    body = readiness(where) if where else None
    report: Json = {
        "running": state is not None or body is not None,
        "ready": bool(body and body["ready"]),
        "url": where,
        "home": str(settings.home) if is_ours else None,
        "pid": state.pid if state else None,
        "flower_url": state.flower_url if state else None,
        "started": state.started if state else None,
        "children": state.children if state else {},
        "failing": state.failing if state else {},
        "readyz": body,
    }
    click.echo(json.dumps(report, indent=2) if as_json else _told(report, settings.home))
    ctx.exit(0 if report["ready"] else 1)


def _place(url: str) -> tuple[str, int | None]:
    """Host and port; of this machine's names for itself there are several."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return ("127.0.0.1" if host in ("localhost", "::1") else host), parts.port


def _told(report: Json, directory: Path) -> str:
    if not report["running"]:
        return f"Loom is not running at {report['url']}" if report["url"] else nobody(directory)
    lines = [f"Loom is {'ready' if report['ready'] else 'not ready'} at {report['url']}"]
    if report["pid"]:
        lines.append(f"supervisor pid {report['pid']}, since {report['started']}, data in {report['home']}")
        lines.append(f"Flower at {report['flower_url']}")
        lines += [f"  {name:<10} pid {pid}" for name, pid in report["children"].items()]
        lines += [f"  {name:<10} DOES NOT STAY UP ({n} deaths in a row)" for name, n in report["failing"].items()]
    told: Json = report["readyz"] or {}
    lines += [f"warning: {clean(str(each))}" for each in told.get("warnings", ())]
    if not report["ready"]:
        lines += [clean(str(each)) for each in told.get("reasons", [f"/readyz says: {told or 'nothing'}"])]
    return "\n".join(lines)


@click.command()
def stop() -> None:
    """Stop what `loom up` started on this LOOM_HOME, and wait until all has ended."""
    from loom_worker.supervisor.home import stop as stop_all

    directory = from_env().home
    was_running = stop_all(directory)
    click.echo("stopped; nothing is left running" if was_running else f"Loom is not running on {directory}")
