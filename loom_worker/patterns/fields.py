"""Reading single values of a pattern file; what does not fit is told with the place where it stands."""

import base64
import math
from collections.abc import Mapping
from typing import Any

from loom_worker.core.errors import BadFile
from loom_worker.core.values.json import Json

Place = tuple[str | int, ...]
"""Keys and positions that lead to a value, as the file spells them."""

_YES = ("true", "yes", "on", "1", "required")
_NO = ("false", "no", "off", "0", "optional")
_SCALARS = (str, int, float, bool)
_PRIORITIES = {"low": 25, "normal": 50, "medium": 50, "high": 75, "critical": 100}


class Misfit(BadFile):
    """A value that cannot be used; made of its place and the reason."""

    def __str__(self) -> str:
        colon = "" if self.args[1] == MISSING else ":"
        return f"{spelled(self.place)}{colon} {self.args[1]}" if self.place else str(self.args[1])

    @property
    def place(self) -> Place:
        """Where it stands, or would stand, within its pattern."""
        return tuple(self.args[0])


MISSING = "is missing"


def spelled(place: Place) -> str:
    """A place as one text: ``parameters[0].name``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


def kind(value: Any) -> str:
    """What a value is, in a word."""
    return "nothing" if value is None else type(value).__name__


def mapping(value: Any, place: Place, what: str = "") -> Json:
    """The value, which must be a mapping; ``what`` names it where it has no place of its own."""
    if not isinstance(value, dict):
        reason = f"a mapping is needed, not {kind(value)}"
        raise Misfit(place, reason if place or not what else f"{what}: {reason}")
    return value


def text(value: Any, place: Place) -> str:
    """A text without space around it; a number or truth value is its text, nothing is the empty one."""
    if value is None:
        return ""
    if not isinstance(value, _SCALARS):
        raise Misfit(place, f"a text is needed, not {kind(value)}")
    return str(value).strip()


def texts(value: Any, place: Place, *, separator: str = "\n") -> tuple[str, ...]:
    """A list of texts; a single text is one of them for each line or, with another separator, for each part."""
    if isinstance(value, str):
        value = [part.strip().removeprefix("- ") for part in value.split(separator)]
    entries = value if isinstance(value, list) else [] if value is None else [value]
    read = (_entry(entry, (*place, n)) for n, entry in enumerate(entries))
    return tuple(entry for entry in read if entry)


def _entry(value: Any, place: Place) -> str:
    """An entry of a list; ``- Optimize: the slow part`` is a mapping to YAML and a sentence to its author."""
    if isinstance(value, dict) and len(value) == 1:
        [(key, told)] = value.items()
        return f"{text(key, place)}: {text(told, place)}"
    return text(value, place)


def filling(value: Any, place: Place) -> str:
    """A default or example as it stands in a template: true and false in lower case, lists with commas."""
    if isinstance(value, list):
        inside = [text(entry, place) if isinstance(entry, list) else filling(entry, place) for entry in value]
        return ", ".join(inside)
    if isinstance(value, bool):
        return "true" if value else "false"
    return text(value, place)


def prose(value: Any) -> str:
    """Any value as text to read: lists line by line, mappings as ``key: value``; what is inside is moved in."""
    if isinstance(value, list):
        return "\n".join(prose(entry) for entry in value)
    if isinstance(value, dict):
        return "\n".join(_line(str(key), value=prose(inside)) for key, inside in value.items())
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(plain(value)).strip()


def _line(key: str, *, value: str) -> str:
    return f"{key}:\n  " + value.replace("\n", "\n  ") if "\n" in value else f"{key}: {value}".rstrip()


def truth(value: Any, place: Place) -> bool:
    """True or false, or a word for one of them; nothing is false."""
    word = str(value).strip().lower() if isinstance(value, _SCALARS) else ""
    if value is None or (isinstance(value, _SCALARS) and word in ("", *_NO)):
        return False
    if word not in _YES:
        raise Misfit(place, f"true or false is needed, not {value if word else kind(value)}")
    return True


def priority(value: Any, place: Place) -> int:
    """A whole number from 0 to 100, or low, medium, high, critical; nothing is 50."""
    if value is None:
        return 50
    if isinstance(value, str):
        word = value.strip().lower()
        value = _PRIORITIES.get(word, int(word) if word.isascii() and word.isdigit() else value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 100:
        shown = value if isinstance(value, _SCALARS) else kind(value)
        raise Misfit(place, f"a whole number from 0 to 100 is needed, not {shown}")
    return value


def plain(value: Any) -> Any:
    """A value of YAML as one of JSON: keys are texts, bytes are base64, sets are lists, endless numbers are words."""
    if isinstance(value, Mapping):
        return {str(key): plain(inside) for key, inside in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inside) for inside in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(inside) for inside in value), key=str)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
