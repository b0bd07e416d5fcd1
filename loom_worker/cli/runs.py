"""`loom runs`: list the runs of workflows, show or follow one, cancel it, retry it, decide on its stages, delete it."""

import sys
import time
from typing import Any, get_args

import click

from loom_worker.cli.http import client, path_to
from loom_worker.cli.run_view import watch as watched
from loom_worker.cli.show import ShowsByName, as_text, common, drawn, paged, refuse_options_of_the_list, show, tree
from loom_worker.cli.stage_tree import DECIDED, StageTree, question
from loom_worker.cli.talk import printable
from loom_worker.core.settings import from_env
from loom_worker.core.values.json import Json
from loom_worker.core.values.runs import RunDecision, RunStatus

_COLUMNS = ("id", "workflow", "status", "reason", "duration_ms", "retry_of", "created_at")


@click.group(cls=ShowsByName, prefix="run_", invoke_without_command=True, subcommand_metavar="[ID | COMMAND [ARGS]...]")
@click.option("--workflow", help="Of this workflow only.")
@click.option("--status", type=click.Choice(get_args(RunStatus)), help="With this status only.")
@paged
@common
@click.pass_context
def runs(ctx: click.Context, /, *, url: str | None, as_json: bool, **query: Any) -> None:
    """List the runs of workflows, the newest first; or show, watch, cancel or retry one, or decide on its stages.

    `loom runs ID` is short for `loom runs show ID`.
    """
    if ctx.invoked_subcommand is not None:
        refuse_options_of_the_list(ctx)
        return
    show("/v1/runs", query, _COLUMNS, url=url, as_json=as_json)


@runs.command(name="show")
@click.argument("run_id")
@common
def show_one(run_id: str, *, url: str | None, as_json: bool) -> None:
    """Show one run: its stages as a tree, what they wait for, and its result."""
    run = client(from_env(), url).call("GET", path_to("runs", run_id))
    if as_json:
        click.echo(as_text(run))
        return
    stages, now_s = StageTree.of(run), time.time()
    is_terminal = sys.stdout.isatty()
    parts = [drawn(tree(stages.rows(now_s=now_s))) if is_terminal else "\n".join(stages.lines(now_s=now_s))]
    parts += [question(run["id"], stage) for stage in stages.waiting()]
    error = (run["error"] or {}).get("message")
    parts += [printable(text) for text in (error, run["merged_output"]) if text]
    click.echo("\n\n".join(parts))


@runs.command()
@click.argument("run_id")
@common
@click.pass_context
def watch(ctx: click.Context, /, run_id: str, *, url: str | None, as_json: bool) -> None:
    """Follow a run to its end, and print its result; exit code 0 if it completed."""
    loom = client(from_env(), url)
    ctx.exit(watched(loom, loom.call("GET", path_to("runs", run_id)), as_json=as_json))


@runs.command()
@click.argument("run_id")
@common
def cancel(run_id: str, *, url: str | None, as_json: bool) -> None:
    """End a run, with all its turns that are under way; one that has ended stays as it is."""
    run = client(from_env(), url).call("POST", path_to("runs", run_id, "cancel"))
    click.echo(as_text(run) if as_json else _state(run))


@runs.command()
@click.argument("run_id")
@common
def retry(run_id: str, *, url: str | None, as_json: bool) -> None:
    """Go on from the stage at which a run failed, as a new run; what is done is not paid again."""
    run = client(from_env(), url).call("POST", path_to("runs", run_id, "retry"))
    click.echo(as_text(run) if as_json else f"{printable(run_id)} → {_state(run)}")


@runs.command()
@click.argument("run_id")
@click.argument("stage")
@click.option("--reason", help="Why; the run keeps it.")
@common
def approve(run_id: str, stage: str, *, reason: str | None, url: str | None, as_json: bool) -> None:
    """Accept a stage's output, so that the run goes on. STAGE is the stage or its approval, such as stages.0."""
    _decide(run_id, stage, "approve", reason, url=url, as_json=as_json)


@runs.command()
@click.argument("run_id")
@click.argument("stage")
@click.option("--reason", help="Why; the run keeps it.")
@common
def reject(run_id: str, stage: str, *, reason: str | None, url: str | None, as_json: bool) -> None:
    """Refuse a stage's output: the run fails."""
    _decide(run_id, stage, "reject", reason, url=url, as_json=as_json)


@runs.command()
@click.argument("run_id")
@click.argument("stage")
@click.option("--reason", required=True, help="What is to be changed, in words the agent reads.")
@common
def revise(run_id: str, stage: str, *, reason: str, url: str | None, as_json: bool) -> None:
    """Have a stage done again, with what is to be changed."""
    _decide(run_id, stage, "revise", reason, url=url, as_json=as_json)


@runs.command()
@click.argument("run_id")
@common
def delete(run_id: str, *, url: str | None, as_json: bool) -> None:
    """Delete a run with the sessions of its stages; turns that run are stopped."""
    loom = client(from_env(), url)
    run = loom.call("GET", path_to("runs", run_id))
    loom.call("DELETE", path_to("runs", run["id"]))
    click.echo(as_text({"id": run["id"], "object": "run", "deleted": True}) if as_json else f"deleted: {run['id']}")


def _decide(
    run_id: str, stage: str, decision: RunDecision, reason: str | None, *, url: str | None, as_json: bool
) -> None:
    body = {"decision": decision} | ({} if reason is None else {"reason": reason})
    run = client(from_env(), url).call("POST", path_to("runs", run_id, "approvals", stage), body=body)
    click.echo(as_text(run) if as_json else f"{printable(stage)}: {DECIDED[decision]}\n{_state(run)}")


def _state(run: Json) -> str:
    """The run in a line: its status, and how it will end if it was cancelled."""
    reason = f" ({run['reason']})" if run["reason"] else ""
    asked = ", asked to end" if run["cancel"] and not run["completed_at"] else ""
    return printable(f"{run['id']} is {run['status']}{reason}{asked}")
