"""What cannot work in an installation, or works otherwise than its files say: one value, reported alike everywhere."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from loom_worker.core.values.json import Json


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of the installation, with the place where it is mended."""

    text: str
    """What is wrong, without its place."""
    fix: str = ""
    """What to do about it; empty where ``text`` says as much."""
    file: str = ""
    line: int = 0
    """Line of ``file``, from 1; 0: the file as a whole, or no file."""
    agent: str = ""
    field: str = ""
    """Dotted path of the key (``spec.tools[2]``), or the name of an environment variable."""
    is_warning: bool = False
    """True: everything works, only not as its author may think."""

    @property
    def level(self) -> str:
        """The word for it in every output: ``warning`` or ``problem``; what is as it should be is ``ok``."""
        return "warning" if self.is_warning else "problem"

    def __str__(self) -> str:
        """One line: ``file:line: agent a: field: text; fix``."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        parts = (place, f"agent {self.agent}" if self.agent else "", self.field, self.text)
        said = ": ".join(part for part in parts if part)
        return f"{said}; {self.fix}" if self.fix else said

    def as_json(self) -> Json:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Json) -> "Problem":
        """Read what as_json wrote.

        Raises:
            TypeError: something else wrote it.
        """
        return cls(**data)


def line_near(lines: Mapping[str, int], path: str) -> int:
    """The line of a key or list entry or, if it is not there, of what would be around it; 0 if nothing is.

    Args:
        lines: by dotted path, ``spec.tools[2]``.
    """
    while path and path not in lines:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return lines.get(path, 0)


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Each problem once: what cannot work before warnings, settings before files, files by name and line."""
    return tuple(sorted(dict.fromkeys(problems), key=lambda each: (each.is_warning, each.file, each.line)))
