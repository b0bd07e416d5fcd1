"""`loom logs`: what the processes of `loom up` logged, as one log."""

import heapq
import json
import re
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import chain
from operator import itemgetter
from pathlib import Path

import click

from loom_worker.core.errors import LoomError
from loom_worker.core.logs import INDENT
from loom_worker.core.settings import from_env
from loom_worker.core.text import clean
from loom_worker.core.values.json import rfc3339
from loom_worker.supervisor import home
from loom_worker.supervisor.logs import KEPT, older

_TIME = re.compile(r'(?:--- |\{"time": ")?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{3})?Z?)')
_TIME_OF_VALKEY = re.compile(r"\d+:\w (\d\d \w{3} \d{4} \d\d:\d\d:\d\d\.\d{3}) ")


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
