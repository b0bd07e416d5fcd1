"""`loom runs`: list the runs of workflows, show or follow one, cancel it, retry it, decide on its stages, delete it.

It is followed as a tree that is rewritten in place, or with a line for each event; `loom workflow run` does the same.
"""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, get_args

import click

from loom_worker.cli import sse
from loom_worker.cli.http import path_to
from loom_worker.cli.show import Api, ShowsByName, common, drawn, listing, paged, printable, terminal, tree
from loom_worker.cli.stage_tree import DECIDED, StageTree, event_line, question, window
from loom_worker.core.errors import StreamBroken
from loom_worker.core.text import one_line
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Event
from loom_worker.core.values.runs import RunDecision, RunStatus

if TYPE_CHECKING:
    from rich.console import Console
    from rich.tree import Tree

MOST_REASON_CHARS = 2000
"""Characters of the reason why a run failed."""
_COLUMNS = ("id", "workflow", "status", "reason", "duration_ms", "retry_of", "created_at")


@click.group(cls=ShowsByName, prefix="run_", invoke_without_command=True, subcommand_metavar="[ID | COMMAND [ARGS]...]")
@click.option("--workflow", help="Of this workflow only.")
@click.option("--status", type=click.Choice(get_args(RunStatus)), help="With this status only.")
@paged
@common
@listing
def runs(*, api: Api, **query: Any) -> None:
    """List the runs of workflows, the newest first; or show, watch, cancel or retry one, or decide on its stages.

    `loom runs ID` is short for `loom runs show ID`.
    """
    api.show("runs", query=query, columns=_COLUMNS)


@runs.command(name="show")
@click.argument("run_id")
@common
def show_one(run_id: str, *, api: Api) -> None:
    """Show one run: its stages as a tree, what they wait for, and its result."""
    api.tell(api.get("runs", run_id), _shown)


def _shown(run: Json) -> str:
    stages, now_s = StageTree.of(run), time.time()
    is_terminal = sys.stdout.isatty()
    parts = [drawn(tree(stages.rows(now_s=now_s))) if is_terminal else "\n".join(stages.lines(now_s=now_s))]
    parts += [question(run["id"], stage) for stage in stages.waiting()]
    error = (run["error"] or {}).get("message")
    parts += [printable(text) for text in (error, run["merged_output"]) if text]
    return "\n\n".join(parts)


@runs.command(name="watch")
@click.argument("run_id")
@common
@click.pass_context
def watch_one(ctx: click.Context, /, run_id: str, *, api: Api) -> None:
    """Follow a run to its end, and print its result; exit code 0 if it completed."""
    ctx.exit(watch(api, api.get("runs", run_id)))


@runs.command()
@click.argument("run_id")
@common
def cancel(run_id: str, *, api: Api) -> None:
    """End a run, with all its turns that are under way; one that has ended stays as it is."""
    api.tell(api.post("runs", run_id, "cancel"), _state)


@runs.command()
@click.argument("run_id")
@common
def retry(run_id: str, *, api: Api) -> None:
    """Go on from the stage at which a run failed, as a new run; what is done is not paid again."""
    api.tell(api.post("runs", run_id, "retry"), lambda run: f"{printable(run_id)} → {_state(run)}")


@runs.command()
@click.argument("run_id")
@click.argument("stage")
@click.option("--reason", help="Why; the run keeps it.")
@common
def approve(run_id: str, stage: str, *, reason: str | None, api: Api) -> None:
    """Accept a stage's output, so that the run goes on. STAGE is the stage or its approval, such as stages.0."""
    _decide(run_id, stage, "approve", reason, api)


@runs.command()
@click.argument("run_id")
@click.argument("stage")
@click.option("--reason", help="Why; the run keeps it.")
@common
def reject(run_id: str, stage: str, *, reason: str | None, api: Api) -> None:
    """Refuse a stage's output: the run fails."""
    _decide(run_id, stage, "reject", reason, api)


@runs.command()
@click.argument("run_id")
@click.argument("stage")
@click.option("--reason", required=True, help="What is to be changed, in words the agent reads.")
@common
def revise(run_id: str, stage: str, *, reason: str, api: Api) -> None:
    """Have a stage done again, with what is to be changed."""
    _decide(run_id, stage, "revise", reason, api)


@runs.command()
@click.argument("run_id")
@common
def delete(run_id: str, *, api: Api) -> None:
    """Delete a run with the sessions of its stages; turns that run are stopped."""
    found = api.get("runs", run_id)["id"]
    api.delete("runs", found)
    api.tell({"id": found, "object": "run", "deleted": True}, lambda run: f"deleted: {run['id']}")


