"""Commands that do little more than one request: tools, usage, messages, schedules, facts and users."""

from typing import Any, get_args

import click

from loom_worker.cli.http import path_to
from loom_worker.cli.show import Api, ShowsByName, common, fields, in_period, listing, paged, printable
from loom_worker.core.cron import CronPlan
from loom_worker.core.settings import from_env
from loom_worker.core.text import clean
from loom_worker.core.values.agent_messages import MessageStatus
from loom_worker.core.values.facts import FactStatus
from loom_worker.core.values.json import Json, from_rfc3339
from loom_worker.core.values.usage import GROUPS

USAGE_COLUMNS = (
    *("key", "turns", "llm_calls", "tool_calls", "input_tokens", "output_tokens"),
    *("cache_read_tokens", "cache_write_tokens", "cost_usd"),
)
_MESSAGES = ("id", "from", "to", "kind", "status", "reason", "attempts", "created_at", "message")
_SCHEDULES = ("name", "next", "last result")
_FACTS = ("id", "subject", "relation", "object", "since", "until", "confidence")


@click.command()
@click.option("--agent", help="Of this agent; unless given, of the one named default.")
@common
def tools(*, agent: str | None, api: Api) -> None:
    """List the tools that an agent may call."""
    api.show("tools", query={"agent": agent}, columns=("name", "description"))


@click.command()
@click.option("--check", "checks", is_flag=True, help="Ask those that agents' files and LOOM_MODEL name for one token.")
@paged
@common
def models(*, checks: bool, api: Api, **query: Any) -> None:
    """List the models that can be named; --check exits with 1 if one of them does not answer."""
    if not checks:
        api.show("models", query=query, columns=("id", "context_tokens", "max_output_tokens", "can", "prices"))
        return
    from loom_worker.cli.checks import answers

    has_failed = False
    for name, refusal in answers(from_env()):
        has_failed = has_failed or bool(refusal)
        click.echo(f"{'refused' if refusal else 'ok':<9}{clean(f'{name}: {refusal}' if refusal else name)}")
    click.get_current_context().exit(int(has_failed))


@click.command()
@click.option(
    "--by",
    "group_by",
    type=click.Choice(GROUPS),
    default="workspace",
    show_default=True,
    help="What to sum over.",
)
@click.option("--session", help="Of this session only.")
@click.option("--agent", help="Of this agent only.")
@click.option("--model", help="Of this model only.")
@in_period
@paged
@common
def usage(*, api: Api, **query: Any) -> None:
    """Sum tokens and cost; times are in UTC."""
    api.show("usage", query=query, columns=USAGE_COLUMNS)


@click.group(cls=ShowsByName, prefix="amsg_", subcommand_metavar="ID | COMMAND [ARGS]...")
def messages() -> None:
    """List the messages between agents, show one, or queue a dead one again.

    `loom messages ID` is short for `loom messages show ID`.
    """


@messages.command("list")
@click.option("--agent", help="Only messages to this agent.")
@click.option("--status", type=click.Choice(get_args(MessageStatus)), help="With this status only.")
@paged
@common
def list_messages(*, api: Api, **query: Any) -> None:
    """List the messages, the newest first."""
    api.show("agent-messages", query=query, columns=_MESSAGES)


@messages.command("show")
@click.argument("message_id")
@common
def show_message(message_id: str, *, api: Api) -> None:
    """Show one message: its fields, then its text."""
    api.tell(api.get("agent-messages", message_id), _message_text)


def _message_text(message: Json) -> str:
    told = {name: value for name, value in message.items() if name != "message"}
    return f"{fields(told)}\n\n{printable(message['message'])}"


@messages.command()
@click.argument("message_id")
@common
def replay(message_id: str, *, api: Api) -> None:
    """Queue a dead message again, with its four attempts and its 24 hours anew."""
    message = api.post("agent-messages", message_id, "replay")
    api.tell(message, lambda made: printable(f"{made['id']} is {made['status']}"))


