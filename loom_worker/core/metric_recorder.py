"""What this process has counted and nobody has stored yet. Safe to use from many threads; about a microsecond each.

A family is a metric with its labels; a cell holds the figures of one family with one value for each label. Memory is
bounded also where nobody ever takes what was counted, as in a process that only tests: labels whose values are not
known beforehand have at most MOST_VALUES of them, and OTHER stands for the rest.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

MOST_VALUES = 100
"""Different values of one label of one family; Prometheus keeps a time series for each."""
MOST_CHARS = 128
"""Characters of a label's value."""
OTHER = "other"
"""Stands for values of a label beyond MOST_VALUES."""
NO_VALUE = "unknown"
"""Stands for an empty value, which Prometheus takes for a label that is not there."""

Cell = list[float]
"""For a counter, how much was counted; for a histogram, the sum, then how many fell into each bucket, +Inf last."""


@dataclass(frozen=True, slots=True)
class Label:
    """A label of a family."""

    name: str
    values: tuple[str, ...] = ()
    """All that there are; empty: they are met as they come, and MOST_VALUES bounds them."""


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """A metric; each is one object, and equal to no other."""

    name: str
    help: str
    """One sentence: what is counted, in which unit."""
    labels: tuple[Label, ...] = ()
    starts: tuple[tuple[str, ...], ...] = field(default=(), kw_only=True)
    """Values of labels that are shown as 0 before anything was counted, in addition to those that are known."""

    @property
    def size(self) -> int:
        """Figures in a cell."""
        return 1

    def zeros(self) -> Iterator[tuple[str, ...]]:
        """The values of labels that are shown as 0: without them the first event would be no increase."""
        yield from self.starts
        if all(label.values for label in self.labels):
            yield from product(*(label.values for label in self.labels))


@dataclass(frozen=True, slots=True, eq=False)
class Counter(Family):
    """A figure that only grows."""

    def count(self, *values: str, by: float = 1.0) -> None:
        """Add to the figure with these values of the labels, in their order."""
        if by:
            RECORDER.add(self, values, 0, by)


@dataclass(frozen=True, slots=True, eq=False)
class Histogram(Family):
    """How values are distributed."""

    bounds: tuple[float, ...] = field(default=(), kw_only=True)
    """Upper bounds of the buckets, in ascending order, without +Inf."""

    @property
    def size(self) -> int:
        return len(self.bounds) + 2

    def observe(self, value: float, *values: str) -> None:
        """Count a value, in the unit that the family's name ends with; a negative one is taken for 0.

        Args:
            values: of the labels, in their order.
        """
        seen = max(value, 0.0)  # clocks of two machines may disagree
        RECORDER.add(self, values, 1 + bisect_left(self.bounds, seen), 1.0, seen)


Key = tuple[Family, tuple[str, ...]]
"""A family, and values of its labels in their order."""
Cells = dict[Key, Cell]


class Recorder:
    """Adds up what is counted until somebody takes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cells: Cells = {}
        self._values: dict[tuple[Family, int], set[str]] = {}

    def add(self, family: Family, values: tuple[str, ...], place: int, by: float, to_sum: float = 0.0) -> None:
        """Add to one figure of a cell, and to its sum."""
        with self._lock:
            cell = self._cells.get((family, values))
            if cell is None:
                cell = self._cell(family, values)
            cell[place] += by
            cell[0] += to_sum

    def take(self) -> Cells:
        """What was counted since the last time; it is the caller's from now on."""
        with self._lock:
            cells, self._cells = self._cells, {}
            self._values = {}
        return cells

    def give_back(self, cells: Cells) -> None:
        """Take up again what could not be stored."""
        with self._lock:
            for (family, values), figures in cells.items():
                cell = self._cell(family, values)
                for place, figure in enumerate(figures):
                    cell[place] += figure

    def _cell(self, family: Family, values: tuple[str, ...]) -> Cell:
        if len(values) != len(family.labels):
            raise ValueError(f"{family.name} has the labels {[label.name for label in family.labels]}, not {values}")
        bounded = tuple(self._bounded(family, place, value) for place, value in enumerate(values))
        return self._cells.setdefault((family, bounded), [0.0] * family.size)

    def _bounded(self, family: Family, place: int, value: str) -> str:
        known = family.labels[place].values
        if known:
            return value if value in known else OTHER
        value = value[:MOST_CHARS] or NO_VALUE
        seen = self._values.setdefault((family, place), set())
        if value not in seen and len(seen) >= MOST_VALUES:
            return OTHER
        seen.add(value)
        return value


RECORDER = Recorder()
"""What this process counts. There is one: what is counted is counted for the process, whoever holds which object."""


def series(name: str, labels: Mapping[str, str]) -> str:
    """A name and labels as Prometheus writes them: ``loom_turns_total{status="failed",reason="dead"}``."""
    shown = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
    return f"{name}{{{shown}}}" if shown else name


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
