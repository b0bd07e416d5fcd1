"""The skills of each workspace as their files are now: checked with every question, read when they have changed."""

import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from loom_worker.core.errors import BadFile
from loom_worker.core.live_files import GRANULE_S, Marks, marks_of
from loom_worker.core.text import one_line
from loom_worker.core.values.skills import Skill, SkillSet
from loom_worker.core.yaml_files import MAX_BYTES
from loom_worker.skills.folder import listed, opened, read
from loom_worker.skills.spec import FILE, ONLY_IN, skill_from, without_itself

SKILLS = "skills"
"""The folder of a workspace that holds its skills."""
MAX_SKILLS = 200
"""Most folders of a workspace that are read, in order of their names."""
MAX_PROBLEM_CHARS = 500
_WORKSPACE = re.compile(r"[A-Za-z0-9._-]{1,64}")


def is_workspace(name: str) -> bool:
    """True for a name that a workspace may have, as in API keys; it is one part of a path and never leads up."""
    return _WORKSPACE.fullmatch(name) is not None and name not in (".", "..")


@dataclass(frozen=True, slots=True)
class _CachedSkill:
    source: tuple[str, ...]
    """Its parts below the root, links resolved."""
    watched: tuple[Path, ...]
    """SKILL.md and each folder."""
    marks: Marks
    found: Skill | str
    """The skill, or why there is none."""
    is_settled: bool

    def is_current(self, source: tuple[str, ...]) -> bool:
        return self.is_settled and self.source == source and marks_of(self.watched) == self.marks


