"""What the scripted model makes of a pattern shown with a message: the query it runs and the answer it gives.

A template is used only where the question has the words of its title and no others than those, its name's and its
columns', and only if it takes the question's period and number.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache

import sqlglot
from sqlglot import exp

from loom_worker.core.values.json import Json
from loom_worker.demo.rows import NO_LLM, listed
from loom_worker.demo.slots import Slots

_PATTERN = re.compile(r'<pattern id="([^"]+)"[^>]*>\s*([^\n]*)\n(.*?)\n</pattern>', re.DOTALL)
_TEMPLATE = re.compile(r"^Template (\S+):\n(`{3,})sql\n(.*?)\n\2$", re.DOTALL | re.MULTILINE)
_PARAMETER = re.compile(r"^- (\w+) \([^,)\n]+(?:, required)?(?:, default (.*?))?\)(?::|$)", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{\{\s*\.?(\w+)\s*\}\}")
_SAFE = re.compile(r"(?:>= ?'\{\{\s*\.?start|< ?'\{\{\s*\.?end)\s*\}\}'")
_FOREVER = ("0001-01-01", "9999-12-31")
_HARMLESS = frozenset(
    "show list give what which who by per for of in each every all and with to how many much display from on at "
    "see get number total come".split()
)
"""Words that restrict nothing as long as the words around them are the template's own."""
_NUMBERED = re.compile(r"\b(?:(top|best|first|which|what) \d{1,3}|\d{1,3} (best|top|most|\w+))\b")


@lru_cache(256)
def _parsed(sql: str) -> exp.Query:
    """A template's statement, with 0 for each placeholder outside of quotes; an empty one if it cannot be read."""
    try:
        tree = sqlglot.parse_one(re.sub(rf"(?<!'){_PLACEHOLDER.pattern}(?!')", "0", sql))
    except sqlglot.errors.SqlglotError:
        return exp.Select()
    return tree if isinstance(tree, exp.Query) else exp.Select()


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
        tree = _parsed(self.sql)
        own = {each.alias_or_name.lower() for each in tree.find_all(exp.CTE)} | {""}
        names = (each.name for each in tree.find_all(exp.Table))
        return tuple(dict.fromkeys(each for each in names if each.lower() not in own and each[:7] != "sqlite_"))

    def text_slots(self) -> dict[str, tuple[str, str]]:
        """Placeholders that stand for a value of a column, with its table."""
        tree, found = _parsed(self.sql), {}
        tables = {each.alias_or_name: each.name for each in tree.find_all(exp.Table)}
        for compared in tree.find_all(exp.EQ, exp.Like):
            column, value = compared.find(exp.Column), compared.find(exp.Literal)
            name = _PLACEHOLDER.fullmatch(value.name) if value else None
            if column and name and name[1] not in ("start", "end"):
                found[name[1]] = (tables.get(column.table) or next(iter(self.tables()), ""), column.name)
        return found

    def columns(self) -> tuple[str, ...]:
        """The headings of what the query gives."""
        return tuple(name for name in _parsed(self.sql).named_selects if name != "*")

    def query(self, slots: Slots) -> str:
        """The SQL with the question's number, period and names put in, defaults elsewhere."""
        values = self.values(slots)
        return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), self.sql)

    def values(self, slots: Slots) -> dict[str, str]:
        """What each placeholder stands for."""
        values = dict(self.defaults) | {name: value.replace("'", "''") for name, value in slots.names}
        values |= {"n": str(slots.n)} if slots.n is not None else {}
        values |= {"start": f"{slots.period.start}", "end": f"{slots.period.end}"} if slots.period else {}
        return {name: value for name, value in values.items() if self.takes(name)}

    def takes(self, name: str) -> bool:
        """Does the query have this placeholder?"""
        return name in _PLACEHOLDER.findall(self.sql)

    def takes_period(self) -> bool:
        """Does the query restrict rows to days from ``start`` up to ``end``, and use neither in another way?"""
        ends = {"start", "end"}
        others = _SAFE.sub("", self.sql)
        return ends <= set(_PLACEHOLDER.findall(self.sql)) and ends.isdisjoint(_PLACEHOLDER.findall(others))


def read_queries(context: str) -> tuple[PatternQuery, ...]:
    """The templates of all patterns with SQL in a message's context, the best pattern's first."""
    found: list[PatternQuery] = []
    for pattern_id, title, body in _PATTERN.findall(context):
        parameters = body.rpartition("\nParameters:\n")[2].partition("\n\n")[0]
        defaults = {name: default for name, default in _PARAMETER.findall(parameters) if default}
        for name, _, sql in _TEMPLATE.findall(body):
            found.append(PatternQuery(pattern_id, title, sql, defaults, name))
    return tuple(found)


