"""`loom turns`: list them, show one, cancel one, decide on its tool calls, run failed ones again."""

import json
from collections.abc import Iterator
from typing import Any, get_args

import click

from loom_worker.cli.http import path_to
from loom_worker.cli.show import Api, ShowsByName, as_text, common, listing, paged, printable
from loom_worker.core.errors import Rejected
from loom_worker.core.values.json import Json
from loom_worker.core.values.turns import CancelAction, TurnStatus

DEAD: Json = {"status": "failed", "reason": "dead"}


@click.group(
    cls=ShowsByName, prefix="turn_", invoke_without_command=True, subcommand_metavar="[ID | COMMAND [ARGS]...]"
)
@click.option("--session", help="Of this session only.")
@click.option("--status", type=click.Choice(get_args(TurnStatus)), help="With this status only.")
@click.option("--reason", help="With this reason only, such as dead.")
@click.option("--dead", is_flag=True, help="Short for --status failed --reason dead.")
@paged
@common
@listing
def turns(*, session: str | None, dead: bool, api: Api, **query: Any) -> None:
    """List the turns, the newest first; or show, cancel, approve or retry one.

    `loom turns ID` is short for `loom turns show ID`.
    """
    if dead and (query["status"] or query["reason"]):
        raise click.UsageError("--dead already says which status and reason")
    columns = ("id", "session_id", "seq", "status", "reason", "waiting", "input", "created_at")
    api.show(*_list_steps(session), query=query | (DEAD if dead else {}), columns=columns)


@turns.command(name="show")
@click.argument("turn_id")
@common
def show_one(turn_id: str, *, api: Api) -> None:
    """Show one turn, field by field."""
    api.show("turns", turn_id)


@turns.command()
@click.argument("turn_id")
@click.option(
    "--action",
    type=click.Choice(get_args(CancelAction)),
    default="interrupt",
    show_default=True,
    help="interrupt: what was said stays; rollback: as if it never ran; finish: one last model call without tools.",
)
@common
def cancel(turn_id: str, *, action: str, api: Api) -> None:
    """Ask a turn to end; one that has ended stays as it is."""
    api.tell(api.post("turns", turn_id, "cancel", body={"action": action}), _state)


@turns.command()
@click.argument("turn_id")
@click.argument("call_id", required=False)
@click.option("--reject", is_flag=True, help="The call may not run; the model is told so.")
@click.option("--reason", help="With --reject: why, in words the model reads.")
@click.option("--arguments", metavar="JSON", help="Run it with these arguments in place of the model's.")
@common
def approve(
    turn_id: str, call_id: str | None, *, arguments: str | None, reject: bool, reason: str | None, api: Api
) -> None:
    """Let the tool calls of a turn run that wait for a person: one of them, or all.

    `loom turns --status requires_action` lists the turns that wait.
    """
    if (reject and arguments is not None) or (reason and not reject):
        raise click.UsageError("--arguments is for a call that is approved, --reason for one that is rejected")
    if arguments is not None and call_id is None:
        raise click.UsageError("--arguments is for one call: name it")
    body: Json = {"decision": "reject", "reason": reason} if reject else {"decision": "approve"}
    if arguments is not None:
        body = {"decision": "edit", "arguments": _object(arguments)}
    turn = api.get("turns", turn_id)
    waiting = [call for call in turn["tool_calls"] if call["approval"] == "waiting" and call["status"] == "pending"]
    for call in [{"id": call_id}] if call_id else waiting:
        turn = api.post("turns", turn_id, "approvals", call["id"], body=body)
        if not api.as_json:
            click.echo(printable(f"{call['id']}: {'rejected' if reject else 'approved'}"))
    api.tell(turn, _state)


@turns.command()
@click.argument("turn_id", required=False)
@click.option("--dead", is_flag=True, help="All dead turns, the oldest first; each once, however often this is said.")
@click.option("--session", help="With --dead: of this session only.")
@common
@click.pass_context
def retry(ctx: click.Context, /, turn_id: str | None, *, dead: bool, session: str | None, api: Api) -> None:
    """Run a failed turn again, as a new turn behind those of its session; or all dead ones."""
    if dead == bool(turn_id) or (session and not dead):
        raise click.UsageError("name one turn, or say --dead, with --session or without")
    if turn_id:
        api.tell(api.post("turns", turn_id, "retry"), lambda turn: f"{printable(turn_id)} → {_state(turn)}")
        return
    done = list(_retried(api, session))
    if api.as_json:
        click.echo(as_text({"object": "list", "data": done}))
    elif not done:
        click.echo("no dead turns")
    ctx.exit(1 if any(outcome["error"] for outcome in done) else 0)


def _retried(api: Api, session: str | None) -> Iterator[Json]:
    """Retry every dead turn and say what came of each; a refused one does not stop the rest."""
    # Listed to the end before the first is retried, then from the oldest on: a conversation keeps its order.
    dead = [turn["id"] for turn in api.loom.every(path_to(*_list_steps(session)), DEAD)]
    for turn_id in reversed(dead):
        outcome: Json = {"turn": turn_id, "retry": None, "replayed": False, "error": None}
        try:
            # A key of its own: what a run of this command did, whole or cut off, no further run does again.
            key = f"loom-turns-retry-{turn_id}"
            outcome["retry"], outcome["replayed"] = api.loom.call_once(path_to("turns", turn_id, "retry"), key=key)
        except Rejected as error:
            outcome["error"] = str(error)
        if not api.as_json:
            _tell(outcome)
        yield outcome


def _tell(outcome: Json) -> None:
    if outcome["error"]:
        click.echo(f"loom: {outcome['turn']}: {printable(outcome['error'])}", err=True)
        return
    before = " (retried before)" if outcome["replayed"] else ""
    click.echo(f"{outcome['turn']} → {_state(outcome['retry'])}{before}")


def _state(turn: Json) -> str:
    """The turn in a line: its status, and how it will end if it was cancelled."""
    reason = f" ({turn['reason']})" if turn["reason"] else ""
    is_to_end = turn["cancel"] and not turn["completed_at"]
    asked = f", asked to end ({turn['cancel']})" if is_to_end else ""
    return printable(f"{turn['id']} is {turn['status']}{reason}{asked}")


def _object(text: str) -> Json:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"--arguments: not JSON: {error}") from error
    if not isinstance(given, dict):
        raise click.UsageError("--arguments: a JSON object is needed")
    return given


def _list_steps(session: str | None) -> tuple[str, ...]:
    return ("sessions", session, "turns") if session else ("turns",)
