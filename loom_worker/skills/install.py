"""Skills of a workspace: installed from a folder, an archive or a URL, copied, linked, removed.

A source is checked as a whole before anything is put in place. URLs are guarded at every hop, bounded in bytes and in
time.
"""

import os
import re
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from loom_worker.core.errors import BadFile, Conflict, NotFound, Rejected
from loom_worker.core.text import one_line
from loom_worker.core.values.skills import Skill
from loom_worker.guard.net.address import named
from loom_worker.guard.net.fetch import Fetching, fetch
from loom_worker.skills.folder import read
from loom_worker.skills.index import SKILLS, Skills
from loom_worker.skills.package import MAX_ARCHIVE_BYTES, Package, Unsafe, collected, naming, unpack
from loom_worker.skills.spec import FILE, ONLY_IN, skill_from, without_itself
from loom_worker.skills.storage import check_skill, check_workspace, locked

FETCHING: Final = Fetching(MAX_ARCHIVE_BYTES, "--allow-private", needs_https=True)
_URL = re.compile(r"https?://", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Installed:
    """A skill as it lies in a workspace now."""

    skill: Skill
    package: Package
    has_replaced: bool


def package_from(source: str, *, allow_private: bool = False) -> Package:
    """Read all of a source: a folder, an archive or SKILL.md, or the http(s) URL of one of the last two.

    Args:
        allow_private: plain http, loopback and private addresses are no reason to refuse a URL.

    Raises:
        NotFound: there is no such file or folder.
        Rejected, Transient: it cannot be had, or is refused; with the reason.
    """
    with naming(source):
        if _URL.match(source):
            return unpack(fetch(source, replace(FETCHING, allow_private=allow_private)))
        path = Path(source)
        if path.is_dir():
            return collected(path)
        if not path.exists():
            raise NotFound(f"{named(source)}: no such file or folder")
        try:
            # The owner may name a link, so its target is opened; a pipe or device is not.
            real = path.resolve()
            return unpack(read(real.parent, (real.name,), most_bytes=MAX_ARCHIVE_BYTES))
        except OSError as error:
            raise Unsafe(str(error.strerror)) from error


def checked(package: Package, workspace: str, *, name: str | None = None) -> Skill:
    """The skill that the files are, by the format's rules.

    Args:
        name: what it must be called; its folder may be called otherwise, as in archives of repositories.

    Raises:
        BadFile: ``SKILL.md:line: reason``.
        Rejected: it works in another workspace alone, or has another name.
    """
    where = Path(package.folder, FILE)
    skill = skill_from(package.files[FILE], where=where, folder=None)
    if name is not None and skill.name != name:
        raise BadFile(f"{where}: the skill is called {skill.name}, not {one_line(name)}")
    check_workspace_of(skill, workspace)
    return replace(skill, files=without_itself(tuple(sorted(package.files))))


def check_workspace_of(skill: Skill, workspace: str) -> None:
    """Raise Rejected if the skill says that it works in another workspace alone."""
    only = skill.metadata.get(ONLY_IN, "")
    if only not in ("", workspace):
        raise Rejected(f"{skill.name}: {ONLY_IN} allows it in {only[:64]!r} alone")


def install(
    package: Package, root: Path, workspace: str, *, name: str | None = None, may_replace: bool = False
) -> Installed:
    """Put a skill into a workspace, whole or not at all; of two at once one waits for the other.

    Args:
        root: where the workspaces lie.
        name: as in ``checked``.
        may_replace: one that is there, or a link, gives way; what a link leads to stays as it is.

    Raises:
        BadFile, Rejected: as ``checked``; Conflict if there is one already.
        LoomError: the file system refuses something.
    """
    check_workspace(workspace)
    skill = checked(package, workspace, name=name)
    with locked(root, workspace, is_made=True) as storage:
        try:
            has_replaced = storage.put(skill.name, package.files, may_replace=may_replace)
        except Conflict as error:
            raise Conflict(f"{workspace}/{SKILLS}: {error}; --force replaces what is there") from error
    return Installed(replace(skill, folder=root / workspace / SKILLS / skill.name), package, has_replaced)


def check_sha256(package: Package, wanted: str) -> None:
    """Raise Rejected unless the source has this checksum (hexadecimal)."""
    if package.sha256 != wanted.strip().lower():
        raise Rejected(f"the checksum is {package.sha256}, not {wanted.strip()[:64]}")


def copy(root: Path, name: str, *, source: str, target: str, may_replace: bool = False) -> Installed:
    """Copy a skill's files from the workspace ``source`` to ``target``; of a linked skill those it leads to.

    Raises:
        NotFound: there is no such skill.
        Rejected: it has links or too much in it, works in its workspace alone; Conflict if the target has one.
    """
    check_workspace(target)
    skill = _skill(root, source, name)
    # The workspace of the files is locked, not that of a link to them: nobody changes them while they are read.
    with locked(root, owner(skill)), naming(name):
        package = collected(skill.folder)
    return install(package, root, target, may_replace=may_replace)


def link(root: Path, name: str, *, source: str, target: str) -> Skill:
    """Let the workspace ``target`` use a skill of ``source`` in place; for a linked skill, its own source is linked.

    Raises:
        NotFound: there is no such skill.
        Rejected: it works in its workspace alone; Conflict if the target has one.
    """
    check_workspace(target)
    skill = _skill(root, source, name)
    check_workspace_of(skill, target)
    (root / target / SKILLS).mkdir(parents=True, exist_ok=True)
    with ExitStack() as locks:
        # In one order for all, so that no two wait for each other.
        storages = {each: locks.enter_context(locked(root, each)) for each in sorted({owner(skill), target})}
        folder = skill.folder.name
        if storages[owner(skill)].what(folder) != "folder":
            raise NotFound(f"{owner(skill)}/{SKILLS}/{folder} is gone")
        try:
            storages[target].put_link(folder, f"../../{owner(skill)}/{SKILLS}/{folder}")
        except Conflict as error:
            raise Conflict(f"{target}/{SKILLS}: {error}; remove it first") from error
    return skill


def remove(root: Path, name: str, *, workspace: str, is_forced: bool = False) -> tuple[str, ...]:
    """Remove a skill, also one that cannot be read; of a linked one the link alone.

    Args:
        is_forced: also if other workspaces link to it, which then lose it.

    Returns:
        The workspaces whose links are broken now.

    Raises:
        NotFound: there is no such skill.
        Conflict: other workspaces link to it.
    """
    check_skill(name)
    with locked(root, workspace) as storage:
        if storage.what(name) == "nothing":  # a skill may lie in a folder of another name
            own = Skills(root).of(workspace).skills
            name = next((skill.folder.name for skill in own if skill.name == name), name)
        what = storage.what(name)
        if what not in ("folder", "link"):
            raise NotFound(f"the workspace {workspace} has no skill {name}")
        users = linking(root, workspace, name) if what == "folder" else ()
        if users and not is_forced:
            raise Conflict(
                f"{workspace}/{SKILLS}/{name} is linked by {', '.join(users)}; --force removes it all the same"
            )
        storage.remove(name)
    return users


def linking(root: Path, workspace: str, name: str) -> tuple[str, ...]:
    """The workspaces that have a link to a skill's folder, by name."""
    real = os.path.realpath(root / workspace / SKILLS / name)
    found: list[str] = []
    for other in Skills(root).workspaces():
        links = (entry for entry in (root / other / SKILLS).iterdir() if entry.is_symlink())
        if any(os.path.realpath(entry) == real for entry in links):
            found.append(other)
    return tuple(found)


def owner(skill: Skill) -> str:
    """The workspace of a skill's folder; of a linked skill that of its source."""
    return skill.folder.parts[-3]


def _skill(root: Path, workspace: str, name: str) -> Skill:
    check_skill(name)
    skill_set = Skills(root).of(workspace)
    for skill in skill_set.skills:
        if skill.name == name:
            return skill
    where = f"{workspace}/{SKILLS}/{name}"
    why = [problem for problem in skill_set.problems if problem.startswith((f"{where}/", f"{where}:"))]
    raise NotFound(why[0] if why else f"the workspace {one_line(workspace)} has no skill {name}")
