"""Skills between workspaces: copied, linked, removed."""

import os
from contextlib import ExitStack
from pathlib import Path

from loom_worker.core.errors import Conflict, NotFound
from loom_worker.core.text import one_line
from loom_worker.core.values.skills import Skill
from loom_worker.skills.collect import collected
from loom_worker.skills.index import SKILLS, Skills
from loom_worker.skills.install import Installed, check_workspace_of, install
from loom_worker.skills.package import naming
from loom_worker.skills.storage import check_skill, check_workspace, locked


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
    shelf = Skills(root).of(workspace)
    for skill in shelf.skills:
        if skill.name == name:
            return skill
    where = f"{workspace}/{SKILLS}/{name}"
    why = [problem for problem in shelf.problems if problem.startswith((f"{where}/", f"{where}:"))]
    raise NotFound(why[0] if why else f"the workspace {one_line(workspace)} has no skill {name}")
