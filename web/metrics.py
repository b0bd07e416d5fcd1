"""What watches the process: the probes of load balancers, and figures for Prometheus over all workspaces."""

from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from flask import Response, request

from loom_worker.core.metric_recorder import Cell, Cells, Family, Histogram
from loom_worker.core.metrics import FAMILIES
from loom_worker.core.values.json import Json
from web.answers import json_answer
from web.auth import foreign
from web.operation import Operation, Views
from web.problems import RETRY_S, ProblemDetails, Refused
from web.schemas import record

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

STATUSES = ("queued", "running", "waiting")


class Figure(NamedTuple):
    """One figure without labels."""

    name: str
    """In the exposition."""
    key: str
    """In ``Figures.all``."""
    help: str
    """What it counts; the HELP line."""


GAUGES = (
    Figure("loom_lanes", "lanes", "Sessions with unfinished turns."),
    Figure("loom_lane_depth_max", "lane_depth", "Unfinished turns of the session that has most of them."),
    Figure("loom_disks_full", "disks_full", "Folders of Loom on disks without room: nothing more is stored there."),
    Figure("loom_workers", "workers", "Worker processes that are alive."),
    Figure("loom_dead_turns", "dead", "Turns that killed each worker that ran them."),
    Figure("loom_oldest_queued_age_seconds", "oldest_queued_age_s", "Age of the oldest queued turn; 0: none."),
    Figure("loom_oldest_running_age_seconds", "oldest_running_age_s", "Age of the oldest turn a worker has; 0: none."),
    Figure("loom_memory_due_sessions", "memory_due", "Sessions whose memory waits to be compressed."),
    Figure(
        "loom_memory_oldest_due_age_seconds", "memory_oldest_due_age_s", "How long the first of them waits; 0: none."
    ),
    Figure("loom_memory_changes", "memory_changes", "Compressions and snapshots of the sessions there are."),
    Figure("loom_memory_snapshots", "memory_snapshots", "Snapshots among them."),
    Figure("loom_turns_awaiting_approval", "awaiting_approval", "Waiting turns that a person must decide for."),
    Figure("loom_tool_errors_last_hour", "errors_last_hour", "Errors of tools that were stored in the last hour."),
    Figure("loom_patterns", "patterns", "Patterns of the library."),
    Figure("loom_pattern_errors", "pattern_errors", "Complaints about its files: what was left out, and why."),
    Figure("loom_large_results", "large_results", "Results of tools that are kept by reference."),
    Figure("loom_large_results_disk_bytes", "disk_bytes", "What they take on disk, as stored."),
    Figure("loom_large_results_in_memory", "memory_blobs", "How many of them are in Redis, too."),
    Figure("loom_large_results_memory_bytes", "memory_bytes", "What those take there."),
)
LABELLED = {
    "loom_turns": ("status", "Unfinished turns."),
    "loom_oldest_waiting_age_seconds": ("for", "How long a turn has waited at most, by what it waits for; 0: none."),
    "loom_agent_messages": ("status", "Messages between agents, until they are removed."),
    "loom_breaker_open": ("name", "Circuit breakers: 1 open, 0.5 half-open, 0 closed."),
    "loom_guard_decisions_total": ("decision", "Texts on which guardrails acted: stage, kind and action."),
    "loom_figures_known": ("of", "0: these figures cannot be had now."),
}
"""Families with a label: its name, and what is counted. Those that processes count are in core/metrics.py."""
COUNTERS = frozenset(name for name in LABELLED if name.endswith("_total"))
OPENNESS = {"closed": 0.0, "half-open": 0.5, "open": 1.0}
KEYS = (*STATUSES, *(figure.key for figure in GAUGES))
"""The plain figures of ``Figures.all``; None is 0, and one that is missing is not known now and left out.

In addition there are ``breakers`` (name to state), ``waiting_ages`` (what for, to seconds), ``guard_decisions``
(decision to how often), ``agent_messages`` (status to how many), ``counted`` (Cells of core/metric_recorder.py) and
``known`` (what figures are of, to whether they could be had)."""


