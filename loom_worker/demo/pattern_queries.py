"""What the scripted model makes of a pattern shown with a message: the query it runs and the answer it gives.

A template is used only where each word of the question is one of its own (its title, its name, the columns it gives),
and only if it takes the question's period and number.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from loom_worker.core.values.json import Json
from loom_worker.demo.slots import Slots

INTRODUCTION = (
    "I am Loom's scripted demo model, not an LLM: without an API key I answer only what I can put into a query whole, "
    "from rows of the database. Set ANTHROPIC_API_KEY for a real model. You can ask me, for instance:\n"
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
_SAFE_START = re.compile(r">= ?'\{\{\s*\.?start\s*\}\}'")
_SAFE_END = re.compile(r"< ?'\{\{\s*\.?end\s*\}\}'")
_COLUMN = re.compile(r"\bAS (\w+)\s*(?:,|$)", re.IGNORECASE | re.MULTILINE)
_FOREVER = ("0001-01-01", "9999-12-31")
_HARMLESS = frozenset("show list give what which who by per for of in each every all and with to".split())
"""Words that restrict nothing as long as the words around them are the template's own."""
_TITLE_END = re.compile(r"[(,]")
"""What follows says the same in other words."""
_NUMBERED = re.compile(
    r"\b(?:(?P<first>top|best|first|which|what) (?P<a>\d{1,3})|(?P<b>\d{1,3}) (?P<last>best|top|most))\b"
)
NO_LLM = (
    "This is Loom's scripted demo model, no LLM: it answers only what it can put into a query whole, and refuses the "
    "rest."
)
_MONEY = re.compile(r"revenue|profit|^total$|amount|refund|margin$|cost|price|value$|spent")
_MOST_ROWS = 40
"""Rows an answer lists; the rest is counted."""


@dataclass(frozen=True, slots=True)
class PatternQuery:
    """A pattern with the template that fits the question."""

    pattern_id: str
    title: str
    sql: str
    defaults: Mapping[str, str]
    name: str = ""
    """The template's."""

    def tables(self) -> tuple[str, ...]:
        """The tables the query reads, its own named parts left out."""
        filled = self._filled(self.defaults)
        own = {name.lower() for name in _LOCAL.findall(filled)}
        return tuple(dict.fromkeys(name for name in _SOURCE.findall(filled) if name.lower() not in own))

    def query(self, slots: Slots) -> str:
        """The SQL with the question's number and period put in, defaults elsewhere; only digits come from outside."""
        return self._filled(self.values(slots))

    def values(self, slots: Slots) -> dict[str, str]:
        """What each placeholder stands for."""
        values = dict(self.defaults)
        if slots.n is not None:
            values["n"] = str(slots.n)
        if slots.period is not None:
            values |= {"start": slots.period.start.isoformat(), "end": slots.period.end.isoformat()}
        return {name: value for name, value in values.items() if self.takes(name)}

    def takes(self, name: str) -> bool:
        """Does the query have this placeholder?"""
        return name in _PLACEHOLDER.findall(self.sql)

    def takes_period(self) -> bool:
        """Does the query restrict rows to days from ``start`` up to ``end``, and use neither in another way?"""
        names = _PLACEHOLDER.findall(self.sql)
        starts, ends = len(_SAFE_START.findall(self.sql)), len(_SAFE_END.findall(self.sql))
        return starts > 0 and ends > 0 and (names.count("start"), names.count("end")) == (starts, ends)

    def columns(self) -> tuple[str, ...]:
        """The headings of what the query gives, as far as they are named."""
        last = self.sql[max(self.sql.rfind("\nSELECT"), 0) :]
        return tuple(_COLUMN.findall(last.partition("\nFROM")[0]))

    def _filled(self, values: Mapping[str, str]) -> str:
        return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), self.sql)


def read_queries(context: str) -> tuple[PatternQuery, ...]:
    """The templates of the first pattern with SQL in a message's context."""
    for pattern_id, title, body in _PATTERN.findall(context):
        templates = {name: sql for name, _, sql in _TEMPLATE.findall(body)}
        if templates:
            parameters = body.rpartition("\nParameters:\n")[2].partition("\n\n")[0]
            defaults = {name: default for name, default in _PARAMETER.findall(parameters) if default}
            return tuple(PatternQuery(pattern_id, title, sql, defaults, name) for name, sql in templates.items())
    return ()


def choose(queries: Sequence[PatternQuery], text: str, slots: Slots) -> PatternQuery | None:
    """The template whose own words are all that a question says; None if a word, period or number is left over.

    Args:
        text: the question in plain words, without those that say nothing; ``@p0`` stands for a period.
    """
    fitting = [(query, shared) for query in queries if (shared := _shared(query, text, slots)) is not None]
    return max(fitting, key=lambda one: one[1])[0] if fitting else None


