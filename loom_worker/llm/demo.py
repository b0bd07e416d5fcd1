"""What the scripted model makes of a pattern beside a message: the query it asks for and the answer it words."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from loom_worker.llm.slots import Slots
from loom_worker.values.json import Json

INTRODUCTION = (
    "I am Loom's scripted demo model, not an LLM: without an API key I answer only what a pattern of the library "
    "covers, from rows of the database. Set ANTHROPIC_API_KEY for a real model. You can ask me, for instance:\n"
    "- Which three products sold best last year, and how much did each bring in?\n"
    "- Who are our ten best customers?\n"
    "- Monthly revenue trend this year\n"
    "- What is the return rate by category?\n"
    "- Revenue by country since 2024"
)

_PATTERN = re.compile(r'<pattern id="([^"]+)"[^>]*>\s*([^\n]*)\n(.*?)\n</pattern>', re.DOTALL)
_TEMPLATE = re.compile(r"^Template (\S+):\n(`{3,})sql\n(.*?)\n\2$", re.DOTALL | re.MULTILINE)
_PARAMETER = re.compile(r"^- (\w+) \([^,)\n]+(?:, required)?(?:, default (.*?))?\)(?::|$)", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{\{\s*\.?(\w+)\s*\}\}")
_SOURCE = re.compile(r"\b(?:FROM|JOIN)\s+(?!sqlite_)(\w+)\b(?!\s*\()", re.IGNORECASE)
_LOCAL = re.compile(r"(?:\bWITH(?:\s+RECURSIVE)?|,)\s+(\w+)\s*(?:\([^()]*\)\s*)?AS\s+\(", re.IGNORECASE)
_SAID_OTHERWISE = {"daily": "day", "annual": "year", "quantity": "units", "pieces": "units", "why": "reason"}
_MONEY = re.compile(r"revenue|amount|refund|margin$|cost|price|value$|spent")
_MOST_ROWS = 40
"""Rows an answer lists; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Task:
    """A pattern with the template that fits the question."""

    pattern_id: str
    title: str
    sql: str
    defaults: Mapping[str, str]

    def tables(self) -> tuple[str, ...]:
        """The tables the query reads, its own named parts left out."""
        filled = self._filled(self.defaults)
        own = {name.lower() for name in _LOCAL.findall(filled)}
        return tuple(dict.fromkeys(name for name in _SOURCE.findall(filled) if name.lower() not in own))

    def query(self, slots: Slots) -> str:
        """The SQL with the question's numbers and days put in, defaults elsewhere; only digits come from outside."""
        values = dict(self.defaults)
        if slots.n is not None:
            values["n"] = str(slots.n)
        if slots.period is not None:
            values |= {"start": slots.period.start.isoformat(), "end": slots.period.end.isoformat()}
        return self._filled(values)

    def takes(self, name: str) -> bool:
        """Does the query have this placeholder?"""
        return name in _PLACEHOLDER.findall(self.sql)

    def _filled(self, values: Mapping[str, str]) -> str:
        return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), self.sql)


def read_task(context: str, rest: str) -> Task | None:
    """Find the first pattern with a SQL template in what stands beside a message.

    Args:
        rest: the question in lower case without its periods; it chooses between several templates.
    """
    for pattern_id, title, body in _PATTERN.findall(context):
        templates = {name: sql for name, _, sql in _TEMPLATE.findall(body)}
        if templates:
            parameters = body.rpartition("\nParameters:\n")[2].partition("\n\n")[0]
            defaults = {name: default for name, default in _PARAMETER.findall(parameters) if default}
            return Task(pattern_id, title, templates[_best_template(tuple(templates), rest)], defaults)
    return None


def read_today(context: str) -> date | None:
    """The day of the line ``Today is 2026-11-21.``; None without it."""
    said = re.search(r"^Today is (\d{4}-\d\d-\d\d)\b", context, re.MULTILINE)
    try:
        return date.fromisoformat(said[1]) if said else None
    except ValueError:
        return None


