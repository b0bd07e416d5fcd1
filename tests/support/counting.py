"""What this process has counted and nobody has stored: `with counting() as counted: ...; counted(metrics.TURNS)`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from loom_worker.core.metric_recorder import RECORDER, Cell, Family, Histogram

Counted = Callable[[Family], dict[tuple[str, ...], float]]


@contextmanager
def counting() -> Iterator[Counted]:
    """From here on; what was counted before is dropped."""
    RECORDER.take()
    yield counted
    RECORDER.take()


def counted(family: Family) -> dict[tuple[str, ...], float]:
    """Values of the labels to how much was counted; of a histogram, to how many values were observed."""
    return {values: times(cell, family) for values, cell in cells_of(family).items()}


def cells_of(family: Family) -> dict[tuple[str, ...], Cell]:
    """Values of the labels to all figures."""
    cells = RECORDER.take()
    RECORDER.give_back(cells)
    return {values: cell for (other, values), cell in cells.items() if other is family}


def times(cell: Cell, family: Family) -> float:
    return sum(cell[1:]) if isinstance(family, Histogram) else cell[0]
