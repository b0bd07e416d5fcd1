"""Looking after the Loom of this LOOM_HOME: `status`, `stop`, `logs` and `backup`; and `bench`."""

import heapq
import json
import os
import re
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict
from datetime import datetime
from itertools import chain
from operator import itemgetter
from pathlib import Path
from urllib.parse import urlsplit

import click

from loom_worker.core.errors import LoomError
from loom_worker.core.logs import INDENT
from loom_worker.core.settings import from_env
from loom_worker.core.text import clean
from loom_worker.core.values.json import Json, rfc3339
from loom_worker.supervisor import home
from loom_worker.supervisor.logs import KEPT, older

_TIME = re.compile(r'(?:--- |\{"time": ")?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{3})?Z?)')
_TIME_OF_VALKEY = re.compile(r"\d+:\w (\d\d \w{3} \d{4} \d\d:\d\d:\d\d\.\d{3}) ")


@click.command()
@click.option("--url", envvar="LOOM_URL", help="Of another Loom than the one of this LOOM_HOME.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_context
def status(ctx: click.Context, url: str | None, *, as_json: bool) -> None:
    """Say what runs, and whether it serves; exit code 1 if it does not."""
    from loom_worker.cli.http import address
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
    from loom_worker.cli.http import nobody

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
    directory = from_env().home
    was_running = home.stop(directory)
    click.echo("stopped; nothing is left running" if was_running else f"Loom is not running on {directory}")


@click.command()
@click.option("--turn", metavar="TURN", default="", help="Only what is about this turn; or another id.")
@click.option("--process", metavar="NAME", default="", help="Only of this process, such as web or worker-1.")
@click.option("--lines", type=click.IntRange(1), default=200, show_default=True, help="So many, the newest.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def logs(*, turn: str, process: str, lines: int, as_json: bool) -> None:
    """Show what the processes of `loom up` on this LOOM_HOME logged, merged by time, the oldest first."""
    folder = from_env().home / home.LOGS
    found = [path for path in sorted(folder.glob("*.log")) if process in ("", path.stem)]
    if not found:
        raise LoomError(f"{folder} has no log of {process or 'any process'}: only those of `loom up` have one there")
    merged = heapq.merge(*map(_entries, found), key=itemgetter(0))
    for at_ms, name, text in deque((each for each in merged if each[2] and turn in each[2]), maxlen=lines):
        told = {"time": rfc3339(at_ms), "process": name, "text": text}
        click.echo(json.dumps(told) if as_json else f"{name:<9} {clean(text)}")


def _entries(path: Path) -> Iterator[tuple[int, str, str]]:
    """Time (ms since 1970), process and text of what a log with its older files holds, each with its traceback.

    What has no time has that of the line before it, and so has what a clock that was set back stamped.
    """
    at_ms, text = 0, ""
    for line in chain.from_iterable(map(_lines, (*(older(path, age) for age in range(KEPT, 0, -1)), path))):
        if line.startswith(INDENT):
            text += f"\n{line}"
        else:
            yield at_ms, path.stem, text
            at_ms, text = max(at_ms, _ms(line)), line
    yield at_ms, path.stem, text


def _lines(file: Path) -> Iterator[str]:
    with suppress(FileNotFoundError), file.open(encoding="utf-8", errors="replace") as log:
        yield from map(str.rstrip, log)


def _ms(line: str) -> int:
    """When a line was written, in ms since 1970; 0 if it does not say. Without a zone it is this machine's time."""
    with suppress(ValueError):
        if found := _TIME.match(line):
            return int(datetime.fromisoformat(found[1]).timestamp() * 1000)
        if found := _TIME_OF_VALKEY.match(line):
            return int(datetime.strptime(found[1], "%d %b %Y %H:%M:%S.%f").timestamp() * 1000)
    return 0


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def backup(file: Path, *, force: bool, as_json: bool) -> None:
    """Copy the database to FILE, also while Loom runs and writes.

    The copy is checked before it gets its name. To restore it: docs/operations.md.
    """
    from loom_worker.store.database import engine_of

    began_s = time.monotonic()
    with closing(engine_of(from_env().database_url)) as engine:
        if engine.version() is None:
            raise LoomError(f"there is nothing to back up: {engine.where} is not made yet")
        made = engine.back_up(file, may_replace=force)
    seconds = round(time.monotonic() - began_s, 2)
    if as_json:
        click.echo(json.dumps({**asdict(made), "file": str(made.file), "seconds": seconds}, indent=2))
    else:
        click.echo(f"{made.file}: {made.turns} turns, {made.size_bytes / 1e6:.1f} MB, in {seconds:.1f} s")


class NoBenchmark(LoomError):
    """This installation came without it."""


@click.command()
@click.option("--only", metavar="NAMES", help="These figures alone, with commas between; a wrong one lists them all.")
@click.option("--quick", is_flag=True, help="Fewer turns: the order of magnitude, in minutes.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a figure, and no table.")
def bench(only: str | None, *, quick: bool, as_json: bool) -> None:
    """Measure Loom on this machine, each time on a home of its own that is removed again."""
    os.chdir(root_of_benchmark(Path(__file__).parents[2]))
    options = [*(("--only", only) if only else ()), *(("--quick",) if quick else ()), *(("--json",) if as_json else ())]
    # In place of this process: Ctrl-C and SIGTERM then reach the one that must end what it has started.
    os.execv(sys.executable, [sys.executable, "-m", "bench", *options])  # noqa: S606  # our own interpreter, no shell


def root_of_benchmark(folder: Path) -> Path:
    """The folder, if it is a checkout of the repository.

    Raises:
        NoBenchmark: it is not; the text says where there is one.
    """
    if not (folder / "bench" / "run.py").is_file():
        raise NoBenchmark("the benchmark is in Loom's repository, not in the installed package: run `make bench` there")
    return folder
