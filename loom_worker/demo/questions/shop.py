"""The sample shop as questions speak of it, read from ``shop_figures.yaml``: what they ask for, and by which words."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

PER_LINE = frozenset("pgu")
"""Aliases of tables that an order's lines lead to: an order may have lines of several, so it has no one of them."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """What rows can be grouped by or restricted to."""

    column: str
    needs: str = ""
    """The alias of the table it lies in."""
    key: str = ""
    """What to group by in addition to the column: two products may share a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactTable:
    """The rows that a question is about."""

    source: str
    measures: Mapping[str, str]
    """Name to SQL; the name is the column's heading."""
    dimensions: Mapping[str, Dimension]
    joins: Mapping[str, str] = field(default_factory=dict)
    """Alias to the JOIN that brings it, in an order in which each finds what it needs."""
    base: str = ""
    """A condition that always holds."""
    day: str = ""
    is_day_plain: bool = True
    """False: a period belongs to these rows only if the question names what happened then."""
    has_hours: bool = False
    columns: str = ""
    """What a list of the rows shows."""
    order: str = ""
    row: str = ""
    """What makes rows of a list one, where joins may repeat them."""
    note: str = ""
    needs: Mapping[str, str] = field(default_factory=dict)
    """Measure to the alias it needs."""
    whole_orders: tuple[str, ...] = ()
    """Measures of orders as a whole: no part of an order's lines has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A condition of a fact's rows that is no value of a dimension."""

    facts: tuple[str, ...]
    sql: str
    day: str = ""
    """The rule takes the question's period, as days of this column; without it the rows take it."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """What the file says."""

    facts: Mapping[str, FactTable]
    rules: Mapping[str, Rule]
    times: Mapping[str, str]
    holds: tuple[tuple[str, str, str], ...]
    """Kind of a name, and the table and column where it is looked up."""
    words: Mapping[str, Any]
    """The whole file: ``terms``, ``idle``, ``forms`` and the like, as they stand there."""


@cache
def shop() -> Shop:
    """The packaged file, read once."""
    raw = yaml.safe_load(files("loom_worker.demo").joinpath("shop_figures.yaml").read_text(encoding="utf-8"))
    known = {"{amount}": raw["amount"], **{f"{{{name}}}": note for name, note in raw["notes"].items()}}
    facts = {name: _filled(fact, known) for name, fact in raw["facts"].items()}
    for fact in facts.values():
        fact["dimensions"] = {name: Dimension(*each) for name, each in fact.get("dimensions", {}).items()}
    return Shop(
        facts={name: FactTable(**fact) for name, fact in facts.items()},
        rules={name: Rule(**_filled(rule, known)) for name, rule in raw["rules"].items()},
        times=raw["times"],
        holds=tuple((kind, table, column) for kind, table, column in raw["holds"]),
        words=raw,
    )


def _filled(value: Any, known: Mapping[str, str]) -> Any:
    """A value of the file with its own abbreviations written out."""
    if isinstance(value, dict):
        return {name: _filled(each, known) for name, each in value.items()}
    for name, text in known.items() if isinstance(value, str) else ():
        value = value.replace(name, text)
    return value
