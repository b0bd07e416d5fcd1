"""What every command that asks the API shares: its options, its calls, and how answers are printed.

On a terminal tables and trees are drawn by rich, which takes 40 ms to import, in its width. A pipe or file gets plain
lines: a row each, nothing cut, no colours.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlencode

import click
from click.core import ParameterSource

from loom_worker.cli.http import LoomClient, client, path_to, sendable
from loom_worker.core.settings import from_env
from loom_worker.core.text import clean, one_line
from loom_worker.core.values.json import Json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.tree import Tree

LEAST_TEXT = 16
"""Columns of the terminal for a text that is folded; with less a row is left to the terminal to break."""
WIDEST = 60
"""Characters of a table's cell on a terminal; elsewhere the columns behind a longer one are not aligned."""
WIDEST_ARGUMENTS = 500
"""Characters of a tool call's arguments shown with a turn."""
GUIDE = 4
"""Columns by which each level of a tree is indented on a terminal."""

# A model's text may carry escape sequences that retitle or repaint the terminal: only line ends and tabs pass.
_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
_Command = Callable[..., None]

url_option = click.option("--url", envvar="LOOM_URL", help="Of another Loom than the one of this LOOM_HOME.")
json_option = click.option("--json", "as_json", is_flag=True, help="As JSON.")


class Api:
    """The Loom that a command asks, and the form in which the command prints what it answers."""

    def __init__(self, url: str | None, *, as_json: bool) -> None:
        self.url, self.as_json = url, as_json

    @cached_property
    def loom(self) -> LoomClient:
        """Its client; errors as in ``http.client``."""
        return client(from_env(), self.url)

    def get(self, *steps: str, query: Json | None = None) -> Json:
        """What these steps below ``/v1`` lead to; parameters of the query that are None are not sent."""
        asked = {name: sendable(str(value)) for name, value in (query or {}).items() if value is not None}
        return self.loom.call("GET", path_to(*steps) + (f"?{urlencode(asked)}" if asked else ""))

    def post(self, *steps: str, body: Json | None = None) -> Json:
        """The answer to a POST there."""
        return self.loom.call("POST", path_to(*steps), body=body)

    def delete(self, *steps: str) -> Json:
        """The answer to a DELETE there, empty if there is none."""
        return self.loom.call("DELETE", path_to(*steps))

    def tell(self, answer: Json, told: Callable[[Json], str]) -> None:
        """Print an answer: as JSON, or as ``told`` words it."""
        click.echo(as_text(answer) if self.as_json else told(answer))

    def show(
        self,
        *steps: str,
        query: Json | None = None,
        columns: Sequence[str] = (),
        row: Callable[[Json], Json] = dict,
        empty: str = "",
    ) -> None:
        """Print what is there: a list as a table of these columns, one thing field by field.

        Args:
            row: makes a row of the table of a thing.
            empty: what is said in place of a table without rows.
        """
        answer = self.get(*steps, query=query)
        if not isinstance(answer.get("data"), list):
            self.tell(answer, fields)
        elif self.as_json:
            click.echo(as_text(answer))
        else:
            rows = [row(each) for each in answer["data"]]
            click.echo(table(rows, columns) if rows else empty or table(rows, columns))
            if answer.get("has_more"):
                click.echo(f"more: --after {_cell(answer['next'], widest=2000)}")
            for error in answer.get("errors") or ():
                click.echo(f"problem: {_cell(error, widest=2000)}", err=True)


def common(command: _Command) -> _Command:
    """``--url`` and ``--json``, of every command that asks the API; it is given both as ``api``."""

    @wraps(command)
    def run(*args: Any, url: str | None, as_json: bool, **given: Any) -> None:
        command(*args, api=Api(url, as_json=as_json), **given)

    return url_option(click.option("--json", "as_json", is_flag=True, help="The API's answer as JSON.")(run))


def paged(command: _Command) -> _Command:
    """``--limit`` and ``--after``, of every command that lists."""
    command = click.option("--after", help="Go on after this cursor, as the last page named it.")(command)
    limit = click.IntRange(1, 500)
    return click.option("--limit", type=limit, default=50, show_default=True, help="Rows of a page.")(command)


