"""`loom init`: a folder for agents, tools and patterns of one's own; and its `.env`, which all commands read."""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import click

from loom_worker.core.env import GONE, KNOWN, NAMED_PREFIX, PROVIDER_PREFIXES
from loom_worker.core.errors import BadSettings, LoomError

TEMPLATE = Path(__file__).with_name("project")
DOTTED = {"env": (".env", ".env.example"), "gitignore": (".gitignore",)}
"""Files that stand under another name in the package, as dot files there would be those of Loom's own repository."""
FILE = ".env"
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_QUOTED = re.compile(r"""(["'])(.*)\1\s*(?:#.*)?""")
_COMMENT = re.compile(r"(?:^|\s+)#.*")


@click.command()
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False))
def init(folder: Path) -> None:
    """Make a folder with an agent, a tool, a pattern and a compose file, all of which run as they are.

    Nothing is overwritten: if one of its files is there already, none is written.
    """
    made = make(folder)
    for name in made:
        click.echo(f"made {folder / name}")
    if Path.cwd() != folder.resolve():
        click.echo(f"\nNext: cd {folder}")
    click.echo('Then `loom up`, and in another terminal there: loom ask "Which month brought in most?"')
    click.echo("README.md says what is what.")


def make(folder: Path) -> list[Path]:
    """Write the files of a project; their paths within the folder.

    Raises:
        LoomError: one of them is there already, or one cannot be written; the text says which.
    """
    wanted = {name: source for source in sources() for name in _names(source.relative_to(TEMPLATE))}
    there = [name for name in wanted if os.path.lexists(folder / name)]
    if there:
        listed = ", ".join(map(str, there))
        raise LoomError(f"{folder}: {listed} {'is' if len(there) == 1 else 'are'} there already; nothing was written")
    try:
        for name, source in wanted.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / name)
        (folder / ".env").chmod(0o600)  # keys may come to stand there
    except OSError as error:
        raise LoomError(f"{error.filename}: cannot be written ({error.strerror})") from error
    return list(wanted)


def sources() -> list[Path]:
    """The files that ship with Loom, in the order of their names."""
    return sorted(path for path in TEMPLATE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _names(source: Path) -> tuple[Path, ...]:
    return tuple(source.with_name(name) for name in DOTTED.get(source.name, (source.name,)))


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
