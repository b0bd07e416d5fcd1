"""Names in a question, looked up in the database: only what it holds can restrict a query."""

import re
from collections.abc import Collection

from loom_worker.core.values.json import Json
from loom_worker.demo.questions.plan import Where

_SPELLED = "lower(replace(replace(replace({column}, '_', ' '), '&', 'and'), '''', ' '))"
_WORDS = r"(?<![\w@-]){}(?![\w-])"


def lookup_query(text: str, unknown: Collection[str], holds: Collection[tuple[str, str, str]]) -> str:
    """The statement that finds which names of the database a plain text holds; products also by their last word.

    Args:
        unknown: the words that may be names, or parts of names.
        holds: kind, table and column of the names to look for.
    """
    parts, asked = [], re.sub(r"[^\w-]", " ", text)
    for kind, table, column in holds:
        spelled = _SPELLED.format(column=column)
        # A replacement, as databases join texts in different ways.
        conditions = [f"' {asked} ' LIKE replace('% @%', '@', {spelled})"]
        if table == "products":
            last = {word for each in unknown if len(each) > 3 and each.isalpha() for word in (each, each.rstrip("s"))}
            conditions += [f"{spelled} LIKE '% {word}'" for word in sorted(last)]
        parts.append(
            f"SELECT '{kind}' AS kind, {column} AS value FROM {table} WHERE {' OR '.join(conditions)} GROUP BY {column}"
        )
    return "\nUNION\n".join(parts) + "\nORDER BY kind, value"


def marked(text: str, unknown: Collection[str], result: Json) -> tuple[str, tuple[Where, ...]]:
    """The text with ``@v0`` and so on in place of what the lookup found, the longest names first."""
    whole: dict[str, dict[str, tuple[str, ...]]] = {}
    last: dict[str, dict[str, tuple[str, ...]]] = {}
    for kind, value in ((str(row[0]), str(row[1])) for row in result["rows"]):
        name = value.replace("_", " ").replace("&", "and").replace("'", " ").lower()
        for said, found in ((name, whole), (name.rpartition(" ")[2], last if kind == "product" else {})):
            match = re.search(_WORDS.format(rf"{re.escape(said)}s?"), text)
            if match and not set(unknown).isdisjoint(match[0].split()):
                kinds = found.setdefault(match[0], {})
                kinds[kind] = (*kinds.get(kind, ()), value)
    values: list[Where] = []
    for said, kinds in sorted((last | whole).items(), key=lambda one: -len(one[0])):
        text, count = re.subn(_WORDS.format(re.escape(said)), f"@v{len(values)}", text)
        values += [Where(said, kinds)] if count else []
    return text, tuple(values)