def _shared(query: PatternQuery, text: str, slots: Slots) -> int | None:
    """How many of the question's words name the template itself; None if one is accounted for by nothing.

    The title's subject must be among them: of its columns alone, a template asks for something else than the question.
    """
    if len(slots.periods) > 1 or (slots.period is not None and not query.takes_period()):
        return None
    if _PLACEHOLDER.search(query.query(slots)):
        return None
    rest = text.replace("@p0", " ")
    if slots.n is not None:
        rest, count = _NUMBERED.subn(lambda found: f" {found['first'] or found['last']} ", rest)
        if count != 1 or not query.takes("n"):
            return None
    words = [_stem(word) for word in _words(rest)]
    title = set(map(_stem, re.findall(r"\w+", query.title.lower())))
    named = set(map(_stem, query.name.split("_")))
    own = title | named | {_stem(word) for column in query.columns() for word in column.lower().split("_")}
    subject = {_stem(word) for word in _words(_TITLE_END.split(query.title)[0])}
    is_all_own = bool(words) and subject <= set(words) and all(word in own for word in words)
    negates = {"not", "no", "never", "without"} & set(words)
    if not is_all_own or (negates and set(words) != title - _HARMLESS):
        return None
    return sum(word in named for word in words)


def _words(text: str) -> list[str]:
    return [word for word in re.findall(r"\w+", text.lower()) if word not in _HARMLESS]


def _stem(word: str) -> str:
    return word[:-3] + "y" if word.endswith("ies") else word.rstrip("s") if len(word) > 3 else word


def read_today(context: str) -> date | None:
    """The day of the line ``Today is 2026-11-21.``; None without it."""
    line = re.search(r"^Today is (\d{4}-\d\d-\d\d)\b", context, re.MULTILINE)
    try:
        return date.fromisoformat(line[1]) if line else None
    except ValueError:
        return None


def pattern_answer(query: PatternQuery, slots: Slots, result: Json) -> str:
    """Word an answer from the rows that came back, and say which pattern, period and values it rests on."""
    heading = f'{_period(query, slots)}, by the pattern "{query.title}" ({query.pattern_id}){_given(query, slots)}:'
    if not result["rows"]:
        return f"{heading}\nThe query ran and gave no rows: the data holds nothing for this."
    return "\n".join([heading, *listed(result["columns"], result["rows"], result), "", NO_LLM])


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


def missing_tables(needed: tuple[str, ...], content: str) -> tuple[str, ...]:
    """The tables that list_tables did not name; none if its text cannot be read: then the query will fail."""
    try:
        known = {str(table["name"]).lower() for table in json.loads(content)["tables"]}
    except (ValueError, LookupError, TypeError):
        return ()
    return tuple(name for name in needed if name.lower() not in known)


def _period(query: PatternQuery, slots: Slots) -> str:
    if not query.takes("start"):
        return "From the whole table"
    if slots.period is not None:
        return f"For {slots.period.start} to {slots.period.end - timedelta(days=1)} ({slots.period.wording})"
    start, end = query.defaults.get("start", _FOREVER[0]), query.defaults.get("end", _FOREVER[1])
    return "Over all dates on record" if (start, end) == _FOREVER else f"From {start} up to, not including, {end}"


def _given(query: PatternQuery, slots: Slots) -> str:
    """The values of a template's other placeholders: the answer holds for them only."""
    mentioned = ("start", "end") if slots.n is None else ("start", "end", "n")
    values = {name: value for name, value in query.values(slots).items() if name not in mentioned}
    return f", with {', '.join(f'{name} = {value}' for name, value in values.items())}" if values else ""


def _row(columns: Sequence[str], row: Sequence[Any]) -> str:
    """``Red Tent: revenue 1,234.50, units 12``; a row that begins with a number has no name in front."""
    figures = [figure(name, value) for name, value in zip(columns, row, strict=False)]
    if isinstance(row[0], str) and len(row) > 1:
        return f"{row[0]}: {', '.join(figures[1:])}"
    return row[0] if isinstance(row[0], str) else ", ".join(figures)


def figure(column: str, value: Any) -> str:
    """A value with its heading: money with two decimals, counts with none."""
    name = column.replace("_", " ")
    if name == "order" or name.endswith(" id"):
        return f"{name} {value}"
    if value is None:
        return f"{name} none"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"{name} {value}"
    if column.endswith("_percent"):
        return f"{name.removesuffix(' percent')} {value:,.1f} %"
    is_whole = float(value).is_integer() and not _MONEY.search(column)
    return f"{name} {value:,.0f}" if is_whole else f"{name} {value:,.2f}"
