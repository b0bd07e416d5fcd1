"""The tool by which the model reads a skill: its instructions and its other files, in the session's workspace only."""

import difflib
import errno
from collections.abc import Sequence
from html import escape

from loom_worker.core.errors import ToolFailed
from loom_worker.core.text import one_line
from loom_worker.core.values.chat import ToolSpec, object_schema
from loom_worker.core.values.json import Json
from loom_worker.core.values.skills import Skill, SkillSet
from loom_worker.core.values.tools import Caller, Tool
from loom_worker.skills.folder import is_name
from loom_worker.skills.index import Skills
from loom_worker.skills.prompt import READ_TOOL, block, head, lines_of
from loom_worker.skills.spec import FILE

PAGE_BYTES = 12 * 1024
"""Size of a result, below that from which results become references."""
USUAL_LINES, MOST_LINES = 400, 2_000
MAX_FILE_BYTES = 1024 * 1024
"""Largest file that is read."""
_FAILURE_CHARS = 100


def read_skill_file_tool(skills: Skills, *, page_bytes: int = PAGE_BYTES) -> Tool:
    """The tool ``read_skill_file(skill, path, offset_lines, limit_lines)``; it runs nothing.

    Args:
        page_bytes: size of a result in UTF-8.
    """

    def run(arguments: Json, caller: Caller) -> str:
        skill_set = skills.of(caller.workspace)
        skill = _skill(skill_set, arguments["skill"])
        path = arguments.get("path", FILE).removeprefix("./")
        lines = lines_of(skill.body) if path == FILE else _lines(skills, skill, path)
        page = _SkillPage(lines, int(arguments.get("offset_lines", 0)), int(arguments.get("limit_lines", USUAL_LINES)))
        return page.text(skill, path, most_bytes=page_bytes)

    return Tool(_SPEC, run, is_bounded=True)


class _SkillPage:
    def __init__(self, lines: Sequence[str], offset: int, limit: int) -> None:
        if offset and offset >= len(lines):
            text = f"offset_lines {offset} is behind the end: there are {len(lines)} lines"
            raise ToolFailed(text, "INVALID_INPUT")
        self._lines, self._offset = lines, offset
        self._end = min(offset + limit, len(lines))

    def text(self, skill: Skill, path: str, *, most_bytes: int) -> str:
        above = head(skill) if path == FILE and not self._offset else ""
        room = most_bytes - len(above.encode()) - 512  # for the tags and the line that says how to go on
        end = self._offset
        while end < self._end and (end == self._offset or room >= len(self._lines[end].encode())):
            room -= len(self._lines[end].encode()) + 1
            end += 1
        name = "" if path == FILE else f' file="{escape(one_line(path))}"'
        attributes = f'{name} lines="{self._offset + 1}-{end}" of="{len(self._lines)}"'
        more = f"[Go on with offset_lines={end}.]" if end < len(self._lines) else ""
        return block(skill, attributes, above, "\n".join(self._lines[self._offset : end]), more)


def _skill(skill_set: SkillSet, name: str) -> Skill:
    found = next((skill for skill in skill_set.skills if skill.name == name.strip()), None)
    if found is None:
        known = [skill.name for skill in skill_set.skills if skill.trigger != "manual"]
        raise _failed(f"no skill {one_line(name, 30)!r}; {_near(name, known)}", "ERROR_NOT_FOUND")
    return found


def _lines(skills: Skills, skill: Skill, path: str) -> list[str]:
    if not all(map(is_name, path.split("/"))):
        what = f"{one_line(path, 30)!r} is no path within the skill"
        raise _failed(f"{what}; {_near(path, skill.files)}", "INVALID_INPUT")
    try:
        raw = skills.read_file(skill, path, most_bytes=MAX_FILE_BYTES)
        text = raw.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise _failed(f"no file {one_line(path, 30)!r}; {_near(path, skill.files)}", "ERROR_NOT_FOUND") from error
    except UnicodeDecodeError as error:
        raise _failed(f"{one_line(path, 40)} is not text: {len(raw)} bytes", "INVALID_INPUT") from error
    except OSError as error:
        code = "ERROR_NOT_FOUND" if error.errno in (errno.ENOTDIR, errno.EACCES) else "INVALID_INPUT"
        raise _failed(f"{one_line(path, 40)}: {error.strerror}", code) from error
    if "\0" in text:
        raise _failed(f"{one_line(path, 40)} is not text: {len(raw)} bytes", "INVALID_INPUT")
    return lines_of(text)


def _near(wanted: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(wanted[:100], known, n=2, cutoff=0.4) or known[:2]
    return f"there is {', '.join(near)}" if near else f"there is {FILE} alone" if "/" in wanted or "." in wanted else ""


def _failed(text: str, code: str) -> ToolFailed:
    return ToolFailed(one_line(text, _FAILURE_CHARS), code)


_SPEC = ToolSpec(
    name=READ_TOOL,
    description=(
        "Read a skill's instructions, or a file of it that they refer to, by lines. Without a path: the instructions. "
        "Nothing is run."
    ),
    input_schema=object_schema(
        "skill",
        skill={"type": "string", "maxLength": 200, "description": "the skill's name"},
        path={
            "type": "string",
            "maxLength": 1000,
            "default": FILE,
            "description": "within the skill's folder, such as references/guide.md",
        },
        offset_lines={"type": "integer", "minimum": 0, "maximum": 10_000_000, "default": 0},
        limit_lines={"type": "integer", "minimum": 1, "maximum": MOST_LINES, "default": USUAL_LINES},
    ),
)