def in_period(command: _Command) -> _Command:
    """``--since`` and ``--until``, of commands that tell what happened in a period."""
    command = click.option("--until", help="Before this time.")(command)
    return click.option("--since", help="From this time on, such as 2026-11-24T00:00:00Z.")(command)


def listing(command: _Command) -> _Command:
    """A group's own command, which lists; options before another command are refused: silence would hide a mistake."""

    @click.pass_context
    @wraps(command)
    def run(ctx: click.Context, /, *args: Any, **given: Any) -> None:
        if ctx.invoked_subcommand is None:
            command(*args, **given)
            return
        for parameter in ctx.command.params:
            if ctx.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE:
                raise click.UsageError(f"put {parameter.opts[0]} behind `{ctx.invoked_subcommand}`")

    return run


class ShowsByName(click.Group):
    """A group in which a name in the place of a command is short for `show` and that name."""

    def __init__(self, *args: Any, prefix: str = "", **options: Any) -> None:
        """Take only names that begin with the prefix, as ids of one kind do."""
        super().__init__(*args, **options)
        self._prefix = prefix

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Users choose these names: one that is called as a command is shown by ``show``."""
        is_name = args[0] not in self.commands and not args[0].startswith("-") and args[0].startswith(self._prefix)
        return super().resolve_command(ctx, ["show", *args] if is_name else args)


def as_text(answer: Json) -> str:
    """JSON for people and programs; what nobody would see, or no file could hold, is escaped."""
    text = json.dumps(answer, indent=2, ensure_ascii=False)
    return text if clean(text) == text else json.dumps(answer, indent=2)


def print_list(rows: Sequence[Json], columns: Sequence[str], *, as_json: bool) -> None:
    """A list that was made here, printed as one of the API's."""
    click.echo(as_text({"object": "list", "data": rows}) if as_json else table(rows, columns))


def printable(text: str) -> str:
    """The text without control characters."""
    return text.translate(_CONTROLS)


def in_a_line(text: str) -> str:
    """Text without what a terminal would obey: files and their names are anybody's."""
    return " ".join(clean(text).splitlines())


def fields(thing: Json) -> str:
    """One thing, a line for each of its members; for each tool call of a turn some."""
    return grid([[f"{_cell(name):<16}", _member(name, value)] for name, value in _readable(thing).items()])


