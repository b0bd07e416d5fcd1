"""Reading a mapping that a person wrote: each value is checked when it is asked for, and an error names its place."""

import re
from collections.abc import Iterator
from math import isfinite
from typing import Any, TypeVar

from loom_worker.core.errors import BadFile
from loom_worker.core.text import closest, did_you_mean, one_line
from loom_worker.core.values.json import Json

Place = tuple[str | int, ...]
"""Keys and positions that lead to a value, as the file spells them."""
MISSING = "is missing"
MOST_ENTRIES = 1_000
"""Longest list or mapping: tools, judges, stages, members, schedules."""
MOST_PLACE_CHARS = 300
MAX_NAME_CHARS = 200
"""Longest key, and longest value of one of NAMES."""
NAMES = frozenset({"name", "id", "model", "agent", "agent_id"})
MOST_OF_A_FIGURE = 10**12
"""No limit, price or time comes near it, and sums of larger figures would not be exact."""


NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
"""What agents, workflows and schedules may be called."""
ChoiceT = TypeVar("ChoiceT", bound=str)


class InvalidField(BadFile):
    """A value that cannot be used; made of its place and of what is wrong with it."""

    def __str__(self) -> str:
        colon = "" if self.reason == MISSING else ":"
        return f"{self.path}{colon} {self.reason}" if self.place else self.reason

    @property
    def place(self) -> Place:
        """Where it stands, or would stand; empty for the document as a whole."""
        return tuple(self.args[0])

    @property
    def path(self) -> str:
        """The place as one text: ``spec.tools[2]``."""
        return spelled(self.place)

    @property
    def reason(self) -> str:
        """What is needed, and what stands there instead."""
        return str(self.args[1])


