"""Questions about tables as such, of whatever database: which there are, their columns, how many rows they have."""

import json
import re
from dataclasses import dataclass
from typing import Literal

from loom_worker.demo.questions.words import idle_left_out

Kind = Literal["tables", "columns", "rows"]
_SHOW = r"(?:(?:show|list|give|what|which|print|describe) )?(?:all )?"
_NAME = r"(?P<table>[a-z][\w -]*?)"
_FORMS: tuple[tuple[Kind, str], ...] = (
    ("tables", rf"(?:{_SHOW}|how many )(?:database )?tables(?: exist| available)?(?: in)?(?: (?:database|data))?"),
    ("columns", rf"{_SHOW}(?:columns|fields|column names)(?: (?:of|in|for))? (?:table )?{_NAME}(?: table)?"),
    ("columns", rf"{_SHOW}{_NAME} table (?:columns|fields)"),
    ("columns", rf"(?:describe|(?:show )?(?:schema|structure) of) (?:table )?{_NAME}(?: table)?"),
    (
        "rows",
        rf"(?:how many|number of|count|count of) (?:rows|records|entries)(?: (?:of|in))?(?: table)? {_NAME}(?: table)?",
    ),
    ("rows", rf"(?:how many|number of) {_NAME}(?: exist)?"),
)


@dataclass(frozen=True, slots=True)
class TableQuestion:
    """What is asked about tables."""

    kind: Kind
    name: str = ""
    """The table as the question writes it."""
    is_plain: bool = True
    """False: the words may mean a table or something else, "how many albums"."""


def read_table_question(text: str) -> TableQuestion | None:
    """What a plain text (``words.plain``) asks about tables; None if it is about something else."""
    rest = idle_left_out(text)
    for kind, pattern in _FORMS:
        found = re.fullmatch(pattern, rest)
        if found is not None:
            is_plain = kind != "rows" or re.search(r"\b(?:rows|records|entries)\b", rest) is not None
            return TableQuestion(kind, found.groupdict().get("table") or "", is_plain)
    return None


def table_names(content: str) -> tuple[str, ...] | None:
    """The names that list_tables gave; None if its text cannot be read, or is cut."""
    try:
        listed = json.loads(content)
        names = tuple(str(table["name"]) for table in listed["tables"])
    except (ValueError, LookupError, TypeError):
        return None
    return None if listed.get("truncated") else names


def named(name: str, tables: tuple[str, ...]) -> str | None:
    """The table that a question means; None if there is no such table, or more than one."""
    wanted = {name, name + "s"}
    found = [table for table in tables if table.lower().replace("_", " ").rpartition(".")[2] in wanted]
    return found[0] if len(found) == 1 else None


def count_rows(table: str) -> str:
    """The statement that counts a table's rows."""
    parts = [
        part if re.fullmatch(r"[A-Za-z_]\w*", part) else '"' + part.replace('"', '""') + '"'
        for part in table.split(".")
    ]
    quoted = ".".join(parts)
    return f"SELECT COUNT(*) AS row_count FROM {quoted}"


def columns_worded(table: str, content: str) -> str | None:
    """The columns of a table as get_schema gave them; None if they cannot be read."""
    try:
        (found,) = [each for each in json.loads(content)["tables"] if each["name"] == table]
        lines = [f"{column['name']} {column.get('type', '')}".strip() for column in found["columns"]]
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    return "\n".join([f"The table {table} has {len(lines)} columns:", *lines]) if lines else None
