"""`loom sessions`: list them, show one with its context, search in one, list its snapshots."""

import sys
from typing import Any

import click

from loom_worker.cli.http import client, in_path
from loom_worker.cli.layers import drawn, strokes_of
from loom_worker.cli.show import ShowsByName, as_text, common, fields, paged, refuse_options_of_the_list, show
from loom_worker.cli.talk import printable
from loom_worker.core import settings as knobs


@click.group(cls=ShowsByName, invoke_without_command=True, subcommand_metavar="[ID | COMMAND [ARGS]...]")
@paged
@common
@click.pass_context
def sessions(ctx: click.Context, /, *, limit: int, after: str | None, **asked: Any) -> None:
    """List the sessions, the newest first; or show one, search in it, or list its snapshots.

    `loom sessions ID` is short for `loom sessions show ID`.
    """
    if ctx.invoked_subcommand is not None:
        refuse_options_of_the_list(ctx)
        return
    columns = ("id", "agent", "status", "busy", "queue_depth", "title", "updated_at")
    show("/v1/sessions", {"limit": limit, "after": after}, columns, **asked)


@sessions.command(name="show")
@click.argument("session_id")
@common
def show_one(session_id: str, *, url: str | None, as_json: bool) -> None:
    """Show one session, field by field, and what each layer of its context takes."""
    loom = client(knobs.from_env(), url)
    session = loom.call("GET", _path(session_id))
    context = loom.call("GET", f"{_path(session_id)}/context")
    if as_json:
        click.echo(as_text({**session, "context": context}))
        return
    strokes = strokes_of(sys.stdout.encoding)
    heading = f"context of {context['model']}, memory version {context['memory_version']}"
    click.echo("\n".join((fields(session), "", printable(heading), *drawn(context, strokes))))


@sessions.command()
@click.argument("session_id")
@click.argument("question")
@click.option("--limit", type=click.IntRange(1, 50), default=10, show_default=True, help="Messages at most.")
@common
def search(session_id: str, question: str, *, limit: int, url: str | None, as_json: bool) -> None:
    """Find what was said in a session, the best first."""
    columns = ("message_id", "role", "score", "snippet")
    show(f"{_path(session_id)}/search", {"q": question, "limit": limit}, columns, url=url, as_json=as_json)


@sessions.command()
@click.argument("session_id")
@paged
@common
def snapshots(session_id: str, *, limit: int, after: str | None, url: str | None, as_json: bool) -> None:
    """List a session's former summaries, the newest first."""
    columns = ("id", "created_at", "token_count", "content")
    query = {"limit": limit, "after": after}
    show(f"{_path(session_id)}/snapshots", query, columns, url=url, as_json=as_json)


def _path(session_id: str) -> str:
    return f"/v1/sessions/{in_path(session_id)}"
