"""`loom ask`: one turn."""

import sys

import click

from loom_worker.cli import talk
from loom_worker.cli.http import client
from loom_worker.cli.show import as_text, common
from loom_worker.core.settings import from_env
from loom_worker.core.values.notifications import Event


@click.command()
@click.argument("question")
@click.option("--session", help="Continue this session; default a new one.")
@click.option("--agent", help="Of a new session; default the one named default.")
@click.option("--said-at", help="When it was said, if not now: 2023-05-07T13:56:00Z.")
@common
@click.pass_context
def ask(
    ctx: click.Context,
    question: str,
    *,
    session: str | None,
    agent: str | None,
    said_at: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Ask one question and print the answer; exit code 0 if the turn completed.

    On a terminal the answer is streamed; into a pipe or file goes the turn's text alone. Stderr tells of waits.
    """
    if any("\ud800" <= letter <= "\udfff" for letter in question):  # bytes that were no UTF-8
        raise click.UsageError("the question is not valid text in this terminal's encoding")
    loom = client(from_env(), url)
    turn = talk.submit(loom, session or talk.fresh_session("ask"), question, agent=agent, said_at=said_at)
    is_streamed = sys.stdout.isatty() and not as_json
    teller = talk.terminal_teller()
    tell = teller.tell if is_streamed else _say_nothing if as_json else teller.tell_wait
    try:
        turn = talk.follow(loom, turn["id"], tell)
    except KeyboardInterrupt:
        click.echo(f"\n{talk.still_running(turn['id'])}", err=True)
        ctx.exit(1)
    teller.end()
    if as_json:
        click.echo(as_text(turn))
    elif not is_streamed and turn.get("output_text"):
        click.echo(talk.printable(turn["output_text"]))
    if why := talk.verdict(turn):
        click.echo(f"loom: {why}", err=True)
        ctx.exit(1)


def _say_nothing(_event: Event) -> None:
    """Nobody watches: the final text is printed at the end."""
