"""`loom learned`: import what an optimizer has saved for an agent, compare its versions, choose the active one."""

from difflib import unified_diff
from pathlib import Path
from typing import Any

import click

from loom_worker.agents.learned.prompt import whole
from loom_worker.agents.learned.reading import content_of, version_of
from loom_worker.cli.show import Api, as_text, common, fields, paged, printable
from loom_worker.core.errors import BadFile
from loom_worker.core.fields import InvalidField
from loom_worker.core.values.json import Json
from loom_worker.core.values.learned import FORMS, LearnedLayer

_COLUMNS = (
    *("version", "sessions", "imported", "from", "demos", "turns", "completed", "failed", "judges", "tokens", "usd"),
    "note",
)


@click.group()
def learned() -> None:
    """What optimizers of prompts (DSPy, TextGrad) have found for an agent, in numbered versions."""


@learned.command("import")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option("--agent", required=True, help="For whom.")
@click.option("--note", help="Shown with the version.")
@click.option("--form", type=click.Choice(FORMS), help="Refuse a file that is not of this kind.")
@common
def import_file(file: Path, *, agent: str, note: str | None, form: str | None, api: Api) -> None:
    """Store FILE as the next version; nothing is activated.

    FILE is the JSON that DSPy has saved (program.save("program.json")), or a list of prompts tuned by TextGrad. It is
    read as data; pickled programs are refused.
    """
    content = content_of(file)
    try:
        version_of(content, form=form)
    except InvalidField as error:
        raise BadFile(f"{file}: {error}") from error
    given = {"form": form, "note": note}
    body = {"content": content, "source": file.name, **{name: text for name, text in given.items() if text is not None}}
    found = api.post("agents", agent, "learned", body=body)
    if api.as_json:
        click.echo(as_text(found))
        return
    for warning in found["warnings"]:
        click.echo(printable(f"{file.name}: warning: {warning}"), err=True)
    version = found["version"]
    click.echo(printable(f"{agent}: version {version}: {_contents(found)}"))
    if not found["active"]:
        click.echo(printable(f"not active: loom learned activate {agent} --version {version}"))


@learned.command("list")
@click.argument("agent")
@paged
@common
def list_versions(agent: str, *, api: Api, **query: Any) -> None:
    """List an agent's versions, the newest first: who gets them, and what came of their latest turns.

    Version 0 stands for sessions without a learned layer. Tokens and USD are those of a turn.
    """
    api.show("agents", agent, "learned", query=query, columns=_COLUMNS, row=_row)


@learned.command("show")
@click.argument("agent")
@click.argument("version", type=click.IntRange(min=1))
@common
def show_one(agent: str, version: int, *, api: Api) -> None:
    """Show one version: what is known of it, and all that it would tell the model if there were room for it."""
    api.tell(api.get("agents", agent, "learned", str(version)), _shown)


def _shown(found: Json) -> str:
    known = {name: value for name, value in found.items() if name != "layer"}
    return f"{fields(known)}\n\n{printable(whole(LearnedLayer.from_json(found['layer'])))}"


@learned.command()
@click.argument("agent")
@click.argument("old", type=click.IntRange(min=1))
@click.argument("new", type=click.IntRange(min=1))
@common
def diff(agent: str, old: int, new: int, *, api: Api) -> None:
    """Show line by line what another version tells the model."""
    both = (api.get("agents", agent, "learned", str(version))["layer"] for version in (old, new))
    before, after = (whole(LearnedLayer.from_json(layer)).splitlines() for layer in both)
    lines = list(unified_diff(before, after, f"version {old}", f"version {new}", lineterm=""))
    found = {"agent": agent, "old": old, "new": new, "lines": lines}
    api.tell(found, lambda _: printable("\n".join(lines)) if lines else "no difference")


@learned.command()
@click.argument("agent")
@click.option("--version", type=click.IntRange(min=0), required=True, help="0: no learned layer.")
@click.option("--share", type=click.FloatRange(0, 1), help="Of new sessions, 0 to 1; the others get what is active.")
@common
def activate(agent: str, *, version: int, share: float | None, api: Api) -> None:
    """Give a version to the sessions that begin from now on, or to a share of them.

    Sessions that have begun keep what they have.
    """
    body: Json = {"version": version, **({} if share is None else {"share": share})}
    api.tell(api.post("agents", agent, "learned", "activate", body=body), _activation)


@learned.command()
@click.argument("agent")
@common
def rollback(agent: str, *, api: Api) -> None:
    """Take the last activation back: a trial ends, else the version before is active again."""
    api.tell(api.post("agents", agent, "learned", "rollback"), _activation)


@learned.command()
@click.argument("agent")
@click.argument("version", type=click.IntRange(min=1))
@common
def erase(agent: str, version: int, *, api: Api) -> None:
    """Remove what a version holds, for good; its number and its scores stay. Not possible while it is active."""
    done = api.delete("agents", agent, "learned", str(version))
    api.tell(done, lambda _: printable(f"{agent}: version {version} is erased"))


def _contents(found: Json) -> str:
    counts = {name: found[name] for name in ("signatures", "demonstrations", "gradients") if found[name]}
    return ", ".join(f"{n} {name.removesuffix('s') if n == 1 else name}" for name, n in counts.items())


def _row(found: Json) -> Json:
    scores = found["scores"]
    mean = scores["mean_score"]
    return {
        "version": found["version"],
        "sessions": f"{found['share']:.0%}",
        "imported": found["created_at"],
        "from": found["made_with"] or found["form"],
        "demos": found["demonstrations"],
        **{name: scores[name] for name in ("turns", "completed", "failed")},
        "judges": None if mean is None else f"{mean:.2f} ({scores['judged']})",
        "tokens": None if scores["mean_tokens"] is None else f"{scores['mean_tokens']:.0f}",
        "usd": None if scores["mean_usd"] is None else f"{scores['mean_usd']:.6f}",
        "note": found["note"],
    }


def _activation(changed: Json) -> str:
    version = f"version {changed['version']}" if changed["version"] else "no learned layer"
    trial = f", {changed['share']:.0%} of them with version {changed['trial_version']}"
    text = f"{changed['agent']}: sessions begin with {version}{trial if changed['trial_version'] is not None else ''}"
    return printable(text)
