"""A run in the terminal: followed to its end, as a tree that is rewritten in place or a line for each event."""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import click

from loom_worker.cli import sse
from loom_worker.cli.http import LoomClient, path_to
from loom_worker.cli.show import as_text, terminal
from loom_worker.cli.show import tree as drawn_tree
from loom_worker.cli.stage_tree import StageTree, event_line, question, window
from loom_worker.cli.talk import printable
from loom_worker.core.errors import StreamBroken
from loom_worker.core.text import one_line
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Event

if TYPE_CHECKING:
    from rich.console import Console
    from rich.tree import Tree

MOST_REASON_CHARS = 2000
"""Of why a run failed."""


class Quiet:
    """Nobody watches: only what a person has to do is said, on stderr."""

    def show(self, tree: StageTree, event: Event) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say it on stderr."""
        click.echo(text, err=True)


class EventLines(Quiet):
    """A line on stderr for each event."""

    def show(self, tree: StageTree, event: Event) -> None:
        """Say what the event says, if that is anything."""
        if line := event_line(tree, event, now_s=time.time()):
            click.secho(line, err=True, dim=True)


class LiveTree:
    """A tree that is rewritten in place, once a second and with each event; left, it is whole."""

    def __init__(self, tree: StageTree, console: "Console", *, clock: Callable[[], float] = time.time) -> None:
        """Begin with a tree; nothing is shown yet.

        Args:
            clock: seconds since 1970.
        """
        from rich.live import Live

        self._tree, self._console, self._clock, self._is_left = tree, console, clock, False
        self._live = Live(console=console, get_renderable=self._drawn, refresh_per_second=1)

    def __enter__(self) -> Self:
        """Show it."""
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave it as it is then."""
        self._is_left = True
        self._live.stop()

    def show(self, tree: StageTree, event: Event) -> None:
        """Rewrite it as this tree."""
        self._tree = tree
        self._live.refresh()

    def note(self, text: str) -> None:
        """Say it above the tree."""
        self._console.print(text, soft_wrap=True)

    def _drawn(self) -> "Tree":
        rows = self._tree.rows(now_s=self._clock())
        return drawn_tree(rows if self._is_left else window(rows, self._console.size.height - 1), is_cut=True)


def watch(loom: LoomClient, run: Json, *, as_json: bool) -> int:
    """Follow a run to its end, and print its result.

    On a terminal a tree of its stages is shown meanwhile; to a pipe or file goes the result alone.

    Returns:
        The exit code: 0 if the run completed.
    """
    try:
        run = run if run["completed_at"] else _followed_in_view(loom, run, is_tree=sys.stdout.isatty() and not as_json)
    except KeyboardInterrupt:
        click.echo(f"\n{still_running(run['id'])}", err=True)
        return 1
    except StreamBroken as error:
        raise StreamBroken(f"no event came for {sse.PATIENCE_S:.0f} s; {still_running(run['id'])}") from error
    if as_json:
        click.echo(as_text(run))
    elif run["merged_output"]:
        click.echo(printable(run["merged_output"]))
    if why := verdict(run):
        click.echo(f"loom: {why}\n  `loom runs retry {printable(run['id'])}` goes on from what is done", err=True)
        return 1
    return 0


def follow(loom: LoomClient, run: Json, view: "Quiet | LiveTree") -> Json:
    """Show every event until the run has ended; the finished Run.

    Raises:
        StreamBroken: no event came for a minute.
        Rejected: it was deleted.
    """
    tree, path = StageTree.of(run), path_to("runs", run["id"])
    for event in sse.follow(lambda last_id: loom.stream(f"{path}/events", last_event_id=last_id)):
        tree = tree.told(event)
        view.show(tree, event)
        for stage in tree.waiting() if event.type == "approval.required" else ():
            if stage["id"] == event.data.get("id"):
                view.note(question(run["id"], stage))
    return tree.run


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


def _followed_in_view(loom: LoomClient, run: Json, *, is_tree: bool) -> Json:
    if is_tree:
        with LiveTree(StageTree.of(run), terminal()) as live:
            run = follow(loom, run, live)
        click.echo()
        return run
    return follow(loom, run, EventLines() if sys.stderr.isatty() else Quiet())
