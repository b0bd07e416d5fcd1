"""Reading a mapping key by key: types are checked, and what nobody asked for is known at the end."""

from collections.abc import Iterator
from difflib import get_close_matches
from math import isfinite
from typing import Any

from loom_worker.core.errors import BadFile
from loom_worker.core.values.json import Json


class WrongField(BadFile):
    """A value that does not do; made of what is wrong with it and of the dotted path of its key."""

    def __str__(self) -> str:
        return f"{self.field or 'an agent'}: {self.reason}"

    @property
    def reason(self) -> str:
        """What is needed, and what stands there instead."""
        return str(self.args[0])

    @property
    def field(self) -> str:
        """Dotted path of the key or list entry; empty for the document as a whole."""
        return str(self.args[1])


class Fields:
    """A mapping of a file; every reader gives None for a missing or null key and raises WrongField for a wrong type."""

    def __init__(self, value: Any, path: str = "") -> None:
        self._path = path
        self._value: Json = {} if value is None else value
        self._seen: set[str] = set()
        self._children: list[Fields] = []
        self._idle: list[str] = []
        if not isinstance(self._value, dict):
            raise WrongField(f"a mapping is needed, not {_kind(value)}", path)

    def __contains__(self, key: str) -> bool:
        return key in self._value

    def get(self, key: str) -> Any:
        """The value as it is."""
        self._seen.add(key)
        return self._value.get(key)

    def at(self, key: str) -> str:
        """The dotted path of a key, for a message."""
        return f"{self._path}.{key}" if self._path else key

    def under(self, key: str) -> "Fields":
        """The mapping below a key; empty if there is none."""
        child = Fields(self.get(key), self.at(key))
        self._children.append(child)
        return child

    def names(self) -> tuple[str, ...]:
        """All keys, for a mapping whose keys are names that the user gave."""
        self._seen.update(self._value)
        return tuple(str(key) for key in self._value)

    def each(self, key: str) -> tuple["Fields", ...]:
        """The mappings in a list."""
        value = self.get(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.wrong(key, "a list of mappings", value)
        children = tuple(Fields(entry, f"{self.at(key)}[{place}]") for place, entry in enumerate(value))
        self._children += children
        return children

    def text(self, key: str) -> str | None:
        """A text; numbers are taken as they were written (``version: 2``)."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise self.wrong(key, "a text", value)
        try:
            return str(value)
        except ValueError as error:  # Python writes no number of so many digits
            raise self.wrong(key, "a text", "a number of thousands of digits") from error

    def choice(self, key: str, allowed: tuple[str, ...]) -> str | None:
        """One of the allowed texts."""
        value = self.text(key)
        if value is not None and value not in allowed:
            raise self.wrong(key, "one of " + ", ".join(allowed), value)
        return value

    def texts(self, key: str) -> tuple[str, ...] | None:
        """A list of texts."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.wrong(key, "a list of texts", value)
        for place, entry in enumerate(value):
            if not isinstance(entry, str):
                raise self.wrong(f"{key}[{place}]", "a text", entry)
        return tuple(value)

    def whole(self, key: str, least: int = 1) -> int | None:
        """A whole number, ``least`` or more."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.wrong(key, f"a whole number from {least}", value)
        return value

    def number(self, key: str, *, most: float = float("inf")) -> float | None:
        """A number above 0 and up to ``most``; 0 itself only where there is an upper end."""
        value = self.get(key)
        if value is None:
            return None
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
        if not is_number or value < 0 or value > most or (value == 0 and most == float("inf")):
            raise self.wrong(key, "a number above 0" if most == float("inf") else f"a number from 0 to {most:g}", value)
        return float(value)

    def percent(self, key: str) -> float | None:
        """A number from 1 to 100, as a share (0-1)."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= 100:
            raise self.wrong(key, "a percentage from 1 to 100", value)
        return value / 100

    def flag(self, key: str) -> bool | None:
        """True or false."""
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, "true or false", value)
        return value

    def keep(self, *keys: str) -> None:
        """Take note of keys that may stand here and have no effect yet; their values stay in the raw file."""
        self._seen.update(keys)
        self._idle += [self.at(str(key)) for key in keys if self._value.get(key) is not None]

    def keep_rest(self) -> None:
        """Take note of every key that nobody asked for, as ``keep`` does: all of them belong to a known mapping."""
        self.keep(*(key for key in self._value if key not in self._seen))

    def idle(self) -> tuple[str, ...]:
        """The kept keys that are there, as dotted paths, those of all mappings below included."""
        return (*self._idle, *(path for child in self._children for path in child.idle()))

    def unknown(self) -> tuple[str, ...]:
        """The keys nobody asked for, as dotted paths, those of all mappings below included."""
        own = tuple(self.at(str(key)) for key in self._value if key not in self._seen)
        return (*own, *(path for child in self._children for path in child.unknown()))

    def strays(self) -> Iterator[tuple[str, str]]:
        """The keys nobody asked for, as ``unknown`` has them, each with the known key that it resembles, or nothing."""
        absent = [key for key in self._seen if key not in self._value]
        for key in self._value:
            if key not in self._seen:
                yield self.at(str(key)), next(iter(get_close_matches(str(key), absent, n=1, cutoff=0.7)), "")
        for child in self._children:
            yield from child.strays()

    def wrong(self, key: str | None, needed: str, value: Any) -> WrongField:
        """The error to raise for a value that does not do; None for the mapping as a whole."""
        try:
            shown = str(value)[:40]
        except ValueError:  # as in ``text``
            shown = "a number of thousands of digits"
        return WrongField(f"{needed} is needed, not {shown!r}", self.at(key) if key else self._path)


def _kind(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
