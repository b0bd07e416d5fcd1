"""`loom skill`: the skills of each workspace, installed, shared and found; no Loom needs to run."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from loom_worker.cli.show import as_text, fields, json_option, listing, print_list
from loom_worker.core.settings import from_env
from loom_worker.core.text import one_line
from loom_worker.core.values.json import Json
from loom_worker.core.values.patterns import Pattern
from loom_worker.core.values.skills import Skill
from loom_worker.skills import install as installing
from loom_worker.skills.index import Skills
from loom_worker.skills.install import Installed, check_sha256, package_from
from loom_worker.skills.storage import check_workspace

WORKSPACE = "default"
"""That of requests without an API key from this machine."""
_MOST_FOUND = 20
_LEAST_SCORE = 0.05
"""Score of a skill that has not all words; below it are those that share a syllable with the question."""
_SEARCHED_CHARS = 20_000
"""Characters of instructions, for the likeness."""
_LISTED = ("workspace", "name", "trigger", "keywords", "compatibility", "linked_from", "description")
_FOUND = ("workspace", "name", "score", "terms", "description")
_KEPT = (
    "Sessions that began before keep it in their system text as it was, until PATCH /v1/sessions/{s} asks for "
    '{"agent": "name@latest"}.'
)
_NEVER_RUN = "Loom runs no scripts of a skill; it reads them to the model. Install only what you have read."

_workspace = click.option("--workspace", default=WORKSPACE, show_default=True, help="Whose skills.")
_all = click.option("--all", "is_all", is_flag=True, help="Of all workspaces.")
_source = click.option("--from", "source", required=True, help="The workspace that has it.")
_target = click.option("--to", "target", required=True, help="The workspace that gets it.")


@click.group(invoke_without_command=True)
@_workspace
@_all
@json_option
@listing
def skill(*, workspace: str, is_all: bool, as_json: bool) -> None:
    """List the skills of a workspace; the commands install, share, remove and search them."""
    _list(workspace, is_all=is_all, as_json=as_json)


@skill.command("list")
@_workspace
@_all
@json_option
def list_all(*, workspace: str, is_all: bool, as_json: bool) -> None:
    """List the skills of a workspace; folders that cannot be used are reported on stderr, with the reason."""
    _list(workspace, is_all=is_all, as_json=as_json)


@skill.command()
@click.argument("source")
@_workspace
@click.option("--name", help="What it must be called, whatever its folder in SOURCE is called.")
@click.option("--sha256", help="Refuse it unless SOURCE has this checksum.")
@click.option("--force", is_flag=True, help="Replace one that is there.")
@click.option("--allow-private", is_flag=True, help="Also from http, loopback and private addresses.")
@json_option
def install(source: str, **given: Any) -> None:
    """Install a skill from SOURCE: a folder, an archive (.zip, .tar, .tar.gz, .tar.xz), or the URL of one.

    All of it is checked before anything is put in place. Scripts are installed as files, and never run.
    """
    if not source.strip():
        raise click.UsageError("SOURCE is empty; the folder you are in is .")
    package = package_from(source, allow_private=given["allow_private"])
    if given["sha256"] is not None:
        check_sha256(package, given["sha256"])
    unlisted = _unlisted(given["workspace"])
    done = installing.install(package, _root(), given["workspace"], name=given["name"], may_replace=given["force"])
    _tell(done, given["workspace"], unlisted, as_json=given["as_json"])


@skill.command()
@click.argument("name")
@_source
@_target
@click.option("--force", is_flag=True, help="Replace one that is there.")
@json_option
def copy(name: str, *, source: str, target: str, force: bool, as_json: bool) -> None:
    """Copy a skill to another workspace, which has files of its own from then on."""
    unlisted = _unlisted(target)
    done = installing.copy(_root(), name, source=source, target=target, may_replace=force)
    _tell(done, target, unlisted, as_json=as_json)


@skill.command()
@click.argument("name")
@_source
@_target
@json_option
def link(name: str, *, source: str, target: str, as_json: bool) -> None:
    """Let another workspace have a skill, too: edits of the one show in the other."""
    linked = installing.link(_root(), name, source=source, target=target)
    made = {"workspace": target, "name": linked.name, "linked_from": installing.owner(linked)}
    click.echo(as_text(made) if as_json else f"{target}: {linked.name} follows that of {installing.owner(linked)}")


@skill.command()
@click.argument("name")
@_workspace
@click.option("--force", is_flag=True, help="Also if other workspaces link to it.")
@json_option
def remove(name: str, *, workspace: str, force: bool, as_json: bool) -> None:
    """Remove a skill; of a linked one the link, and not its source."""
    unlisted = _unlisted(workspace)
    users = installing.remove(_root(), name, workspace=workspace, is_forced=force)
    if as_json:
        click.echo(as_text({"workspace": workspace, "name": name, "broken_links": list(users)}))
    else:
        click.echo(
            f"{workspace}: {name} is removed" + (f"; links of {', '.join(users)} lead nowhere now" * bool(users))
        )
        if name not in unlisted:
            click.echo(_KEPT)


@skill.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--workspace", help="Of this workspace only.")
@json_option
def search(words: Sequence[str], *, workspace: str | None, as_json: bool) -> None:
    """Find skills by name, description, keywords and instructions, the best first."""
    if workspace is not None:
        check_workspace(workspace)
    skills = Skills(_root())
    names = skills.workspaces() if workspace is None else (workspace,)
    found = _ranked(" ".join(words), [(name, each) for name in names for each in _told(skills, name)])
    print_list(found, _FOUND, as_json=as_json)


def _root() -> Path:
    return from_env().workspaces_dir


def _list(workspace: str, *, is_all: bool, as_json: bool) -> None:
    check_workspace(workspace)
    skills = Skills(_root())
    names = skills.workspaces() if is_all else (workspace,)
    found = [_row(name, each) for name in names for each in _told(skills, name)]
    print_list(found, _LISTED, as_json=as_json)


def _told(skills: Skills, workspace: str) -> tuple[Skill, ...]:
    """The skills of a workspace; what is wrong with them and with others goes to standard error."""
    skill_set = skills.of(workspace)
    for problem in skill_set.problems:
        click.echo(problem, err=True)
    _warn(skill_set.warnings)
    return skill_set.skills


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        click.echo(f"{one_line(warning, 1024)} (it loads)", err=True)


def _unlisted(workspace: str) -> frozenset[str]:
    """The skills that stand in no session's system text; one that cannot be read now may have stood there."""
    return frozenset(each.name for each in Skills(_root()).of(workspace).skills if each.trigger == "manual")


