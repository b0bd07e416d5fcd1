"""The metrics that Loom serves, and those that its alerts and its dashboard ask for."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from loom_worker.core.metric_recorder import Histogram
from loom_worker.core.metrics import FAMILIES
from web.metrics import COUNTERS, GAUGES, LABELLED

OPS = Path(__file__).parents[2] / "ops"
PARTS = ("_bucket", "_sum", "_count")
SELECTED = re.compile(r"\b(loom_[a-z_]+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"')
GROUPED = re.compile(r"\bby \(([^)]*)\)")
OF_PROMETHEUS = {"job", "instance", "le"}
"""Labels that a scrape adds, and the buckets of histograms."""


def declared() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Name to type and labels of every metric that is served."""
    counted = {
        name: ("histogram" if isinstance(each, Histogram) else "counter", tuple(label.name for label in each.labels))
        for name, each in FAMILIES.items()
    }
    plain: dict[str, tuple[str, tuple[str, ...]]] = {figure.name: ("gauge", ()) for figure in GAUGES}
    labelled = {name: ("counter" if name in COUNTERS else "gauge", (label,)) for name, (label, _) in LABELLED.items()}
    return counted | plain | labelled


def family_of(name: str) -> str:
    """The metric that a sample of this name belongs to."""
    known = declared()
    whole = next((name.removesuffix(part) for part in PARTS if name.endswith(part)), name)
    return whole if known.get(whole, ("",))[0] == "histogram" else name


def rules() -> list[Any]:
    groups = yaml.safe_load((OPS / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    """Where an expression stands, and the expression."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in json.loads((OPS / "grafana" / "loom.json").read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def selected(expression: str) -> list[str]:
    """The metrics that an expression asks for."""
    return [name for name, _ in SELECTED.findall(expression)]


def unknown(expression: str) -> Iterator[str]:
    """Metrics, labels and values of labels in an expression that do not exist."""
    known, labels = declared(), set(OF_PROMETHEUS)
    for name, selector in SELECTED.findall(expression):
        family = family_of(name)
        own = {*known[family][1], *OF_PROMETHEUS} if family in known else set()
        labels |= own
        if not own:
            yield name
        for label, value in MATCHER.findall(selector):
            if label not in own or not has_value(family, label, value):
                yield f"{name}{{{label}={value}}}"
    for grouped in GROUPED.findall(expression):
        yield from (f"by {label}" for label in grouped.split(", ") if label not in labels)


def has_value(family: str, label: str, wanted: str) -> bool:
    """True if a label can have such a value, as far as its values are known."""
    values = next((each.values for each in getattr(FAMILIES.get(family), "labels", ()) if each.name == label), ())
    return not values or any(re.fullmatch(wanted, value) for value in values)
