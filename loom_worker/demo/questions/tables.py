"""Questions about tables as such, of whatever database: which there are, their columns, how many rows they have."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from loom_worker.core.values.json import Json
from loom_worker.demo.questions.vocabulary import idle_left_out

_SHOW = r"(?:(?:show|list|give|what|which|print|describe) )?(?:all )?"
_NAME = r"(?P<table>[a-z][\w -]*?)"
_ROWS = r"(?P<plain>(?:rows|records|entries)(?: (?:of|in))?(?: table)? )"
_FORMS = (
    ("tables", rf"(?:{_SHOW}|how many )(?:database )?tables(?: exist| available)?(?: in)?(?: (?:database|data))?"),
    ("columns", rf"{_SHOW}(?:columns|fields|column names)(?: (?:of|in|for))? (?:table )?{_NAME}(?: table)?"),
    ("columns", rf"{_SHOW}{_NAME} table (?:columns|fields)"),
    ("columns", rf"(?:describe|(?:show )?(?:schema|structure) of) (?:table )?{_NAME}(?: table)?"),
    ("rows", rf"(?:how many|number of|count(?: of)?) {_ROWS}{_NAME}(?: table)?"),
    ("rows", rf"(?:how many|number of) {_NAME}(?: exist)?"),
)


@dataclass(frozen=True, slots=True)
class TableQuestion:
    """What is asked about tables: which there are, or the ``columns`` or ``rows`` of one."""

    kind: str
    name: str
    """The table as the question writes it; empty if all are asked for."""
    is_plain: bool
    """False: the words may mean a table or something else, "how many albums"."""


def read_table_question(text: str) -> TableQuestion | None:
    """What a plain text asks about tables; None if it is about something else."""
    rest = idle_left_out(text)
    for kind, pattern in _FORMS:
        if (found := re.fullmatch(pattern, rest)) is not None:
            said = found.groupdict()
            return TableQuestion(kind, said.get("table") or "", kind != "rows" or "plain" in said)
    return None


def read_tables(content: str) -> list[Json] | None:
    """The tables that list_tables or get_schema gave; None if the text cannot be read, or is cut."""
    try:
        listed = json.loads(content)
        return None if listed.get("truncated") else list(listed["tables"])
    except (ValueError, LookupError, TypeError):
        return None


def named(name: str, tables: Sequence[str]) -> str | None:
    """The table that a question means; None if there is no such table, or more than one."""
    found = [each for each in tables if each.lower().replace("_", " ").rpartition(".")[2] in (name, name + "s")]
    return found[0] if len(found) == 1 else None


def count_rows(table: str) -> str:
    """The statement that counts a table's rows."""
    parts = ('"' + each.replace('"', '""') + '"' for each in table.split("."))
    return f"SELECT COUNT(*) AS row_count FROM {'.'.join(parts)}"
