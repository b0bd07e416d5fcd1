"""A run in the terminal: followed to its end, as a tree that is rewritten in place or a line for each event."""

import shutil
import sys
import threading
import time
from collections.abc import Callable
from os import terminal_size
from types import TracebackType
from typing import Self

import click

from loom_worker.cli import sse
from loom_worker.cli.http import LoomClient, path_to
from loom_worker.cli.show import as_text
from loom_worker.cli.stage_tree import StageTree, event_line, question, window
from loom_worker.cli.talk import printable
from loom_worker.core.errors import StreamBroken
from loom_worker.core.text import one_line
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Event

TICK_S = 1.0
"""Between two times that a tree is rewritten although nothing has happened: its clocks go on."""


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
    """A tree that is rewritten in place, once a second and with each event."""

    def __init__(
        self,
        tree: StageTree,
        write: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.time,
        size: Callable[[], terminal_size] = shutil.get_terminal_size,
        tick_s: float = TICK_S,
    ) -> None:
        self._tree = tree
        self._write, self._clock, self._size, self._tick_s = write, clock, size, tick_s
        self._rows = 0
        self._lock = threading.Lock()
        self._is_left = threading.Event()
        self._ticking = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Self:
        """Show it."""
        self._paint()
        self._ticking.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave it as it is; after an end that was seen, whole and with an empty line below."""
        self._is_left.set()
        self._ticking.join()
        if kind is None:
            self._paint(is_last=True)

    def show(self, tree: StageTree, event: Event) -> None:
        """Rewrite it as this tree."""
        with self._lock:
            self._tree = tree
        self._paint()

    def note(self, text: str) -> None:
        """Say it above the tree."""
        with self._lock:
            self._write(f"{_erased(self._rows)}{text}\n")
            self._rows = 0
        self._paint()

    def _paint(self, *, is_last: bool = False) -> None:
        with self._lock:
            size = self._size()
            # A line that fills a terminal to its last column would on some of them take two.
            lines = self._tree.lines(now_s=self._clock(), width=size.columns - 1)
            shown = [*lines, ""] if is_last else window(lines, size.lines - 1)
            self._write(_erased(self._rows) + "".join(f"{line}\n" for line in shown))
            self._rows = len(shown)

    def _tick(self) -> None:
        try:
            while not self._is_left.wait(self._tick_s):
                self._paint()
        except OSError:  # the thread that follows the run writes next, and reports it
            return


def _erased(rows: int) -> str:
    """What takes so many lines above the cursor off the screen; they are free to be written again."""
    return f"\x1b[{rows}A\r\x1b[J" if rows else ""


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
        with LiveTree(StageTree.of(run), lambda text: click.echo(text, nl=False)) as live:
            return follow(loom, run, live)
    return follow(loom, run, EventLines() if sys.stderr.isatty() else Quiet())