def answer(task: Task, slots: Slots, result: Json) -> str:
    """Word an answer from the rows that came back, and say which pattern and period it rests on."""
    rows = result["rows"]
    heading = f'{_period(task, slots)}, by the pattern "{task.title}" ({task.pattern_id}):'
    if not rows:
        return f"{heading}\nThe query ran and gave no rows: the data holds nothing for this."
    lines = [_row(result["columns"], row) for row in rows[:_MOST_ROWS]]
    if len(rows) > 1:
        lines = [f"{n}. {line}" for n, line in enumerate(lines, start=1)]
    if len(rows) > _MOST_ROWS or result.get("truncated"):
        lines.append(f"… and more rows ({len(rows)} came back{', cut' if result.get('truncated') else ''}).")
    return "\n".join([heading, *lines, "", _remarks(task, slots)])


def unfenced(content: str) -> str:
    """What a tool gave, without the tags that mark it as data."""
    fence = re.fullmatch(r"<data (\w+)>\n(.*)\n</data \1>.*", content, re.DOTALL)
    return fence[2] if fence else content


def read_result(content: str) -> Json | None:
    """The columns and rows of execute_sql; None if the text is something else (an error, a cut result)."""
    try:
        result = json.loads(content)
    except ValueError:
        return None
    is_table = isinstance(result, dict) and isinstance(result.get("rows"), list) and "columns" in result
    return result if is_table else None


def missing_tables(needed: tuple[str, ...], content: str) -> tuple[str, ...]:
    """The tables that list_tables did not name; none if its text cannot be read: then the query will tell."""
    try:
        known = {str(table["name"]).lower() for table in json.loads(content)["tables"]}
    except (ValueError, LookupError, TypeError):
        return ()
    return tuple(name for name in needed if name.lower() not in known)


def _best_template(names: tuple[str, ...], rest: str) -> str:
    """The template whose name shares most words with the question, the first one in doubt."""
    asked = [_SAID_OTHERWISE.get(word, word) for word in re.findall(r"[a-z]+", rest)]
    return max(names, key=lambda name: sum(_shares(word, asked) for word in name.split("_")))


def _shares(word: str, asked: list[str]) -> bool:
    stem = word.rstrip("s")[:5].rstrip("y")
    return word not in ("by", "per") and len(stem) > 2 and any(one.startswith(stem) for one in asked)


def _period(task: Task, slots: Slots) -> str:
    if slots.period is None or not task.takes("start"):
        return "Over all dates on record" if task.takes("start") else "From the whole table"
    last = slots.period.end - timedelta(days=1)
    return f"For {slots.period.start} to {last} ({slots.period.said})"


def _row(columns: list[str], row: list[Any]) -> str:
    """``Red Tent: revenue 1,234.50, units 12``; a row that begins with a number has no name in front."""
    figures = [_figure(name, value) for name, value in zip(columns, row, strict=False)]
    return f"{row[0]}: {', '.join(figures[1:])}" if isinstance(row[0], str) else ", ".join(figures)


def _figure(column: str, value: Any) -> str:
    name = column.replace("_", " ")
    if value is None:
        return f"{name} none"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"{name} {value}"
    if column.endswith("_percent"):
        return f"{name.removesuffix(' percent')} {value:,.1f} %"
    is_whole = float(value).is_integer() and not _MONEY.search(column)
    return f"{name} {value:,.0f}" if is_whole else f"{name} {value:,.2f}"


def _remarks(task: Task, slots: Slots) -> str:
    ignored = []
    if slots.period is not None and not task.takes("start"):
        ignored.append(f"the period ({slots.period.said})")
    if slots.n is not None and not task.takes("n"):
        ignored.append(f"the number {slots.n}")
    told = f" This pattern has no place for {' and '.join(ignored)}." if ignored else ""
    return (
        "This is Loom's scripted demo model, no LLM: it reads a number and a period from the question and applies no "
        f"other condition.{told}"
    )
