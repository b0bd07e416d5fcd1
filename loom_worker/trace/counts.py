"""Counts what became of spans, among the metrics of this process."""

from loom_worker.core import metrics


class SpanTotals:
    """Spans by what became of them; safe to use from many threads."""

    def add(self, outcome: str, n: int) -> None:
        """Count ``exported`` spans, or lost ones by the reason."""
        if outcome == "exported":
            metrics.SPANS_EXPORTED.count(by=n)
        else:
            metrics.SPANS_DROPPED.count(outcome, by=n)
