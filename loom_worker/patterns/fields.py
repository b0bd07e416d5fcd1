"""Values of a pattern file as authors and other systems write them: one text for a list, a word for a truth value."""

import base64
import math
from collections.abc import Mapping
from typing import Any

from loom_worker.core.fields import Fields, InvalidField, Place, kind, mapping
from loom_worker.core.values.json import Json
from loom_worker.patterns.aliases import Keys, sort

_YES = ("true", "yes", "on", "1", "required")
_NO = ("false", "no", "off", "0", "optional")
_SCALARS = (str, int, float, bool)
_PRIORITIES = {"low": 25, "normal": 50, "medium": 50, "high": 75, "critical": 100}


class PatternFields(Fields):
    """A mapping of a pattern file, read by the keys of a table and their other names."""

    def __init__(self, value: Any, keys: Keys, place: Place = ()) -> None:
        super().__init__(value, place)
        self.sorted = sort(self._value, keys)
        self._value = self.sorted.values

    def place_of(self, key: str) -> Place:
        """Where the value of a key stands, as the file spells the key."""
        return (*self.place, self.sorted.written.get(key, key))

    def text(self, key: str) -> str:
        """A text without space around it; a number or truth value is its text, nothing is the empty one."""
        return text(self.get(key), self.place_of(key))

    def texts(self, key: str, *, separator: str = "\n") -> tuple[str, ...]:
        """A list of texts; a single text is one of them for each line or, with another separator, for each part."""
        value, place = self.get(key), self.place_of(key)
        if isinstance(value, str):
            value = [part.strip().removeprefix("- ") for part in value.split(separator)]
        entries = value if isinstance(value, list) else [] if value is None else [value]
        read = (_entry(entry, (*place, n)) for n, entry in enumerate(entries))
        return tuple(entry for entry in read if entry)

    def flag(self, key: str) -> bool:
        """True or false, or a word for one of them; nothing is false."""
        value = self.get(key)
        word = str(value).strip().lower() if isinstance(value, _SCALARS) else ""
        if value is None or (isinstance(value, _SCALARS) and word in ("", *_NO)):
            return False
        if word not in _YES:
            raise InvalidField(self.place_of(key), f"true or false is needed, not {value if word else kind(value)}")
        return True

    def priority(self, key: str) -> int:
        """A whole number from 0 to 100, or low, medium, high, critical; nothing is 50."""
        value = self.get(key)
        if value is None:
            return 50
        if isinstance(value, str):
            word = value.strip().lower()
            value = _PRIORITIES.get(word, int(word) if word.isascii() and word.isdigit() else value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 100:
            shown = value if isinstance(value, _SCALARS) else kind(value)
            raise InvalidField(self.place_of(key), f"a whole number from 0 to 100 is needed, not {shown}")
        return value

    def mapping(self, key: str) -> Json:
        """A mapping; nothing is the empty one."""
        return mapping(self._value.get(key, {}), self.place_of(key))

    def prose(self, key: str) -> str:
        """Any value as text to read."""
        return prose(self.get(key))

    def filling(self, key: str) -> str:
        """A default or example as it stands in a template: true and false in lower case, lists with commas."""
        return _filling(self.get(key), self.place_of(key))


def text(value: Any, place: Place) -> str:
    """A text without space around it; a number or truth value is its text, nothing is the empty one."""
    if value is None:
        return ""
    if not isinstance(value, _SCALARS):
        raise InvalidField(place, f"a text is needed, not {kind(value)}")
    return str(value).strip()


def _entry(value: Any, place: Place) -> str:
    """An entry of a list; ``- Optimize: the slow part`` is a mapping to YAML and a sentence to its author."""
    if isinstance(value, dict) and len(value) == 1:
        [(key, rest)] = value.items()
        return f"{text(key, place)}: {text(rest, place)}"
    return text(value, place)


def _filling(value: Any, place: Place) -> str:
    if isinstance(value, list):
        inside = [text(entry, place) if isinstance(entry, list) else _filling(entry, place) for entry in value]
        return ", ".join(inside)
    if isinstance(value, bool):
        return "true" if value else "false"
    return text(value, place)


def prose(value: Any) -> str:
    """Any value as text to read: lists line by line, mappings as ``key: value``, what is inside them indented."""
    if isinstance(value, list):
        return "\n".join(prose(entry) for entry in value)
    if isinstance(value, dict):
        lines = []
        for key, inside in value.items():
            shown = prose(inside)
            lines.append(f"{key}:\n  " + shown.replace("\n", "\n  ") if "\n" in shown else f"{key}: {shown}".rstrip())
        return "\n".join(lines)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(plain(value)).strip()


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