def _decide(run_id: str, stage: str, decision: RunDecision, reason: str | None, api: Api) -> None:
    body = {"decision": decision} | ({} if reason is None else {"reason": reason})
    run = api.post("runs", run_id, "approvals", stage, body=body)
    api.tell(run, lambda run: f"{printable(stage)}: {DECIDED[decision]}\n{_state(run)}")


def _state(run: Json) -> str:
    """The run in a line: its status, and how it will end if it was cancelled."""
    reason = f" ({run['reason']})" if run["reason"] else ""
    asked = ", asked to end" if run["cancel"] and not run["completed_at"] else ""
    return printable(f"{run['id']} is {run['status']}{reason}{asked}")


class Quiet:
    """Nobody watches: only what a person has to do is said, on stderr."""

    def show(self, stages: StageTree, event: Event) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say it on stderr."""
        click.echo(text, err=True)


class EventLines(Quiet):
    """A line on stderr for each event."""

    def show(self, stages: StageTree, event: Event) -> None:
        """Say what the event says, if that is anything."""
        if line := event_line(stages, event, now_s=time.time()):
            click.secho(line, err=True, dim=True)


class LiveTree:
    """A tree that is rewritten in place, once a second and with each event; left, it is whole."""

    def __init__(self, stages: StageTree, console: "Console", *, clock: Callable[[], float] = time.time) -> None:
        """Begin with a tree, of which nothing is shown yet; the clock gives seconds since 1970."""
        from rich.live import Live

        self._stages, self._console, self._clock, self._is_left = stages, console, clock, False
        self._live = Live(console=console, get_renderable=self._drawn, refresh_per_second=1)

    def __enter__(self) -> Self:
        """Show it."""
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave it as it is then."""
        self._is_left = True
        self._live.stop()

    def show(self, stages: StageTree, event: Event) -> None:
        """Rewrite it as this tree."""
        self._stages = stages
        self._live.refresh()

    def note(self, text: str) -> None:
        """Say it above the tree."""
        self._console.print(text, soft_wrap=True)

    def _drawn(self) -> "Tree":
        rows = self._stages.rows(now_s=self._clock())
        return tree(rows if self._is_left else window(rows, self._console.size.height - 1), is_cut=True)


def watch(api: Api, run: Json) -> int:
    """Follow a run to its end, and print its result.

    On a terminal a tree of its stages is shown meanwhile; to a pipe or file goes the result alone.

    Returns:
        The exit code: 0 if the run completed.
    """
    try:
        run = run if run["completed_at"] else _followed_in_view(api, run)
    except KeyboardInterrupt:
        click.echo(f"\n{still_running(run['id'])}", err=True)
        return 1
    except StreamBroken as error:
        raise StreamBroken(f"no event came for {sse.PATIENCE_S:.0f} s; {still_running(run['id'])}") from error
    if api.as_json or run["merged_output"]:
        api.tell(run, lambda run: printable(run["merged_output"]))
    if why := verdict(run):
        click.echo(f"loom: {why}\n  `loom runs retry {printable(run['id'])}` goes on from what is done", err=True)
        return 1
    return 0


def _followed(api: Api, run: Json, view: "Quiet | LiveTree") -> Json:
    """Show every event until the run has ended; the finished Run."""
    stages, path = StageTree.of(run), path_to("runs", run["id"], "events")
    for event in sse.follow(lambda last_id: api.loom.stream(path, last_event_id=last_id)):
        stages = stages.told(event)
        view.show(stages, event)
        for stage in stages.waiting() if event.type == "approval.required" else ():
            if stage["id"] == event.data.get("id"):
                view.note(question(run["id"], stage))
    return stages.run


def verdict(run: Json) -> str:
    """Why a run did not complete, in a line; empty for one that completed."""
    if run["status"] == "completed":
        return ""
    reason, message = run.get("reason"), (run.get("error") or {}).get("message")
    told = f"the run {run['id']} is {run['status']}" + (f" ({reason})" if reason else "")
    return one_line(f"{told}: {message}" if message else told, MOST_REASON_CHARS)


def still_running(run_id: str) -> str:
    """What to tell somebody who looks away from a run that goes on."""
    return f"the run goes on; see it with `loom runs watch {run_id}`, end it with `loom runs cancel {run_id}`"


def _followed_in_view(api: Api, run: Json) -> Json:
    if api.as_json or not sys.stdout.isatty():
        return _followed(api, run, EventLines() if sys.stderr.isatty() else Quiet())
    with LiveTree(StageTree.of(run), terminal()) as live:
        run = _followed(api, run, live)
    click.echo()
    return run