def choose(
    queries: Sequence[PatternQuery], text: str, slots: Slots, values: Mapping[str, Mapping[str, tuple[str, ...]]] = {}
) -> tuple[PatternQuery, Slots] | None:
    """The template that accounts for each word of a question, and its slots; None if a word, period or number is left.

    Args:
        text: the question in plain words, without those that say nothing; ``@p0`` stands for a period.
        values: names of the database by their marks, ``@v0``, with the placeholders that each can stand for.
    """
    named = ((query, filled) for query in queries if (filled := _named(query, text, slots, values)) is not None)
    fitting = [
        (query, filled, shared) for query, filled in named if (shared := _shared(query, text, filled)) is not None
    ]
    return max(fitting, key=lambda one: one[2])[:2] if fitting else None


def _named(
    query: PatternQuery, text: str, slots: Slots, values: Mapping[str, Mapping[str, tuple[str, ...]]]
) -> Slots | None:
    """The slots with the question's names; None if one has no place, or two."""
    names: dict[str, str] = {}
    for mark in re.findall(r"@v\d+", text):
        kinds = [(kind, each) for kind, each in values[mark].items() if kind in query.text_slots()]
        if len(kinds) != 1 or kinds[0][0] in names or len(kinds[0][1]) != 1:
            return None
        names[kinds[0][0]] = kinds[0][1][0]
    return replace(slots, names=tuple(names.items()))


def _shared(query: PatternQuery, text: str, slots: Slots) -> int | None:
    """How many words of a question name the template; None if it does not ask for the title, or for more than that."""
    if len(slots.periods) > 1 or (slots.period and not query.takes_period()) or _PLACEHOLDER.search(query.query(slots)):
        return None
    rest = re.sub(r"@[pv]\d+", " ", text)
    if slots.n is not None:
        rest, count = _NUMBERED.subn(lambda found: f" {found[1] or found[2]} ", rest)
        if count != 1 or not query.takes("n"):
            return None
    words, title, named = _stems(rest), set(_stems(query.title)), set(_stems(query.name))
    own = title.union(named, {"often", "frequently", "top" if slots.n else ""}, *map(_stems, query.columns()))
    filled = {word for name, _ in slots.names for word in _stems(name)}
    subject = set(_stems(re.split(r"[(,]", query.title)[0])) - filled  # what follows says the same in other words
    negates = {"not", "no", "never", "without"} & set(words)
    if not words or not subject <= set(words) <= own or (negates and set(words) != title):
        return None
    return sum(word in named for word in words)


def _stems(text: str) -> list[str]:
    """The words of a text that say something, without their endings."""
    return [_stem(word) for word in re.findall(r"[^\W_]{2,}", text.lower()) if word not in _HARMLESS]


def _stem(word: str) -> str:
    word = word[:-3] + "y" if word.endswith("ies") else word.rstrip("s") if len(word) > 3 else word
    return next((word[: -len(end)] for end in ("ing", "ed") if word.endswith(end) and len(word) > len(end) + 3), word)


def pattern_answer(query: PatternQuery, slots: Slots, result: Json) -> str:
    """Word an answer from the rows that came back, and say which pattern, period and values it rests on."""
    heading = f'{_period(query, slots)}, by the pattern "{query.title}" ({query.pattern_id}){_given(query, slots)}:'
    if not result["rows"]:
        return f"{heading}\nThe query ran and gave no rows: the data holds nothing for this."
    return "\n".join([heading, *listed(result["columns"], result["rows"], result), "", NO_LLM])


def _period(query: PatternQuery, slots: Slots) -> str:
    if not query.takes("start"):
        return "From the whole table"
    if slots.period is not None:
        return f"For {slots.period.start} to {slots.period.end - timedelta(days=1)} ({slots.period.wording})"
    start, end = query.defaults.get("start", _FOREVER[0]), query.defaults.get("end", _FOREVER[1])
    return "Over all dates on record" if (start, end) == _FOREVER else f"From {start} up to, not including, {end}"


def _given(query: PatternQuery, slots: Slots) -> str:
    """The values of a template's other placeholders: the answer holds for them only."""
    mentioned = {"start", "end"} | ({"n"} if slots.n is not None else set())
    given = [f"{name} = {value}" for name, value in query.values(slots).items() if name not in mentioned]
    return f", with {', '.join(given)}" if given else ""