HEALTH = record("Health", "A probe's answer.", "status:text")


class HealthViews(Views, tag="probes"):
    """The probes; served to everyone, as load balancers have no key."""

    @Operation("GET /healthz", HEALTH, scope=None)
    def alive(self) -> Response:
        """The process is alive."""
        return json_answer({"status": "ok"})

    @Operation("GET /readyz", HEALTH, scope=None, problems=(503,))
    def ready(self) -> Response:
        """Database, Redis and a worker that takes turns are there."""
        missing = ("draining",) if self.limiter.is_draining else self.service.health.problems()
        if missing:
            headers = {"Retry-After": str(RETRY_S)}
            raise Refused(ProblemDetails(503, "not-ready", "; ".join(missing), {"reasons": list(missing)}, headers))
        # What a provider says of the account is for this machine alone.
        warnings = self.service.health.warnings() if foreign(request) is None else ()
        return json_answer({"status": "ready", **({"warnings": list(warnings)} if warnings else {})})


class MetricsViews(Views, tag="probes"):
    """The view of ``/metrics``."""

    @Operation("GET /metrics", {200: None}, scope=None, problems=(401, 403, 503), media_type="text/plain")
    def show(self) -> Response:
        """Figures for Prometheus."""
        text, kind = exposition(self.service.figures.all())
        return Response(text, content_type=kind)


def exposition(figures: Json) -> tuple[bytes, str]:
    """The figures in Prometheus' text format 0.0.4, which every version of it reads, and its media type."""
    # Imported when first asked for: 18 ms that few processes need.
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Known(figures))
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


class _Known:
    """A collector of figures that were counted before it was made."""

    def __init__(self, figures: Json) -> None:
        self._figures = figures

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        figures = self._figures
        for name, key, what in GAUGES:
            if key in figures:
                yield GaugeMetricFamily(name, what, value=figures[key] or 0)
        for name, (label, what) in LABELLED.items():
            kind = CounterMetricFamily if name in COUNTERS else GaugeMetricFamily
            family = kind(name.removesuffix("_total"), what, labels=[label])
            for value, figure in _values(name, figures).items():
                family.add_metric([value], float(figure))
            yield family
        if "counted" in figures:
            yield from _counted(figures["counted"])


def _counted(cells: Cells) -> "Iterator[Metric]":
    """What processes have counted."""
    found: dict[Family, dict[tuple[str, ...], Cell]] = {}
    for (family, values), cell in sorted(cells.items(), key=lambda each: each[0][1]):
        found.setdefault(family, {})[values] = cell
    for family in FAMILIES.values():
        zeros = {values: [0.0] * family.size for values in family.zeros()}
        yield _metric(family, {**zeros, **found.get(family, {})})


def _metric(family: Family, cells: dict[tuple[str, ...], Cell]) -> "Metric":
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

    labels = [label.name for label in family.labels]
    if not isinstance(family, Histogram):
        counter = CounterMetricFamily(family.name.removesuffix("_total"), family.help, labels=labels)
        for values, (total,) in cells.items():
            counter.add_metric(values, total)
        return counter
    bounds = [*map(str, family.bounds), "+Inf"]
    histogram = HistogramMetricFamily(family.name, family.help, labels=labels)
    for values, (total, *buckets) in cells.items():
        histogram.add_metric(values, list(zip(bounds, accumulate(buckets), strict=True)), total)
    return histogram


def _values(name: str, figures: Json) -> Json:
    """A family's figures by label."""
    match name:
        case "loom_turns":
            return {status: figures[status] for status in STATUSES if status in figures}
        case "loom_breaker_open":
            return {breaker: OPENNESS[state] for breaker, state in figures.get("breakers", {}).items()}
    own = {"loom_oldest_waiting_age_seconds": "waiting_ages", "loom_figures_known": "known"}
    return dict(figures.get(own.get(name, name.removeprefix("loom_").removesuffix("_total")), {}))