class Skills:
    """All workspaces' skills; ``<root>/<workspace>/skills/<name>/SKILL.md``. Safe to be used by many threads."""

    def __init__(self, root: Path, *, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._root = root
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._kept: dict[str, dict[str, _CachedSkill]] = {}

    @property
    def root(self) -> Path:
        """The folder of the workspaces."""
        return self._root

    def of(self, workspace: str) -> SkillSet:
        """The skills of a workspace and what is wrong with others of its folders; empty where it has no folder."""
        if not is_workspace(workspace):
            return SkillSet(problems=(f"{one_line(workspace)}: no name of a workspace",))
        with self._lock:
            try:
                names = self._names(workspace)
            except OSError as error:
                self._kept.pop(workspace, None)
                is_absent = isinstance(error, FileNotFoundError)
                return SkillSet(problems=() if is_absent else (f"{workspace}/{SKILLS}: {error.strerror}",))
            return self._skill_set(workspace, names)

    def workspaces(self) -> tuple[str, ...]:
        """The workspaces that have a folder for skills, by name."""
        try:
            names = os.listdir(self._root)
        except OSError:
            return ()
        return tuple(sorted(name for name in names if is_workspace(name) and (self._root / name / SKILLS).is_dir()))

    def any(self) -> bool:
        """Whether any workspace has a skill; nothing is read, so one that cannot be used counts too."""
        for workspace in self.workspaces():
            with suppress(OSError):
                if any((self._root / workspace / SKILLS / name / FILE).is_file() for name in self._names(workspace)):
                    return True
        return False

    def read_file(self, skill: Skill, path: str, *, most_bytes: int) -> bytes:
        """Read a file of a skill by its path within the skill's folder.

        Raises:
            OSError: there is no such regular file, a part of the path is a link, or it is larger (EFBIG).
        """
        parts = (*skill.folder.relative_to(self._root).parts, *path.split("/"))
        return read(self._root, parts, most_bytes=most_bytes)

    def _names(self, workspace: str) -> dict[str, bool]:
        """Folders and links of a workspace, hidden ones left out, by name; True for links."""
        with opened(self._root, (workspace, SKILLS)) as fd, os.scandir(fd) as entries:
            found = {
                entry.name: entry.is_symlink()
                for entry in entries
                if not entry.name.startswith(".") and (entry.is_symlink() or entry.is_dir(follow_symlinks=False))
            }
        return dict(sorted(found.items()))

    def _skill_set(self, workspace: str, names: dict[str, bool]) -> SkillSet:
        known = self._kept.get(workspace, {})
        kept: dict[str, _CachedSkill] = {}
        found_by_folder: dict[str, Skill | str] = {}
        for name, is_link in list(names.items())[:MAX_SKILLS]:
            try:
                source = self._source(workspace, name) if is_link else (workspace, SKILLS, name)
                was = known.get(name)
                kept[name] = was if was and was.is_current(source) else self._read(workspace, name, source)
                found_by_folder[name] = kept[name].found
            except BadFile as error:
                found_by_folder[name] = str(error)
        skills: dict[str, Skill] = {}
        problems: list[str] = []
        for name, found in sorted(found_by_folder.items(), key=_own_name_first):
            if isinstance(found, Skill) and found.name in skills:
                found = f"{workspace}/{SKILLS}/{name}: there already is a skill {found.name}"
            if isinstance(found, Skill):
                skills[found.name] = found
            else:
                problems.append(one_line(found, MAX_PROBLEM_CHARS))
        if len(names) > MAX_SKILLS:
            problems.append(f"{workspace}/{SKILLS}: {len(names)} folders, only the first {MAX_SKILLS} are read")
        self._kept[workspace] = kept
        return SkillSet(tuple(skills[name] for name in sorted(skills)), tuple(problems))

    def _source(self, workspace: str, name: str) -> tuple[str, ...]:
        where = f"{workspace}/{SKILLS}/{name}"
        try:
            real = Path(os.path.realpath(self._root / workspace / SKILLS / name, strict=True))
            parts = real.relative_to(os.path.realpath(self._root)).parts
        except FileNotFoundError as error:
            raise BadFile(f"{where}: what it links to is gone") from error
        except OSError as error:
            raise BadFile(f"{where}: the link leads nowhere ({error.strerror})") from error
        except ValueError as error:
            raise BadFile(f"{where}: the link leads out of the workspaces' folder") from error
        if len(parts) != 3 or parts[1] != SKILLS or not is_workspace(parts[0]):
            raise BadFile(f"{where}: the link leads to no skill of a workspace")
        return parts

    def _read(self, workspace: str, name: str, source: tuple[str, ...]) -> _CachedSkill:
        started_ns, folder = self._now_ns(), self._root.joinpath(*source)
        folders: tuple[str, ...] = ("",)
        found: Skill | str
        try:
            listing = listed(self._root, source)
            folders = listing.folders
            found = self._skill(Path(workspace, SKILLS, name, FILE), workspace, source)
            found = replace(found, files=without_itself(listing.files))
        except OSError as error:
            found = f"{workspace}/{SKILLS}/{name}/{FILE}: {error.strerror}"
        except BadFile as error:
            found = str(error)
        watched = (folder / FILE, *(folder / below for below in folders))
        marks = marks_of(watched)
        newest_ns = max((mark.ctime_ns for mark in marks.values() if mark), default=0)
        return _CachedSkill(source, watched, marks, found, is_settled=newest_ns < started_ns - GRANULE_S * 1e9)

    def _skill(self, where: Path, workspace: str, source: tuple[str, ...]) -> Skill:
        raw = read(self._root, (*source, FILE), most_bytes=MAX_BYTES)
        skill = skill_from(raw, where=where, folder=self._root.joinpath(*source))
        if where.parent.name not in (source[-1], skill.name):
            raise BadFile(f"{where}: a link to {skill.name} must have its name")
        only = skill.metadata.get(ONLY_IN, "")
        if only not in ("", workspace):
            raise BadFile(f"{where}: {ONLY_IN} allows it in {only[:64]!r} alone")
        return replace(skill, is_linked=source != where.parent.parts)


def _own_name_first(folder: tuple[str, Skill | str]) -> tuple[bool, str]:
    """A folder that has its skill's name goes before another with the same skill."""
    name, found = folder
    return (isinstance(found, Skill) and found.name != name, name)
