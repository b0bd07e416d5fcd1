"""Figures for Prometheus, over all workspaces."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from flask import Response

from loom_worker.values.json import Json
from web.answers import Route

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from loom_worker.wiring import Front

STATUSES = ("queued", "running", "waiting")


class Figure(NamedTuple):
    """One figure without labels."""

    name: str
    """In the exposition."""
    key: str
    """In ``Front.metrics``."""
    told: str
    """What it counts; the HELP line."""


GAUGES = (
    Figure("loom_lanes", "lanes", "Sessions with unfinished turns."),
    Figure("loom_workers", "workers", "Worker processes that are alive."),
    Figure("loom_dead_turns", "dead", "Turns that killed each worker that ran them."),
    Figure("loom_oldest_queued_age_seconds", "oldest_queued_age_s", "Age of the oldest queued turn; 0: none."),
    Figure("loom_memory_due_sessions", "memory_due", "Sessions whose memory waits to be compressed."),
    Figure(
        "loom_memory_oldest_due_age_seconds", "memory_oldest_due_age_s", "How long the first of them waits; 0: none."
    ),
    Figure("loom_memory_changes", "memory_changes", "Compressions and snapshots of the sessions there are."),
    Figure("loom_memory_snapshots", "memory_snapshots", "Snapshots among them."),
)
KEYS = (*STATUSES, *(figure.key for figure in GAUGES))
"""What ``Front.metrics`` tells; None is 0, and a figure that is missing is not known now and left out."""


class Metrics:
    """The view of ``/metrics``."""

    def __init__(self, front: "Front") -> None:
        self._front = front

    def routes(self) -> tuple[Route, ...]:
        """Where the view is mounted."""
        return (Route("GET", "/metrics", self.show),)

    def show(self) -> Response:
        """All figures, in Prometheus' text format."""
        text, kind = exposition(self._front.metrics())
        return Response(text, content_type=kind)


def exposition(figures: Json) -> tuple[bytes, str]:
    """The figures in Prometheus' text format 0.0.4, which every version of it reads, and its media type."""
    # Imported when first asked for: 18 ms that few processes need.
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Known({key: value or 0 for key, value in figures.items()}))
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


class _Known:
    """A collector of figures that were counted before it was made."""

    def __init__(self, figures: Json) -> None:
        self._figures = figures

    def collect(self) -> "Iterator[Metric]":
        """Every figure that is known."""
        from prometheus_client.core import GaugeMetricFamily

        turns = GaugeMetricFamily("loom_turns", "Unfinished turns.", labels=["status"])
        for status in STATUSES:
            if status in self._figures:
                turns.add_metric([status], self._figures[status])
        yield turns
        for name, key, told in GAUGES:
            if key in self._figures:
                yield GaugeMetricFamily(name, told, value=self._figures[key])
