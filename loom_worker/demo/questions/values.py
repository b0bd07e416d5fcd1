"""Names in a question, looked up in the database: only what it holds can restrict a query."""

import re
from collections.abc import Iterable

from loom_worker.core.values.json import Json
from loom_worker.demo.questions.clauses import Value

_MOST_WORDS = 4
_MOST_NGRAMS = 120
_SPELLED = "lower(replace(replace(replace({column}, '_', ' '), '&', 'and'), '''', ' '))"


def ngrams(text: str, unknown: frozenset[str]) -> tuple[str, ...]:
    """The runs of up to four words of a plain text that hold an unknown one, the longest first."""
    words = text.split()
    found: dict[str, None] = {}
    for size in range(_MOST_WORDS, 0, -1):
        for start in range(len(words) - size + 1):
            run = words[start : start + size]
            if unknown.intersection(run) and all(re.fullmatch(r"[a-z0-9-]+", word) for word in run):
                found[" ".join(run)] = None
    return tuple(found)[:_MOST_NGRAMS]


def lookup_query(runs: tuple[str, ...], holds: tuple[tuple[str, str, str], ...]) -> str:
    """The statement that finds which runs of words the database holds, and as what; products also by their last word.

    Args:
        holds: kind, table and column of the names to look for.
    """
    spellings = dict.fromkeys(spelling for run in runs for spelling in _spellings(run))
    listed = ", ".join(f"'{spelling}'" for spelling in spellings)
    parts = [
        f"SELECT '{kind}' AS kind, {column} AS value FROM {table} "
        f"WHERE {_SPELLED.format(column=column)} IN ({listed})"
        f"{_endings(spellings) if table == 'products' else ''} GROUP BY {column}"
        for kind, table, column in holds
    ]
    return "\nUNION\n".join(parts) + "\nORDER BY kind, value"


def _endings(spellings: Iterable[str]) -> str:
    """The condition that finds "tent" in Two-Person Tent."""
    name = _SPELLED.format(column="name")
    return "".join(f" OR {name} LIKE '% {each}'" for each in spellings if _is_kind(each))


def _is_kind(run: str) -> bool:
    return len(run) > 3 and " " not in run and run.isalpha()


def marked(text: str, runs: tuple[str, ...], result: Json) -> tuple[str, tuple[Value, ...]]:
    """The text with ``@v0`` and so on in place of what the lookup found, the longest runs first."""
    known = [(str(row[0]), str(row[1])) for row in result["rows"]]
    values: list[Value] = []
    for run in runs:
        spellings = _spellings(run)
        same = [(kind, value) for kind, value in known if _plain(value) in spellings]
        endings = tuple(f" {each}" for each in spellings if _is_kind(each))
        ends = [("product", value) for kind, value in known if kind == "product" and _plain(value).endswith(endings)]
        kinds: dict[str, tuple[str, ...]] = {}
        for kind, value in same or ends:
            kinds[kind] = (*kinds.get(kind, ()), value)
        pattern = re.compile(rf"(?<![\w@-]){re.escape(run)}(?![\w-])")
        if kinds and pattern.search(text):
            text = pattern.sub(f"@v{len(values)}", text)
            values.append(Value(run, kinds))
    return text, tuple(values)


def _spellings(run: str) -> tuple[str, ...]:
    return (run, run.removesuffix("s")) if len(run) > 3 else (run,)


def _plain(value: str) -> str:
    return value.replace("_", " ").replace("&", "and").replace("'", " ").lower()
