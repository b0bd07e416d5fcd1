"""Installing a skill: from a folder, an archive or a URL, checked as a whole before anything is put in place."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from loom_worker.core.errors import BadFile, Conflict, NotFound, Rejected
from loom_worker.core.text import one_line
from loom_worker.core.values.skills import Skill
from loom_worker.skills.collect import MAX_ARCHIVE_BYTES, collected, unpack
from loom_worker.skills.fetch import fetch
from loom_worker.skills.folder import read
from loom_worker.skills.index import SKILLS
from loom_worker.skills.package import Package, Unsafe, named, naming
from loom_worker.skills.spec import FILE, ONLY_IN, skill_from, without_itself
from loom_worker.skills.storage import check_workspace, locked

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
            return unpack(fetch(source, allow_private=allow_private))
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
