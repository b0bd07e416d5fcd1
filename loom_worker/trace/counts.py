"""Counts what became of spans, in this process."""

import threading
from collections import Counter
from collections.abc import Mapping


class SpanTotals:
    """Spans by what became of them; safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: Counter[str] = Counter()

    def add(self, outcome: str, n: int) -> None:
        """Count ``exported`` spans, or lost ones by the reason."""
        with self._lock:
            self._totals[outcome] += n

    def totals(self) -> Mapping[str, int]:
        """Spans by outcome since the process began."""
        with self._lock:
            return dict(self._totals)
