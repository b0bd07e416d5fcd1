"""What the scripted model makes of a pattern shown with a message: the query it runs and the answer it gives.

A template is used only where each word of the question is one of its own (its title, its name, the columns it gives),
and only if it takes the question's period and number.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
_TEMPLATE = re.compile(r"^Template (\S+):\n(`{3,})sql\n(.*?)\n\2$\n?([^\n]*)", re.DOTALL | re.MULTILINE)
_PARAMETER = re.compile(r"^- (\w+) \([^,)\n]+(?:, required)?(?:, default (.*?))?\)(?::|$)", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{\{\s*\.?(\w+)\s*\}\}")
_SOURCE = re.compile(r"\b(?:FROM|JOIN)\s+(?!sqlite_)(\w+)\b(?!\s*\()", re.IGNORECASE)
_LOCAL = re.compile(r"(?:\bWITH(?:\s+RECURSIVE)?|,)\s+(\w+)\s*(?:\([^()]*\)\s*)?AS\s+\(", re.IGNORECASE)
_SAFE_START = re.compile(r">= ?'\{\{\s*\.?start\s*\}\}'")
_SAFE_END = re.compile(r"< ?'\{\{\s*\.?end\s*\}\}'")
_FOREVER = ("0001-01-01", "9999-12-31")
_HARMLESS = frozenset(
    "show list give what which who by per for of in each every all and with to how many much display from on at "
    "see get number total come".split()
)
"""Words that restrict nothing as long as the words around them are the template's own."""
_NEGATIONS = frozenset(
    "not no never without except excluding outside nothing none little missing stopped neither nor only but less "
    "least".split()
)
"""Words that turn a sentence around: a question has them only if it is the template's title."""
_HIGHEST = frozenset("most top best highest biggest largest busiest often frequently".split())
_LOWEST = frozenset("least worst lowest fewest smallest".split())
_TITLE_END = re.compile(r"[(,]")
"""What follows says the same in other words."""
_ORDER = re.compile(r"\bORDER BY\s+(?:\w+\.)?(\w+)(\s+DESC\b)?", re.IGNORECASE)
_ALIAS = re.compile(
    r"\b(?:FROM|JOIN)\s+(\w+)(?:\s+(?:AS\s+)?(?!WHERE|JOIN|ON|GROUP|ORDER|LEFT|INNER|LIMIT)(\w+))?", re.IGNORECASE
)
_TEXT_SLOT = re.compile(
    r"(?:lower\()?(?:(\w+)\.)?(\w+)\)?\s*(?:=|LIKE)\s*(?:lower\()?'\{\{\s*\.?(\w+)\s*\}\}'", re.IGNORECASE
)
"""A column that is compared with a placeholder."""
_NUMBERED = re.compile(
    r"\b(?:(?P<first>top|best|first|which|what) (?P<a>\d{1,3})|(?P<b>\d{1,3}) (?P<last>best|top|most|\w+))\b"
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
    about: str = ""
    """The first sentence of the pattern's description, and what its file says of the template."""

    def tables(self) -> tuple[str, ...]:
        """The tables the query reads, its own named parts left out."""
        own = {name.lower() for name in _LOCAL.findall(self.sql)}
        return tuple(dict.fromkeys(name for name in _SOURCE.findall(self.sql) if name.lower() not in own))

    def text_slots(self) -> dict[str, tuple[str, str]]:
        """Placeholders that stand for a value of a column, with its table."""
        tables = {alias or table: table for table, alias in _ALIAS.findall(self.sql)}
        found = [
            (name, tables.get(alias) or next(iter(self.tables()), ""), column)
            for alias, column, name in _TEXT_SLOT.findall(self.sql)
        ]
        return {name: (table, column) for name, table, column in found if name not in ("start", "end")}

    def query(self, slots: Slots) -> str:
        """The SQL with the question's number, period and names put in, defaults elsewhere."""
        values = self.values(slots)
        return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), self.sql)

    def values(self, slots: Slots) -> dict[str, str]:
        """What each placeholder stands for."""
        values = dict(self.defaults)
        if slots.n is not None:
            values["n"] = str(slots.n)
        if slots.period is not None:
            values |= {"start": slots.period.start.isoformat(), "end": slots.period.end.isoformat()}
        values |= {name: value.replace("'", "''") for name, value in slots.names}
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
        """The headings of what the query gives."""
        last = re.split(r"\bFROM\b", re.split(r"(?m)^SELECT\b", self.sql)[-1], maxsplit=1)[0]
        while (shorter := re.sub(r"\([^()]*\)", "", last)) != last:  # commas inside of functions part no columns
            last = shorter
        names = [re.search(r"(\w+)\W*$", item) for item in last.split(",")]
        return tuple(name[1] for name in names if name)


