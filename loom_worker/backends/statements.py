"""What SQL text may be run on SQLite at all: one statement, and one that reads; its authorizer judges the rest."""

import re

from loom_worker.core.errors import ToolFailed

MAX_SQL_CHARS = 20_000
READING = ("SELECT", "WITH", "VALUES", "EXPLAIN")
"""First words a statement may have. What follows them is the database's affair: authorizer, read-only transaction."""

_PIECE = re.compile(
    r"""(?P<quoted>'(?:[^']|'')*'?|"(?:[^"]|"")*"?|`[^`]*`?|\[[^\]]*\]?)"""
    r"""|(?P<blank>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))"""
    r"""|(?P<end>;)"""
    r"""|(?P<code>[^\s'"`\[;/-]+|.)""",
    re.DOTALL,
)


def only_statement(sql: str) -> str:
    """Return the one statement of ``sql``, without what may stand around it: blanks, comments, a last semicolon.

    Raises:
        ToolFailed: there is none or a second one, it does not begin with a word that reads, or it is too long.
    """
    if len(sql) > MAX_SQL_CHARS or "\0" in sql:
        raise ToolFailed(f"the SQL is longer than {MAX_SQL_CHARS} characters or holds a NUL", "INVALID_INPUT")
    pieces = [piece for piece in _PIECE.finditer(sql) if piece.lastgroup != "blank"]
    kinds = [piece.lastgroup for piece in pieces]
    last = kinds.index("end") if "end" in kinds else len(pieces)
    if set(kinds[last:]) - {"end"}:
        raise ToolFailed("one statement at a time: send the others in calls of their own", "INVALID_INPUT")
    words = [piece.group() for piece in pieces[:last]]
    if not words or not words[0].lstrip("(").upper().startswith(READING):
        raise ToolFailed("read-only: a statement begins with " + ", ".join(READING), "INVALID_INPUT")
    return sql[pieces[0].start() : pieces[last - 1].end()]