def _row(workspace: str, each: Skill) -> Json:
    return {
        "workspace": workspace,
        "name": each.name,
        "trigger": each.trigger,
        "keywords": list(each.keywords),
        "compatibility": each.compatibility,
        "linked_from": installing.owner(each) if each.is_linked else None,
        "description": each.description,
    }


def _ranked(question: str, known: Sequence[tuple[str, Skill]]) -> list[Json]:
    """First those that have all words in what they say of themselves, then in their instructions, then those alike."""
    from loom_worker.patterns.match import Matcher

    matches = Matcher(_as_pattern(workspace, each) for workspace, each in known).match(question, max(len(known), 1))
    scores = {match.pattern.id: match for match in matches}
    rows: list[tuple[int, float, Json]] = []
    for workspace, each in known:
        match = scores.get(f"{workspace}/{each.name}")
        score, terms = (match.score, match.terms) if match else (0.0, ())
        place = _place(question, each)
        if place or score >= _LEAST_SCORE:
            row = {"workspace": workspace, "name": each.name, "score": round(score, 4), "terms": list(terms)}
            rows.append((place, score, {**row, "description": each.description}))
    return [row for _, _, row in sorted(rows, key=lambda row: row[:2], reverse=True)[:_MOST_FOUND]]


def _place(question: str, each: Skill) -> int:
    """2 if all words stand in name, description or keywords, 1 if in those or the instructions, else 0."""
    words = question.casefold().split()
    said = f"{each.name} {each.description} {' '.join(each.keywords)}".casefold()
    texts = (f"{said} {each.body.casefold()}", said)
    return sum(all(word in text for word in words) for text in texts)


def _as_pattern(workspace: str, each: Skill) -> Pattern:
    return Pattern(
        id=f"{workspace}/{each.name}",
        name=each.name,
        title=each.name.replace("-", " "),
        description=each.description,
        tags=each.keywords,
        use_cases=(each.body[:_SEARCHED_CHARS],),
    )


def _tell(done: Installed, workspace: str, unlisted: Collection[str], *, as_json: bool) -> None:
    """What was installed, by what it says of itself and by what it is; ``unlisted`` is from before."""
    facts = {
        "workspace": workspace,
        "name": done.skill.name,
        "description": done.skill.description,
        "compatibility": done.skill.compatibility,
        "allowed_tools": list(done.skill.allowed_tools),
        "files": len(done.package.files),
        "size_bytes": done.package.size_bytes,
        "sha256": done.package.sha256,
        "left_out": list(done.package.skipped),
        "replaced": done.has_replaced,
    }
    if as_json:
        click.echo(as_text(facts))
    else:
        click.echo(fields({name: _shown(value) for name, value in facts.items()}))
        click.echo(_NEVER_RUN)
        if done.has_replaced and done.skill.name not in unlisted:
            click.echo(_KEPT)
    _warn(done.skill.warnings)


def _shown(value: object) -> object:
    """Lists with commas, long texts in one line, a dash for what is not there."""
    text = ", ".join(value) if isinstance(value, list) else value
    return (one_line(text, 1024) or "-") if isinstance(text, str) else text