def read_queries(context: str) -> tuple[PatternQuery, ...]:
    """The templates of all patterns with SQL in a message's context, the best pattern's first."""
    found: list[PatternQuery] = []
    for pattern_id, title, body in _PATTERN.findall(context):
        parameters = body.rpartition("\nParameters:\n")[2].partition("\n\n")[0]
        defaults = {name: default for name, default in _PARAMETER.findall(parameters) if default}
        first = body.strip().partition("\n")[0]
        description = "" if first.startswith("Template ") else first.partition(".")[0]
        for name, _, sql, about in _TEMPLATE.findall(body):
            found.append(PatternQuery(pattern_id, title, sql, defaults, name, f"{description} {about}"))
    return tuple(found)


def choose(
    queries: Sequence[PatternQuery], text: str, slots: Slots, values: Mapping[str, Mapping[str, tuple[str, ...]]] = {}
) -> tuple[PatternQuery, Slots] | None:
    """The template that accounts for each word of a question, and its slots; None if a word, period or number is left.

    Args:
        text: the question in plain words, without those that say nothing; ``@p0`` stands for a period.
        values: names of the database by their marks, ``@v0``, with the placeholders that each can stand for.
    """
    fitting = []
    for query in queries:
        filled = _named(query, text, slots, values)
        if filled is not None and (shared := _shared(query, text, filled)) is not None:
            fitting.append((shared, query, filled))
    best = max(fitting, key=lambda one: one[0], default=None)
    return (best[1], best[2]) if best else None


def _named(
    query: PatternQuery, text: str, slots: Slots, values: Mapping[str, Mapping[str, tuple[str, ...]]]
) -> Slots | None:
    """The slots with the question's names; None if one has no place, or two."""
    names: dict[str, str] = {}
    for mark in re.findall(r"@v\d+", text):
        kinds = {kind: each for kind, each in values[mark].items() if kind in query.text_slots()}
        if len(kinds) != 1 or (kind := next(iter(kinds))) in names or len(kinds[kind]) != 1:
            return None
        names[kind] = kinds[kind][0]
    return replace(slots, names=tuple(names.items()))


def _shared(query: PatternQuery, text: str, slots: Slots) -> tuple[bool, int] | None:
    """How well a template fits: is its whole title asked for, and how many words name it; None if one has no place."""
    if len(slots.periods) > 1 or (slots.period is not None and not query.takes_period()):
        return None
    if _PLACEHOLDER.search(query.query(slots)):
        return None
    rest = re.sub(r"@[pv]\d+", " ", text)
    if slots.n is not None:
        rest, count = _NUMBERED.subn(lambda found: f" {found['first'] or found['last']} ", rest)
        if count != 1 or not query.takes("n"):
            return None
    words = [_stem(word) for word in _words(rest)]
    title = set(map(_stem, re.findall(r"\w+", query.title.lower())))
    named = set(map(_stem, query.name.split("_")))
    columns = [{_stem(word) for word in column.lower().split("_")} for column in query.columns()]
    own = title.union(named, *columns)
    subject = {_stem(word) for word in _words(_TITLE_END.split(query.title)[0])}
    shared = sum(word in named for word in words)
    if words and subject <= set(words) and own.issuperset(set(words) - {"often", "frequently"}):
        negates = {"not", "no", "never", "without"} & set(words)
        return None if negates and set(words) != title - _HARMLESS else (True, shared)
    about = set(map(_stem, re.findall(r"\w+", f"{query.about} {' '.join(query.tables())}".lower())))
    return (False, shared + len(own & set(words))) if _is_asked(query, words, text, own | about, columns) else None


def _is_asked(query: PatternQuery, words: list[str], text: str, known: set[str], columns: list[set[str]]) -> bool:
    """Do all words belong to the template, and ask for what it gives in the order in which it gives it?"""
    plain = [word for word in words if word not in _HIGHEST | _LOWEST]
    if not columns or (_NEGATIONS & (known | set(words))) or not known.issuperset(plain):
        return False
    measures = {word for column in columns[1:] for word in column} - columns[0]
    asked = measures & set(plain)
    if "GROUP BY" in query.sql.upper() and not columns[0] & set(plain):
        return False
    counted = re.search(r"\bhow many (\w+)", text)
    if (counted and _stem(counted[1]) not in measures) or not (set(plain) - columns[0] or "@v" in text):
        return False
    column, falls = next(reversed(_ORDER.findall(query.sql)), ("", ""))
    is_ranked = len(plain) < len(words) or query.takes("n")
    if is_ranked and asked and not {_stem(each) for each in column.lower().split("_")} & asked:
        return False
    wanted = {word in _HIGHEST for word in words if word not in plain}
    return not wanted or (bool(column) and wanted == {bool(falls)})


def _words(text: str) -> list[str]:
    return [word for word in re.findall(r"\w+", text.lower()) if word not in _HARMLESS]


def _stem(word: str) -> str:
    if word in _HIGHEST | _LOWEST | _NEGATIONS:
        return word
    word = word[:-3] + "y" if word.endswith("ies") else word.rstrip("s") if len(word) > 3 else word
    return next((word[: -len(end)] for end in ("ing", "ed") if word.endswith(end) and len(word) > len(end) + 3), word)


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
