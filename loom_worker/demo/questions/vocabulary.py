"""The sample shop as questions speak of it, read from ``shop_figures.yaml``, and a question's words as its terms.

A term is written in capitals, a period ``@p0``, a value of the database ``@v0``; every other word is itself and must
be read by a rule, or the question is refused.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

WITH_DAY = ("customers", "employees")
"""Facts whose rows have a day of their own: of signing up, of being hired."""
_NEGATED = re.compile(
    r"\b(do|does|did|is|are|was|were|have|has|had|would|could|should)n['’]?t\b|\b(ca)n['’]t\b|\b(wo)n['’]t\b"
)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_PUNCTUATION = re.compile(r"[^\w@.%-]+|(?<!\d)\.|\.(?!\d)|(?<!\w)-|-(?!\w)")
_LIKENESS = 0.87
"""Likeness of a word and one with a letter left out, doubled or swapped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactTable:
    """The rows that a question is about."""

    source: str
    measures: Mapping[str, str]
    """Name to SQL; the name is the column's heading."""
    dimensions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What rows can be grouped by or restricted to: the column, and what to group by in addition."""
    joins: Mapping[str, str] = field(default_factory=dict)
    """Alias to the JOIN that brings it, in an order in which each finds what it needs."""
    base: str = ""
    """A condition that always holds."""
    day: str = ""
    columns: str = ""
    """What a list of the rows shows."""
    order: str = ""
    row: str = ""
    """What makes rows of a list one, where joins may repeat them."""
    note: str = ""
    whole_orders: tuple[str, ...] = ()
    """Measures of orders as a whole: no part of an order has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A condition of a fact's rows that is no value of a dimension."""

    words: Sequence[str]
    """Regular expressions over terms; what they name ``keep`` is left for what the question asks for."""
    facts: Sequence[str]
    sql: str
    day: str = ""
    """The rule takes the question's period, as days of this column; without it the rows take it."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Shop:
    """What the file says."""

    facts: Mapping[str, FactTable]
    rules: Mapping[str, Rule]
    words: Mapping[str, Any]
    """The whole file: ``terms``, ``idle``, ``forms`` and the like, as they stand there."""


@cache
def shop() -> Shop:
    """The packaged file, read once."""
    raw = yaml.safe_load(files("loom_worker.demo").joinpath("shop_figures.yaml").read_text(encoding="utf-8"))
    counted = {"E": "|".join(raw["nouns"]), "M": "|".join(raw["measures"])}
    raw = _filled(raw, raw["parts"] | counted)
    return Shop(
        {name: FactTable(**fact) for name, fact in raw["facts"].items()},
        {name: Rule(**rule) for name, rule in raw["rules"].items()},
        raw,
    )


def _filled(value: Any, parts: Mapping[str, str]) -> Any:
    """A value of the file with its own abbreviations, ``{name}``, written out."""
    if isinstance(value, dict):
        return {name: _filled(each, parts) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, parts) for each in value]
    before = None
    while isinstance(value, str) and value != before:
        before, value = value, re.sub(r"\{(\w+)\}", lambda found: parts.get(found[1], found[0]), value)
    return value


def plain(marked: str) -> str:
    """A question's marked text (``slots.Slots.marked``) in plain words: negations whole, nations as countries."""
    text = _NEGATED.sub(lambda found: f"{found[1] or found[2] or found[3]} not", marked)
    text = _THOUSANDS.sub("", text.replace("&", " and ").replace("€", " "))
    nations = shop().words["nations"]
    text = re.sub(rf"\b(?:{'|'.join(nations)})\b", lambda found: nations[found[0]], text)
    return " ".join(_PUNCTUATION.sub(" ", text.replace("_", " ")).split())


def corrected(text: str) -> tuple[str, tuple[str, ...]]:
    """A plain text with a word's missing, doubled or swapped letter put right, and what was read for what."""
    slips, own = shop().words["slips"], shop().words["no_slips"]
    words = {word for word in text.split() if len(word) > 4 and word.isalpha() and word + "s" not in slips}
    near = {word: get_close_matches(word, slips, 1, _LIKENESS) for word in words.difference(own, slips)}
    meant = {word: found[0] for word, found in near.items() if found and found[0][0] == word[0]}
    notes = tuple(f'I read "{word}" as "{right}".' for word, right in meant.items())
    return " ".join(meant.get(word, word) for word in text.split()), notes


def terms(text: str) -> str:
    """A plain text with terms in place of words, and without those that say nothing."""
    for pattern, term in shop().words["terms"]:
        text = re.sub(rf"(?<![\w@-])(?:{pattern})(?![\w-])", f" {term} ", text)
    return idle_left_out(text)


def idle_left_out(text: str) -> str:
    """A plain text without the words that say nothing, all others as they are."""
    for idle in shop().words["idle"]:
        text = re.sub(rf"(?<![\w@-])(?:{idle})(?![\w-])", " ", text)
    return " ".join(text.split())


def other_words(text: str) -> list[str]:
    """The words of a plain text that are no terms, in their order: names, or the words of a form."""
    return [word for word in terms(text).split() if re.fullmatch(r"[a-z][a-z'-]*", word)]