def spelled(place: Place) -> str:
    """A place as one text, cut if it is long: ``parameters[0].name``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return one_line(text.removeprefix("."), MOST_PLACE_CHARS)


def kind(value: Any) -> str:
    """What a value is, in a word."""
    return "nothing" if value is None else type(value).__name__


def mapping(value: Any, place: Place, what: str = "") -> Json:
    """The value, which must be a mapping.

    Args:
        what: names the whole, where the value has no place in it.

    Raises:
        InvalidField: it is something else.
    """
    if not isinstance(value, dict):
        reason = f"a mapping is needed, not {kind(value)}"
        raise InvalidField(place, reason if place or not what else f"{what}: {reason}")
    return value


class Fields:
    """A mapping of a file; a reader returns None for a missing or null key, and raises InvalidField for a wrong type.

    It knows which of its keys were asked for, so the others can be reported.
    """

    def __init__(self, value: Any, place: Place = (), *, what: str = "") -> None:
        """Args: what: names the document in the error of one that is no mapping."""
        self.place = place
        self._value: Json = {} if value is None else mapping(value, place, what)
        for key in self._value:
            if isinstance(key, str) and len(key) > MAX_NAME_CHARS:
                raise invalid(place, f"a name of at most {MAX_NAME_CHARS} characters", key)
        self._asked: set[str] = set()
        self._children: list[Fields] = []
        self._mappings: dict[str, Fields] = {}
        self._unused: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self._value

    def get(self, key: str) -> Any:
        self._asked.add(key)
        value = self._value.get(key)
        if isinstance(value, list | dict) and len(value) > MOST_ENTRIES:
            raise self.invalid(key, f"at most {MOST_ENTRIES} entries", len(value))
        return value

    def place_of(self, key: str) -> Place:
        return (*self.place, key)

    def under(self, key: str) -> "Fields":
        """The mapping of a key, the same at every call; an empty one if there is none."""
        if key not in self._mappings:
            self._mappings[key] = self._child(self.get(key), self.place_of(key))
        return self._mappings[key]

    def each(self, key: str, *, short: str = "") -> tuple["Fields", ...]:
        """The mappings in a list; where ``short`` is given, a text stands for a mapping with that key alone."""
        value = self.get(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.invalid(key, "a list of mappings", value)
        entries = ({short: each} if short and isinstance(each, str) else each for each in value)
        return tuple(self._child(entry, (*self.place_of(key), n)) for n, entry in enumerate(entries))

    def _child(self, value: Any, place: Place) -> "Fields":
        child = Fields(value, place)
        self._children.append(child)
        return child

    def names(self) -> tuple[str, ...]:
        """All keys, for a mapping whose keys are names that the user chose."""
        self._asked.update(self._value)
        return tuple(str(key) for key in self._value)

    def text(self, key: str) -> str | None:
        """A text; numbers are taken as they were written (``version: 2``)."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise self.invalid(key, "a text", value)
        if key in NAMES and isinstance(value, str) and len(value) > MAX_NAME_CHARS:
            raise self.invalid(key, f"a name of at most {MAX_NAME_CHARS} characters", value)
        try:
            return str(value)
        except ValueError as error:  # Python writes no number of so many digits
            raise self.invalid(key, "a text", "a number of thousands of digits") from error

    def required(self, key: str) -> str:
        """A text that must be there, without space around it."""
        if (found := self.optional(key)) is None:
            raise InvalidField(self.place_of(key), MISSING)
        return found

    def name(self, key: str = "name", *, most: int = 64) -> str:
        """A name by which others find what the file defines."""
        found = self.text(key) or ""
        if not re.fullmatch(NAME, found) or len(found) > most:
            raise self.invalid(key, f"a name of letters, digits, '.', '_' and '-', at most {most},", found)
        return found

    def optional(self, key: str) -> str | None:
        """A text without space around it; None for one of nothing else."""
        return (self.text(key) or "").strip() or None

    def choice(self, key: str, allowed: tuple[ChoiceT, ...]) -> ChoiceT | None:
        value = self.text(key)
        found = next((each for each in allowed if each == value), None)
        if value is not None and found is None:
            raise self.invalid(key, "one of " + ", ".join(allowed), value, did_you_mean(value, allowed))
        return found

    def texts(self, key: str) -> tuple[str, ...] | None:
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.invalid(key, "a list of texts", value)
        for n, entry in enumerate(value):
            if not isinstance(entry, str):
                raise invalid((*self.place_of(key), n), "a text", entry)
        return tuple(value)

    def whole(self, key: str, least: int = 1, most: int | None = None) -> int | None:
        """A whole number from ``least``, up to ``most`` if that is given."""
        value = self._figure(key)
        if value is None:
            return None
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or value < least or (most is not None and value > most):
            raise self.invalid(key, f"a whole number from {least}" + ("" if most is None else f" to {most}"), value)
        return int(value)

    def number(self, key: str, *, most: float = float("inf")) -> float | None:
        """A number above 0 and up to ``most``; 0 itself only where there is an upper end."""
        value = self._figure(key)
        if value is None:
            return None
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and _is_finite(value)
        if not is_number or value < 0 or value > most or (value == 0 and most == float("inf")):
            needed = "a number above 0" if most == float("inf") else f"a number from 0 to {most:g}"
            raise self.invalid(key, needed, value)
        return float(value)

    def _figure(self, key: str) -> Any:
        value = self.get(key)
        if isinstance(value, (int, float)) and MOST_OF_A_FIGURE < abs(value) < float("inf"):
            raise self.invalid(key, f"a number up to {MOST_OF_A_FIGURE:,}", value)
        return value

    def percent(self, key: str) -> float | None:
        """A number from 1 to 100, as a share (0-1)."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= 100:
            raise self.invalid(key, "a percentage from 1 to 100", value)
        return value / 100

    def flag(self, key: str) -> bool | None:
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.invalid(key, "true or false", value)
        return value

    def invalid(self, key: str | None, needed: str, value: Any, advice: str = "") -> InvalidField:
        """The error to raise for an unusable value; None for the mapping as a whole."""
        return invalid(self.place_of(key) if key else self.place, needed, value, advice)

    def keep(self, *keys: str) -> None:
        """Note keys that may stand here and have no effect yet; their values stay in the raw file."""
        self._asked.update(keys)
        self._unused += [spelled(self.place_of(str(key))) for key in keys if self._value.get(key) is not None]

    def keep_rest(self) -> None:
        """Note every key that was not asked for, as ``keep`` does: all of them belong to a known mapping."""
        self.keep(*(key for key in self._value if key not in self._asked))

    def unused(self) -> tuple[str, ...]:
        """The kept keys that are there, as dotted paths, those of all mappings below included."""
        return (*self._unused, *(path for child in self._children for path in child.unused()))

    def unknown(self) -> Iterator[tuple[str, str]]:
        """The keys that were not asked for, as dotted paths, each with the known key that it resembles, or nothing.

        Those of all mappings below are included.
        """
        absent = [key for key in self._asked if key not in self._value]
        for key in self._value:
            if key not in self._asked:
                yield spelled(self.place_of(str(key))), closest(str(key), absent, least=0.7)
        for child in self._children:
            yield from child.unknown()


def present(**values: Any) -> Json:
    """The values that a file gives; a dataclass that is made of them has its defaults for the others."""
    return {name: value for name, value in values.items() if value is not None}


def _is_finite(number: float) -> bool:
    try:
        return isfinite(number)
    except OverflowError:  # a whole number of hundreds of digits
        return False


def invalid(place: Place, needed: str, value: Any, advice: str = "") -> InvalidField:
    """The error to raise for an unusable value."""
    try:
        shown = str(value)[:40]
    except ValueError:  # as in ``Fields.text``
        shown = "a number of thousands of digits"
    return InvalidField(place, f"{needed} is needed, not {shown!r}" + (f"; {advice}" if advice else ""))
