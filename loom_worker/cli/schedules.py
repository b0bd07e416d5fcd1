"""`loom schedules`: list the schedules, enable or disable one, start one now."""

import click

from loom_worker.cli.http import client, path_to
from loom_worker.cli.show import as_text, common, refuse_options_of_the_list, table
from loom_worker.cli.talk import printable
from loom_worker.core.cron import CronPlan
from loom_worker.core.settings import from_env
from loom_worker.core.values.json import Json, from_rfc3339

_COLUMNS = ("name", "next", "last result")


@click.group(invoke_without_command=True)
@common
@click.pass_context
def schedules(ctx: click.Context, /, *, url: str | None, as_json: bool) -> None:
    """List the schedules: when each is due next, in its own time zone, and what came of the last time."""
    if ctx.invoked_subcommand is not None:
        refuse_options_of_the_list(ctx)
        return
    found = client(from_env(), url).call("GET", "/v1/schedules")
    if as_json:
        click.echo(as_text(found))
    elif found["data"]:
        click.echo(table([_row(each) for each in found["data"]], _COLUMNS))
    else:
        click.echo("no schedules: no file of a workflow or an agent has one")


@schedules.command()
@click.argument("name")
@common
def enable(name: str, *, url: str | None, as_json: bool) -> None:
    """Enable a schedule, whatever its file says; it counts from now on."""
    _set(name, True, url=url, as_json=as_json)


@schedules.command()
@click.argument("name")
@common
def disable(name: str, *, url: str | None, as_json: bool) -> None:
    """Disable a schedule, whatever its file says."""
    _set(name, False, url=url, as_json=as_json)


@schedules.command()
@click.argument("name")
@common
def reset(name: str, *, url: str | None, as_json: bool) -> None:
    """Enable or disable a schedule as its file says."""
    _set(name, None, url=url, as_json=as_json)


@schedules.command()
@click.argument("name")
@common
def run(name: str, *, url: str | None, as_json: bool) -> None:
    """Start what a schedule starts, now; its plan stays as it is."""
    begun = client(from_env(), url).call("POST", path_to("schedules", name, "run"))
    click.echo(as_text(begun) if as_json else begun["id"])


def _set(name: str, enabled: bool | None, *, url: str | None, as_json: bool) -> None:
    found = client(from_env(), url).call("PATCH", path_to("schedules", name), body={"enabled": enabled})
    row = _row(found)
    click.echo(as_text(found) if as_json else printable(f"{row['name']}: next {row['next']}"))


def _row(found: Json) -> Json:
    next_ms = from_rfc3339(found["next_at"]) if found["next_at"] else None
    by = " by an operator" if found["enabled_by"] == "operator" else ""
    plan = CronPlan(found["cron"], found["timezone"])
    return {
        "name": found["name"],
        "next": f"disabled{by}" if next_ms is None else f"{plan.local(next_ms)} {found['timezone']}",
        "last result": _last(found),
    }


def _last(found: Json) -> str:
    if found["last_error"]:
        return f"refused: {found['last_error']}"
    if not found["last_id"]:
        return "never started"
    return f"{found['last_id']} {found['last_status'] or 'was deleted'}"