def flat(thing: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Each value with its path, ``judges.members[0].name``, but for those inside that are empty."""
    if isinstance(thing, dict) and thing:
        for name, value in thing.items():
            yield from flat(value, f"{path}.{name}".lstrip("."))
    elif isinstance(thing, list) and any(isinstance(each, dict) for each in thing):
        for n, value in enumerate(thing):
            yield from flat(value, f"{path}[{n}]")
    elif thing not in (None, [], {}) or "." not in path:
        yield path, thing


def waits_text(waiting: Json, now_s: float) -> str:
    """What a turn waits for, in a line; ``now_s`` is in seconds since 1970."""
    parts = [f"{waiting['for']} for {_seconds_since(waiting['since'], now_s)} s"]
    if waiting["attempt"]:
        parts.append(f"attempt {waiting['attempt']}")
    if waiting["next_try_at"]:
        parts.append(f"next try in {max(0, -_seconds_since(waiting['next_try_at'], now_s))} s")
    text = ", ".join(parts)
    return f"{text}: {waiting['last_error']}" if waiting["last_error"] else text


def _seconds_since(moment: str, now_s: float) -> int:
    return round(now_s - datetime.fromisoformat(moment).timestamp())


def _readable(thing: Json) -> Json:
    waiting = thing.get("waiting")
    return thing | {"waiting": waits_text(waiting, time.time())} if isinstance(waiting, dict) else thing


def _member(name: str, value: object) -> str:
    if name != "tool_calls" or not isinstance(value, list) or not value:
        return _cell(value, widest=2000)
    return str(len(value)) + "".join(f"\n  {line}" for call in value for line in _call(call))


def _call(call: Json) -> Iterator[str]:
    """What a person needs to decide on it; invisible characters in its arguments are escaped."""
    approval = f", approval {call['approval']}" if call.get("approval") else ""
    yield _cell(f"{call['id']}: {call['name']}, {call['status']}{approval}", widest=2000)
    text = json.dumps(call.get("arguments"), ensure_ascii=False)
    yield "  arguments " + _cell(
        text if clean(text) == text else json.dumps(call["arguments"]), widest=WIDEST_ARGUMENTS
    )
    yield from (f"  {name} {_cell(call[name])}" for name in ("error_id", "ref") if call.get(name))


def table(rows: Sequence[Json], columns: Sequence[str]) -> str:
    """The rows under a headline."""
    widest = WIDEST if sys.stdout.isatty() else sys.maxsize
    cells = [[_cell(row.get(name), widest=widest) for name in columns] for row in map(_readable, rows)]
    return grid([[name.upper() for name in columns], *cells], has_headline=True)


def grid(rows: Sequence[Sequence[str]], *, has_headline: bool = False) -> str:
    """Rows of cells, each column as wide as its widest one; where a terminal is too narrow, texts are folded."""
    columns = list(zip(*rows, strict=True))
    are_texts = [any(" " in cell for cell in column[has_headline:]) for column in columns]
    fixed = sum(max(map(len, column)) for column, is_text in zip(columns, are_texts, strict=True) if not is_text)
    least = fixed + 2 * len(columns) + LEAST_TEXT * sum(are_texts)
    # An id in pieces cannot be copied: what does not fit is left to the terminal to break.
    if not sys.stdout.isatty() or least > terminal().width:
        widths = [min(WIDEST, max(map(len, column))) for column in columns]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
        return "\n".join(line.rstrip() for line in lines)
    from rich.table import Table
    from rich.text import Text

    made = Table.grid(padding=(0, 2, 0, 0))
    for is_text in are_texts:
        made.add_column(no_wrap=not is_text)
    for n, row in enumerate(rows):
        style = "bold" if has_headline and n == 0 else ""
        made.add_row(*(Text(cell, style, overflow="fold") for cell in row))
    return drawn(made)


def tree(rows: Iterable[tuple[int, str, str]], *, is_cut: bool = False) -> "Tree":
    """Lines as a tree for a terminal.

    Args:
        rows: the depth of each line, its text and its style; the first is the root, others may lack their parent.
        is_cut: True: a line that is too long for the terminal is cut, and else folded.
    """
    from rich.text import Text
    from rich.tree import Tree

    above: dict[int, Tree] = {}
    for depth, line, style in rows:
        text = Text(line, style, no_wrap=is_cut, overflow="ellipsis" if is_cut else "fold")
        above = {level: node for level, node in above.items() if level < depth}
        above[depth] = above[max(above)].add(text) if above else Tree(text, guide_style="dim")
    return above[min(above)]


def terminal(*, is_stderr: bool = False) -> "Console":
    """The terminal, which shows texts of strangers as they are, and no colours if NO_COLOR is set."""
    from rich.console import Console

    colors: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(stderr=is_stderr, color_system=colors, markup=False, highlight=False, emoji=False)


def drawn(made: "RenderableType") -> str:
    """What is to be printed on the terminal for a table or a tree."""
    console = terminal()
    with console.capture() as captured:
        console.print(made)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Say on stderr that something is waited for, and take it off again; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with terminal(is_stderr=True).status(text):
        yield


def duration(seconds: float) -> str:
    """A time in the unit that suits it: ``340 us``, ``12.4 ms``, ``3.20 s``, ``4 min 5 s``."""
    if round(seconds, 6) < 0.001:
        return f"{seconds * 1e6:.0f} us"
    if round(seconds, 4) < 1:
        return f"{seconds * 1000:.1f} ms"
    if round(seconds, 2) < 100:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def _cell(value: object, *, widest: int = WIDEST) -> str:
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return one_line(text, widest)
