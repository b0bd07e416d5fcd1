"""`loom turns`: list them, show one, cancel one, decide on its tool calls, run failed ones again."""

import json
from collections.abc import Iterator
from typing import Any, get_args

import click

from loom_worker.cli.http import LoomClient, client, path_to
from loom_worker.cli.show import ShowsByName, as_text, common, paged, refuse_options_of_the_list, show
from loom_worker.cli.talk import printable
from loom_worker.core.errors import Rejected
from loom_worker.core.settings import from_env
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
@click.pass_context
def turns(ctx: click.Context, /, *, session: str | None, dead: bool, **asked: Any) -> None:
    """List the turns, the newest first; or show, cancel, approve or retry one.

    `loom turns ID` is short for `loom turns show ID`.
    """
    if ctx.invoked_subcommand is not None:
        refuse_options_of_the_list(ctx)
        return
    if dead and (asked["status"] or asked["reason"]):
        raise click.UsageError("--dead already says which status and reason")
    columns = ("id", "session_id", "seq", "status", "reason", "waiting", "input", "created_at")
    query = {name: asked[name] for name in ("limit", "after", "status", "reason")}
    show(_list_path(session), query | (DEAD if dead else {}), columns, url=asked["url"], as_json=asked["as_json"])


@turns.command(name="show")
@click.argument("turn_id")
@common
def show_one(turn_id: str, *, url: str | None, as_json: bool) -> None:
    """Show one turn, field by field."""
    show(path_to("turns", turn_id), {}, (), url=url, as_json=as_json)


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
def cancel(turn_id: str, *, action: str, url: str | None, as_json: bool) -> None:
    """Ask a turn to end; one that has ended stays as it is."""
    turn = client(from_env(), url).call("POST", path_to("turns", turn_id, "cancel"), body={"action": action})
    click.echo(as_text(turn) if as_json else _state(turn))


@turns.command()
@click.argument("turn_id")
@click.argument("call_id", required=False)
@click.option("--reject", is_flag=True, help="The call may not run; the model is told so.")
@click.option("--reason", help="With --reject: why, in words the model reads.")
@click.option("--arguments", metavar="JSON", help="Run it with these arguments in place of the model's.")
@common
def approve(turn_id: str, call_id: str | None, *, arguments: str | None, **asked: Any) -> None:
    """Let the tool calls of a turn run that wait for a person: one of them, or all.

    `loom turns --status requires_action` lists the turns that wait.
    """
    if (asked["reject"] and arguments is not None) or (asked["reason"] and not asked["reject"]):
        raise click.UsageError("--arguments is for a call that is approved, --reason for one that is rejected")
    if arguments is not None and call_id is None:
        raise click.UsageError("--arguments is for one call: name it")
    loom = client(from_env(), asked["url"])
    body = {"decision": "reject", "reason": asked["reason"]} if asked["reject"] else {"decision": "approve"}
    if arguments is not None:
        body = {"decision": "edit", "arguments": _object(arguments)}
    turn: Json = loom.call("GET", path_to("turns", turn_id))
    waiting = [call for call in turn["tool_calls"] if call["approval"] == "waiting" and call["status"] == "pending"]
    for call in [{"id": call_id}] if call_id else waiting:
        turn = loom.call("POST", path_to("turns", turn_id, "approvals", call["id"]), body=body)
        if not asked["as_json"]:
            click.echo(printable(f"{call['id']}: {'rejected' if asked['reject'] else 'approved'}"))
    click.echo(as_text(turn) if asked["as_json"] else _state(turn))


@turns.command()
@click.argument("turn_id", required=False)
@click.option("--dead", is_flag=True, help="All dead turns, the oldest first; each once, however often this is said.")
@click.option("--session", help="With --dead: of this session only.")
@common
@click.pass_context
def retry(ctx: click.Context, /, turn_id: str | None, *, dead: bool, session: str | None, **asked: Any) -> None:
    """Run a failed turn again, as a new turn behind those of its session; or all dead ones."""
    if dead == bool(turn_id) or (session and not dead):
        raise click.UsageError("name one turn, or say --dead, with --session or without")
    loom = client(from_env(), asked["url"])
    if turn_id:
        turn = loom.call("POST", path_to("turns", turn_id, "retry"))
        click.echo(as_text(turn) if asked["as_json"] else f"{printable(turn_id)} → {_state(turn)}")
        return
    done = list(_retried(loom, session, tell=not asked["as_json"]))
    if asked["as_json"]:
        click.echo(as_text({"object": "list", "data": done}))
    elif not done:
        click.echo("no dead turns")
    ctx.exit(1 if any(outcome["error"] for outcome in done) else 0)


def _retried(loom: LoomClient, session: str | None, *, tell: bool) -> Iterator[Json]:
    """Retry every dead turn and say what came of each; a refused one does not stop the rest."""
    # Listed to the end before the first is retried, then from the oldest on: a conversation keeps its order.
    for turn_id in reversed(_dead(loom, session)):
        outcome: Json = {"turn": turn_id, "retry": None, "replayed": False, "error": None}
        try:
            # A key of its own: what a run of this command did, whole or cut off, no further run does again.
            key = f"loom-turns-retry-{turn_id}"
            outcome["retry"], outcome["replayed"] = loom.call_once(path_to("turns", turn_id, "retry"), key=key)
        except Rejected as error:
            outcome["error"] = str(error)
        if tell:
            _tell(outcome)
        yield outcome


def _tell(outcome: Json) -> None:
    if outcome["error"]:
        click.echo(f"loom: {outcome['turn']}: {printable(outcome['error'])}", err=True)
        return
    before = " (retried before)" if outcome["replayed"] else ""
    click.echo(f"{outcome['turn']} → {_state(outcome['retry'])}{before}")


def _dead(loom: LoomClient, session: str | None) -> list[str]:
    """The ids of all dead turns, the newest first."""
    return [turn["id"] for turn in loom.every(_list_path(session), DEAD)]


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


def _list_path(session: str | None) -> str:
    return path_to("sessions", session, "turns") if session else "/v1/turns"
