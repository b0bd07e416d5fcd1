"""The settings of a project: the `.env` of the folder that a command is run in, as `loom init` makes one."""

import re
from collections.abc import Mapping
from pathlib import Path

from loom_worker.core.env import GONE, KNOWN, NAMED_PREFIX, PROVIDER_PREFIXES
from loom_worker.core.errors import BadSettings

FILE = ".env"
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_QUOTED = re.compile(r"""(["'])(.*)\1\s*(?:#.*)?""")
_COMMENT = re.compile(r"(?:^|\s+)#.*")


def settings_of(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """What the file adds to the environment, whose own variables win.

    A file that names no LOOM_HOME is another program's. One beside an environment that names LOOM_HOME is not asked
    either: that is a home with settings of its own, as those of the children of `loom up` are.

    Raises:
        BadSettings: the file cannot be read, or a line is none, or names a setting that there is not.
    """
    if environ.get("LOOM_HOME", "").strip():
        return {}
    try:
        found = _read(folder / FILE)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeError) as error:
        raise BadSettings(f"{folder / FILE}: cannot be read ({error})") from error
    if "LOOM_HOME" not in found:
        return {}
    unknown = [name for name in found if name.startswith("LOOM_") and name not in GONE and not _is_setting(name)]
    if unknown:
        raise BadSettings("\n".join(f"{folder / FILE}: there is no setting {name}" for name in unknown))
    tools = {name.strip() for name in (environ.get("LOOM_TOOL_ENV") or found.get("LOOM_TOOL_ENV", "")).split(",")}
    return {
        name: value
        for name, value in found.items()
        if value and not environ.get(name, "").strip() and (_is_setting(name) or name in tools)
    }


def _is_setting(name: str) -> bool:
    return name in KNOWN or name.startswith((NAMED_PREFIX, *PROVIDER_PREFIXES))


def _read(path: Path) -> dict[str, str]:
    """Its variables; the faults of a file that names no LOOM_HOME are not Loom's to tell."""
    found, wrong = {}, []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if (parts := _LINE.fullmatch(text)) is None:
            wrong.append(f"{path}:{number}: expected NAME=value")
        else:
            found[parts[1]] = _value(parts[2])
    if wrong and "LOOM_HOME" in found:
        raise BadSettings("\n".join(wrong))
    return found


def _value(text: str) -> str:
    quoted = _QUOTED.fullmatch(text)
    return quoted[2] if quoted else _COMMENT.sub("", text).strip()
