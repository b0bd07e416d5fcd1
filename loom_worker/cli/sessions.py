"""`loom sessions`: list them, show one with its context, search in one, list its snapshots."""

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import click

from loom_worker.cli.show import Api, ShowsByName, common, fields, listing, paged, printable
from loom_worker.core.values.json import Json
from loom_worker.core.values.pages import PLACES


@click.group(cls=ShowsByName, invoke_without_command=True, subcommand_metavar="[ID | COMMAND [ARGS]...]")
@paged
@common
@listing
def sessions(*, api: Api, **query: Any) -> None:
    """List the sessions, the newest first; or show one, search in it, or list its snapshots.

    `loom sessions ID` is short for `loom sessions show ID`.
    """
    columns = ("id", "agent", "status", "busy", "queue_depth", "title", "updated_at")
    api.show("sessions", query=query, columns=columns)


@sessions.command(name="show")
@click.argument("session_id")
@common
def show_one(session_id: str, *, api: Api) -> None:
    """Show one session, field by field, and what each layer of its context takes."""
    session = api.get("sessions", session_id)
    api.tell({**session, "context": api.get("sessions", session_id, "context")}, _with_context)


def _with_context(found: Json) -> str:
    session = {name: value for name, value in found.items() if name != "context"}
    context, strokes = found["context"], strokes_of(sys.stdout.encoding)
    heading = f"context of {context['model']}, memory version {context['memory_version']}"
    return "\n".join((fields(session), "", printable(heading), *drawn(context, strokes), *learned(context)))


@sessions.command()
@click.argument("session_id")
@click.argument("question")
@click.option("--limit", type=click.IntRange(1, 50), default=10, show_default=True, help="Messages at most.")
@click.option("--one-per", type=click.Choice(PLACES), default="message", show_default=True, help="What counts as one.")
@common
def search(session_id: str, question: str, *, limit: int, one_per: str, api: Api) -> None:
    """Find what was said in a session, the best first."""
    columns = ("message_id", "role", "score", "snippet")
    query = {"q": question, "limit": limit, **({} if one_per == "message" else {"one_per": one_per})}
    api.show("sessions", session_id, "search", query=query, columns=columns)


@sessions.command()
@click.argument("session_id")
@paged
@common
def snapshots(session_id: str, *, api: Api, **query: Any) -> None:
    """List a session's former summaries, the newest first."""
    columns = ("id", "created_at", "token_count", "content")
    api.show("sessions", session_id, "snapshots", query=query, columns=columns)


WIDEST = 60
"""Characters of a line."""
_BAR = 22


class Strokes(NamedTuple):
    """What a bar is drawn with."""

    parts: str
    """A cell filled by one part of len(parts), by two, and so on; the last one is a full cell."""
    empty: str


BLOCKS = Strokes("▏▎▍▌▋▊▉█", "·")
ASCII = Strokes("#", ".")


def strokes_of(encoding: str | None) -> Strokes:
    """Blocks where the terminal can show them, ASCII where it cannot."""
    try:
        (BLOCKS.parts + BLOCKS.empty).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS


def drawn(context: Json, strokes: Strokes) -> Iterator[str]:
    """Lines that show what each layer takes of the input budget.

    Args:
        context: the Context of the HTTP API.
    """
    budget = context["input_budget_tokens"]
    for name, layer in context["layers"].items():
        messages = f"{layer['messages']:>6,} msg" if layer.get("messages") else ""
        figures = f"{layer['tokens']:>9,} {layer['share']:>6.1%}{messages}"
        yield f"{name:<9}{bar(layer['share'], strokes)} {figures}"
    if tiers := context.get("tiers"):
        summarized = f"{tiers['summaries']:,} summaries by date ({tiers['summarized_messages']:,} messages)"
        yield f"{summarized}, {tiers['open_facts']:,} open facts"
    used = context["used_tokens"]
    yield f"{used:,} of {budget:,} tokens used ({used / max(budget, 1):.1%})"
    if vectors := context.get("embeddings"):
        model, missing = printable(vectors["model"]), vectors["missing"]
        yield f"{vectors['messages']:,} messages have a vector of {model}, {missing:,} have none yet"


def learned(context: Json) -> Iterator[str]:
    """What of the agent's learned layer is in ROM, in a line; none where it has none."""
    part = context["learned"]
    if part is None:
        return
    names = ("signatures", "demonstrations")
    kept = (f"{part[name]} of {part[name] + part[f'left_out_{name}']} {name}" for name in names)
    yield f"learned version {part['version']} in rom: {', '.join(kept)}"


def bar(share: float, strokes: Strokes) -> str:
    """A bar of a fixed width; whatever is more than nothing shows, and nothing reaches beyond the end."""
    steps = len(strokes.parts)
    filled = min(_BAR * steps, max(round(share * _BAR * steps), 1 if share > 0 else 0))
    whole, part = divmod(filled, steps)
    cells = strokes.parts[-1] * whole + (strokes.parts[part - 1] if part else "")
    return cells.ljust(_BAR, strokes.empty)
