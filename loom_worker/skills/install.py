"""Installing a skill: from a folder, an archive or a URL, checked as a whole before anything is put in place."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from loom_worker.core.errors import BadFile, Conflict, NotFound, Rejected
from loom_worker.core.text import one_line
from loom_worker.core.values.skills import Skill
from loom_worker.skills.archive import MAX_ARCHIVE_BYTES, unpack
from loom_worker.skills.collect import gathered
from loom_worker.skills.folder import read
from loom_worker.skills.index import SKILLS
from loom_worker.skills.package import Bundle, Unsafe, named, told_of
from loom_worker.skills.spec import FILE, ONLY_IN, skill_from, without_itself
from loom_worker.skills.storage import check_workspace, held

_URL = re.compile(r"https?://", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Installed:
    """A skill as it lies in a workspace now."""

    skill: Skill
    bundle: Bundle
    has_replaced: bool


def bundle_from(source: str, *, fetch: Callable[[str], bytes]) -> Bundle:
    """Read all of a source: a folder, an archive or SKILL.md, or what ``fetch`` returns for an http(s) URL.

    Raises:
        NotFound: there is no such file or folder.
        Rejected, Transient: it cannot be had, or is refused; with the reason.
    """
    with told_of(source):
        if _URL.match(source):
            return unpack(fetch(source))
        path = Path(source)
        if path.is_dir():
            return gathered(path)
        if not path.exists():
            raise NotFound(f"{named(source)}: no such file or folder")
        try:
            # The owner may name a link, so its target is opened; a pipe or device is not.
            real = path.resolve()
            return unpack(read(real.parent, (real.name,), most_bytes=MAX_ARCHIVE_BYTES))
        except OSError as error:
            raise Unsafe(str(error.strerror)) from error


def checked(bundle: Bundle, workspace: str, *, name: str | None = None) -> Skill:
    """The skill that the files are, by the format's rules.

    Args:
        name: what it must be called; its folder may be called otherwise, as in archives of repositories.

    Raises:
        BadFile: ``SKILL.md:line: reason``.
        Rejected: it works in another workspace alone, or has another name.
    """
    where = Path(bundle.folder, FILE)
    skill = skill_from(bundle.files[FILE], where=where, folder=None)
    if name is not None and skill.name != name:
        raise BadFile(f"{where}: the skill is called {skill.name}, not {one_line(name)}")
    check_workspace_of(skill, workspace)
    return replace(skill, files=without_itself(tuple(sorted(bundle.files))))


def check_workspace_of(skill: Skill, workspace: str) -> None:
    """Raise Rejected if the skill says that it works in another workspace alone."""
    only = skill.metadata.get(ONLY_IN, "")
    if only not in ("", workspace):
        raise Rejected(f"{skill.name}: {ONLY_IN} allows it in {only[:64]!r} alone")


def install(
    bundle: Bundle, root: Path, workspace: str, *, name: str | None = None, may_replace: bool = False
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
    skill = checked(bundle, workspace, name=name)
    with held(root, workspace, is_made=True) as place:
        try:
            has_replaced = place.put(skill.name, bundle.files, may_replace=may_replace)
        except Conflict as error:
            raise Conflict(f"{workspace}/{SKILLS}: {error}; --force replaces what is there") from error
    return Installed(replace(skill, folder=root / workspace / SKILLS / skill.name), bundle, has_replaced)


def check_sha256(bundle: Bundle, wanted: str) -> None:
    """Raise Rejected unless the source has this checksum (hexadecimal)."""
    if bundle.sha256 != wanted.strip().lower():
        raise Rejected(f"the checksum is {bundle.sha256}, not {wanted.strip()[:64]}")