@click.group(invoke_without_command=True)
@common
@listing
def schedules(*, api: Api) -> None:
    """List the schedules: when each is due next, in its own time zone, and what came of the last time."""
    none = "no schedules: no file of a workflow or an agent has one"
    api.show("schedules", columns=_SCHEDULES, row=_schedule_row, empty=none)


@schedules.command()
@click.argument("name")
@common
def enable(name: str, *, api: Api) -> None:
    """Enable a schedule, whatever its file says; it counts from now on."""
    _set(name, True, api)


@schedules.command()
@click.argument("name")
@common
def disable(name: str, *, api: Api) -> None:
    """Disable a schedule, whatever its file says."""
    _set(name, False, api)


@schedules.command()
@click.argument("name")
@common
def reset(name: str, *, api: Api) -> None:
    """Enable or disable a schedule as its file says."""
    _set(name, None, api)


@schedules.command()
@click.argument("name")
@common
def run(name: str, *, api: Api) -> None:
    """Start what a schedule starts, now; its plan stays as it is."""
    api.tell(api.post("schedules", name, "run"), lambda begun: str(begun["id"]))


def _set(name: str, enabled: bool | None, api: Api) -> None:
    found = api.loom.call("PATCH", path_to("schedules", name), body={"enabled": enabled})
    api.tell(found, lambda each: printable("{name}: next {next}".format(**_schedule_row(each))))


def _schedule_row(found: Json) -> Json:
    next_ms = from_rfc3339(found["next_at"]) if found["next_at"] else None
    by = " by an operator" if found["enabled_by"] == "operator" else ""
    plan = CronPlan(found["cron"], found["timezone"])
    last = f"{found['last_id']} {found['last_status'] or 'was deleted'}" if found["last_id"] else "never started"
    return {
        "name": found["name"],
        "next": f"disabled{by}" if next_ms is None else f"{plan.local(next_ms)} {found['timezone']}",
        "last result": f"refused: {found['last_error']}" if found["last_error"] else last,
    }


@click.group()
def facts() -> None:
    """See, correct and forget what is known of a user beyond sessions."""


@facts.command("list")
@click.argument("user")
@click.option("--status", type=click.Choice(get_args(FactStatus)), default="open", show_default=True)
@click.option("--topic", help="Only facts that share a word with it.")
@paged
@common
def list_facts(user: str, *, api: Api, **query: Any) -> None:
    """List what is known of USER, the newest first: what holds, unless --status says otherwise."""
    api.show("users", user, "facts", query=query, columns=_FACTS)


@facts.command()
@click.argument("user")
@click.argument("fact")
@click.option("--object", help="What holds instead.")
@click.option("--relation", help="How subject and object belong together.")
@click.option("--until", help="When it ceased to hold, as 2026-05-17T00:00:00Z.")
@click.option("--confidence", type=click.FloatRange(0, 1), help="0 to 1; unless given, 1.")
@common
def correct(user: str, fact: str, *, api: Api, **given: Any) -> None:
    """Correct FACT of USER: it is closed, and another one takes its place, which is printed."""
    body: Json = {name: value for name, value in given.items() if value is not None}
    if not body:
        raise click.UsageError("say what is to be corrected: --object, --relation, --until or --confidence")
    made = api.loom.call("PATCH", path_to("users", user, "facts", fact), body=body)
    api.tell(made, lambda each: printable("{id}: {subject} {relation} {object}".format(**each)))


@facts.command()
@click.argument("user")
@click.argument("fact")
@common
def forget(user: str, fact: str, *, api: Api) -> None:
    """Delete FACT of USER for good: what was said so far does not bring it back."""
    api.delete("users", user, "facts", fact)
    api.tell({"id": fact, "deleted": True}, lambda gone: f"forgotten: {printable(gone['id'])}")


@click.group()
def users() -> None:
    """Delete what belongs to a user of a workspace."""


@users.command()
@click.argument("user")
@common
def delete(user: str, *, api: Api) -> None:
    """Delete USER's sessions with all in them, and revoke USER's keys; turns that run are stopped.

    It needs a key with the scope admin. Ledger and audit keep the ids.
    """
    api.tell(api.delete("users", user), "deleted: {0[sessions]} sessions, {0[turns]} turns, {0[keys]} keys".format)
