"""`loom trace`: where the time of a turn or run went, as a tree; and export on request."""

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime

import click

from loom_worker.cli.http import path_to
from loom_worker.cli.show import GUIDE, Api, common, drawn, duration, in_a_line, tree
from loom_worker.core.errors import BadSettings
from loom_worker.core.isolation import process_env
from loom_worker.core.settings import from_env
from loom_worker.core.values.json import Json
from loom_worker.trace import names

SHOWN = (
    *("gen_ai.tool.name", "gen_ai.evaluation.name", "llm.model", "loom.run.end", "loom.worker"),
    *("loom.patterns.count", "loom.approval", "http.response.status_code", "loom.turn.status", "loom.turn.reason"),
)
"""Attributes shown behind a span, the first two that it has."""


@click.command()
@click.argument("traced", metavar="[TURN|RUN]", required=False)
@click.option("--flush", "is_flushed", is_flag=True, help="Have the traces that wait exported now.")
@common
def trace(traced: str | None, *, is_flushed: bool, api: Api) -> None:
    """Show the trace of a turn or run as a tree: when each part began, how long it took, its tokens, its cost.

    What goes on shows what it has done so far.
    """
    if is_flushed == bool(traced) or (is_flushed and api.url):
        raise click.UsageError("name one turn or run; or say --flush, which is for the Loom of this LOOM_HOME")
    if traced is None:
        waiting = _flushed()
        click.echo(
            json.dumps({"waiting": waiting}) if api.as_json else f"{waiting} waiting; their export was asked for"
        )
        return
    kind = "runs" if traced.startswith("run_") else "turns"
    spans = list(api.loom.every(path_to(kind, traced, "trace")))
    api.tell({"object": "list", "data": spans}, _tree)


def _tree(listed: Json) -> str:
    spans = listed["data"]
    head = f"trace {spans[0]['trace_id']}" if spans else "no spans"
    if not sys.stdout.isatty():
        return "\n".join([head, *lines(spans)])
    rows = ((depth + 1, line, "red" if failed else "") for depth, line, failed in _told(spans, width=32, step=GUIDE))
    return drawn(tree([(0, head, "bold"), *rows]))


def lines(spans: Sequence[Json]) -> Iterator[str]:
    """A line for each span: name, when it began after the first, how long it took, status, tokens, cost.

    Args:
        spans: as ``GET /v1/turns/{turn_id}/trace`` lists them.
    """
    return (f"{'  ' * depth}{line}" for depth, line, _ in _told(spans, width=28, step=2))


def _told(spans: Sequence[Json], *, width: int, step: int) -> Iterator[tuple[int, str, bool]]:
    """The depth of each span, its line, and whether it failed; the first column gets narrower with each level."""
    known = {span["span_id"] for span in spans}
    began = min((_moment(span) for span in spans), default=None)
    pending = [(span, 0) for span in spans if span["parent_id"] not in known]
    while pending and began is not None:
        span, depth = pending.pop(0)
        offset_s = (_moment(span) - began).total_seconds()
        yield depth, _line(span, offset_s, width=width - step * depth), span["status"] == "Error"
        pending = [(child, depth + 1) for child in spans if child["parent_id"] == span["span_id"]] + pending


def _line(span: Json, offset_s: float, *, width: int) -> str:
    attributes = span["attributes"]
    took = "goes on" if span["duration_ms"] is None else duration(span["duration_ms"] / 1000)
    parts = [f"{span['name']:<{max(width, 1)}} +{duration(offset_s):>8} {took:>8}  {span['status']:<5}"]
    if attributes.get(names.TOKENS):
        parts.append(f"{attributes[names.TOKENS]:,} tokens")
    if attributes.get(names.COST):
        parts.append(f"${attributes[names.COST]:.4f}")
    parts += [str(attributes[name]) for name in SHOWN if name in attributes][:2]
    if span["status_message"]:
        parts.append(f"({span['status_message']})")
    return in_a_line("  ".join(parts).rstrip())


def _moment(span: Json) -> datetime:
    return datetime.fromisoformat(span["start_time"])


def _flushed() -> int:
    """Ask for the export of what waits; how many turns do."""
    from loom_worker.runtime.sweeping import Links

    settings = process_env.keep_to_itself(from_env(), process_env.NOTHING)
    if settings.trace.endpoint is None:
        raise BadSettings("LOOM_TRACE_ENDPOINT is not set: no traces are exported")
    links = Links.of(settings, runs_tasks=False)
    try:
        waiting = links.traces.outbox.waiting()
        links.traces.call.send(is_last=True)
    finally:
        links.database.close()
    return waiting
