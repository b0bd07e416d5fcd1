"""What the tools gave, as the scripted model reads it, and rows as its answers list them."""

import json
import re
from collections.abc import Sequence
from datetime import date
from typing import Any

from loom_worker.core.values.json import Json

INTRODUCTION = (
    "I am Loom's scripted demo model, not an LLM: without an API key I answer only what I can put into a query whole, "
    "from rows of the database. Set ANTHROPIC_API_KEY for a real model. You can ask me, for instance:\n"
    "- Which three products sold best last year, and how much did each bring in?\n"
    "- Who are our ten best customers?\n"
    "- Monthly revenue trend this year\n"
    "- What is the return rate by category?\n"
    "- Revenue by country since 2024"
)
NO_LLM = (
    "This is Loom's scripted demo model, no LLM: it answers only what it can put into a query whole, and refuses the "
    "rest."
)
_MONEY = re.compile(r"revenue|profit|^total$|amount|refund|margin$|cost|price|value$|spent")
_MOST_ROWS = 40
"""Rows an answer lists; the rest is counted."""


def read_today(context: str) -> date | None:
    """The day of the line ``Today is 2026-11-21.``; None without it."""
    line = re.search(r"^Today is (\d{4}-\d\d-\d\d)\b", context, re.MULTILINE)
    try:
        return date.fromisoformat(line[1]) if line else None
    except ValueError:
        return None


def listed(columns: Sequence[str], rows: Sequence[Sequence[Any]], result: Json) -> list[str]:
    """A line for each row, numbered if there are several; the rest is counted."""
    lines = [_row(columns, row) for row in rows[:_MOST_ROWS]]
    if len(rows) > 1:
        lines = [f"{n}. {line}" for n, line in enumerate(lines, start=1)]
    if len(rows) > _MOST_ROWS or result.get("truncated"):
        lines.append(f"… and more rows ({len(rows)} came back{', cut' if result.get('truncated') else ''}).")
    return lines


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


def _row(columns: Sequence[str], row: Sequence[Any]) -> str:
    """``Red Tent: revenue 1,234.50, units 12``; a row that begins with a number has no name in front."""
    figures = [figure(name, value) for name, value in zip(columns, row, strict=False)]
    if isinstance(row[0], str) and len(row) > 1:
        return f"{row[0]}: {', '.join(figures[1:])}"
    return row[0] if isinstance(row[0], str) else ", ".join(figures)


def figure(column: str, value: Any) -> str:
    """A value with its heading: money with two decimals, counts with none."""
    name = column.replace("_", " ")
    if value is None:
        return f"{name} none"
    if name == "order" or name.endswith(" id") or isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"{name} {value}"
    if column.endswith("_percent"):
        return f"{name.removesuffix(' percent')} {value:,.1f} %"
    is_whole = float(value).is_integer() and not _MONEY.search(column)
    return f"{name} {value:,.0f}" if is_whole else f"{name} {value:,.2f}"
