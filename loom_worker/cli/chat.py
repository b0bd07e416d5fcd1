"""`loom chat`: a session in the terminal."""

import contextlib

import click

from loom_worker import settings as knobs
from loom_worker.cli import talk
from loom_worker.cli.http import Client, client
from loom_worker.errors import Rejected, Transient


@click.command()
@click.option("--session", help="Continue this session; default a new one.")
@click.option("--url", envvar="LOOM_URL", help="Of another Loom than the one of this LOOM_HOME.")
def chat(session: str | None, url: str | None) -> None:
    """Talk in the terminal, streamed; /quit or Ctrl-D ends it, Ctrl-C looks away from a running turn."""
    # Line editing and history for input(), where Python was built with it.
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # imported for its effect on input()
    loom = client(knobs.from_env(), url)
    loom.call("GET", "/v1/agents?limit=1")
    name = session or talk.fresh_session("chat")
    click.echo(f"session {name}; /quit ends, `loom chat --session {name}` continues")
    while (line := _line()) is not None:
        if line:
            _turn(loom, name, line)


def _line() -> str | None:
    """What was typed, None at the end."""
    try:
        line = input("you> ").strip()
    except (EOFError, KeyboardInterrupt):
        click.echo()
        return None
    return None if line in ("/quit", "/exit") else line


def _turn(loom: Client, session: str, line: str) -> None:
    """One question and its answer; what goes wrong with it is told, and the chat goes on."""
    teller = talk.terminal_teller()
    turn = None
    try:
        turn = talk.submit(loom, session, line)
        why = talk.verdict(talk.follow(loom, turn["id"], teller.tell))
    except KeyboardInterrupt:
        why = talk.still_running(turn["id"]) if turn else "not sent"
    except (Rejected, Transient) as error:
        why = str(error)
    teller.end()
    if why:
        click.echo(f"loom: {why}", err=True)
