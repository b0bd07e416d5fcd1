"""`loom init`: a folder for agents, tools and patterns of one's own, which runs as it is."""

import os
import shutil
from pathlib import Path

import click

from loom_worker.core.errors import LoomError

TEMPLATE = Path(__file__).with_name("project")
DOTTED = {"env": (".env", ".env.example"), "gitignore": (".gitignore",)}
"""Files that stand under another name in the package, as dot files there would be those of Loom's own repository."""


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
