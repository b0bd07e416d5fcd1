"""Parses the model's SQL into one statement that only reads: by sqlglot, in the database's own dialect.

What runs is put together from the very tokens that were judged, with only blanks between them: a comment or a Unicode
blank that the database would read differently never reaches it. Spellings that may end in different places for sqlglot
and the database (dollar quotes, U&"...", optimizer hints, user variables) are refused.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from loom_worker.backends.error_text import near
from loom_worker.backends.functions import FUNCTIONS, GRAMMAR
from loom_worker.backends.scope import fold
from loom_worker.backends.statements import MAX_SQL_CHARS, READING, Parameters
from loom_worker.core.errors import ToolFailed


class MySqlAnsi(MySQL):
    """MySQL with ``ANSI_QUOTES``, as ``servers`` sets it: what stands in double quotes is a name, never a text."""

    class Tokenizer(MySQL.Tokenizer):
        """Where names and texts end."""

        QUOTES: ClassVar[list[tuple[str, str] | str]] = ["'"]
        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ["`", '"']


DIALECTS: Mapping[str, str] = {
    "sqlite": "sqlite",
    "postgresql": "postgres",
    "mysql": "mysqlansi",
    "mariadb": "mysqlansi",
    "duckdb": "duckdb",
}
"""sqlglot's name of each dialect, by the database's name in its URL."""

_EXPLAIN = re.compile(
    r"(?>\s+|--[^\n]*\n|/\*.*?\*/)*+EXPLAIN(?P<how>(?:\s+(?:QUERY\s+PLAN|ANALYZE|VERBOSE|EXTENDED|FORMAT\s*=\s*\w+))*)\s",
    re.IGNORECASE | re.DOTALL,
)
_UNCLEAR = frozenset(
    {
        TokenType.PARAMETER,
        TokenType.SESSION_PARAMETER,
        TokenType.HINT,
        TokenType.HEREDOC_STRING,
        TokenType.UNICODE_STRING,
        TokenType.BLOCK_START,
        TokenType.BLOCK_END,
    }
)
_NO_READING = (
    exp.DML,
    exp.DDL,
    exp.Command,
    exp.Into,
    exp.Lock,
    exp.Parameter,
    exp.SessionParameter,
    exp.NextValueFor,
    exp.Describe,
    exp.Show,
)
_FIRST = frozenset({*READING, "(", "FROM"})
_ONLY_READING = "read-only: a statement begins with " + ", ".join(READING)
_NAMES_AS_NUMBERS = frozenset(
    "regclass regproc regprocedure regoper regoperator regrole regnamespace regtype regconfig regdictionary "
    "regcollation".split()
)
"""PostgreSQL types that turn text or numbers into names of anything in the database."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement that only reads; the tables it reads are yet to be judged."""

    tree: exp.Expr
    """A Query or Values; of an EXPLAIN, the statement to be explained."""
    sql: str
    """For the driver, with ``marker`` for each parameter."""
    values: tuple[object, ...]
    """For the markers, in order."""
    is_explain: bool


def parse(sql: str, kind: str, *, parameters: Parameters | None = None, marker: str = "?") -> Statement:
    """Parse one statement and refuse anything else.

    Args:
        kind: of database, a key of DIALECTS.
        parameters: a mapping for ``:name`` in the text, a sequence for ``?``.
        marker: how the driver marks a parameter: ``?``, or ``%s``, for which other percent signs are doubled.

    Raises:
        ToolFailed: the text cannot be parsed, is more than one statement, does anything but read, or calls a function
            that is not known to be harmless.
    """
    if len(sql) > MAX_SQL_CHARS or "\0" in sql:
        raise refused(f"the SQL is longer than {MAX_SQL_CHARS} characters or holds a NUL")
    dialect = DIALECTS[kind]
    explain = _EXPLAIN.match(sql)
    body = sql[explain.end() :] if explain else sql
    tokens = _tokens(body, dialect)
    values, positions = _parameters(tokens, parameters)
    tree = _reading_tree(_text(body, tokens, dict.fromkeys(positions, "?")), dialect, parameters=len(values))
    if kind != "sqlite":
        _only_known_functions(tokens, tree, dialect)
    is_escaped = bool(values) and marker == "%s"
    text = _text(body, tokens, dict.fromkeys(positions, marker), is_escaped=is_escaped)
    prefix = f"EXPLAIN{explain['how']} " if explain else ""
    return Statement(tree, prefix + text, values, explain is not None)


def refused(text: str) -> ToolFailed:
    """The failure of a statement that the model can correct."""
    return ToolFailed(text, "INVALID_INPUT")


def _tokens(sql: str, dialect: str) -> list[Token]:
    try:
        tokens = list(sqlglot.tokenize(sql, dialect=dialect))
    except TokenError as error:
        raise refused(f"the SQL cannot be parsed: a quote or comment is not closed: {str(error)[:200]}") from error
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    if not tokens or tokens[0].text.upper() not in _FIRST:
        raise refused(_ONLY_READING)
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            raise refused("one statement at a time: send the others in calls of their own")
        if token.token_type in _UNCLEAR or fold(token.text) in _NAMES_AS_NUMBERS:
            raise refused(f"{sql[token.start : token.end + 1][:50]!r} may not be used here")
    if unclear := re.search(r"U&['\"]|/\*M?!", sql, re.IGNORECASE):
        raise refused(f"{unclear.group()!r} may not be used here, not even inside a text")
    return tokens


def _parameters(tokens: Sequence[Token], parameters: Parameters | None) -> tuple[tuple[object, ...], list[int]]:
    """Values in the order of the statement, and the indexes of their tokens (of a name: the token after the colon)."""
    if parameters is None:
        return (), []
    if not isinstance(parameters, Mapping):
        positions = [at for at, token in enumerate(tokens) if token.token_type == TokenType.PLACEHOLDER]
        if len(positions) != len(parameters):
            raise refused(f"the SQL has {len(positions)} times ?, but there are {len(parameters)} parameters")
        return tuple(parameters), positions
    positions = []
    for at, (colon, name) in enumerate(pairwise(tokens)):
        is_named = colon.token_type == TokenType.COLON and colon.end + 1 == name.start and name.text in parameters
        if is_named and not (at and tokens[at - 1].token_type == TokenType.L_BRACKET):
            positions.append(at + 1)
    if unused := sorted(set(parameters) - {tokens[at].text for at in positions}):
        raise refused(f"no parameter of the SQL is called :{unused[0]}")
    return tuple(parameters[tokens[at].text] for at in positions), positions


def _text(sql: str, tokens: Sequence[Token], markers: Mapping[int, str], *, is_escaped: bool = False) -> str:
    """The tokens as they were written, with blanks where anything stood between them, and markers for parameters."""
    parts: list[str] = []
    end = tokens[0].start
    for at, token in enumerate(tokens):
        gap = sql[end : token.start]
        parts.append(("\n" if "\n" in gap else " ") if gap else "")
        if at in markers and token.token_type != TokenType.PLACEHOLDER:
            parts.pop()
            parts.pop()  # the colon
        written = sql[token.start : token.end + 1]
        parts.append(markers.get(at, written.replace("%", "%%") if is_escaped else written))
        end = token.end + 1
    return "".join(parts)


def _reading_tree(sql: str, dialect: str, *, parameters: int) -> exp.Expr:
    """The one tree of the text, if it does nothing but read and has no more than these parameters."""
    try:
        trees = sqlglot.parse(sql, dialect=dialect)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        near_by = f"{first.get('start_context', '')}{first.get('highlight', '')}"[-40:]
        where = f"line {first.get('line')}, column {first.get('col')}"
        raise refused(f"the SQL cannot be parsed at {where}: {first.get('description')} near {near_by!r}") from error
    except (TokenError, RecursionError) as error:
        raise refused("the SQL cannot be parsed: it is nested too deeply or not closed") from error
    if len(trees) != 1 or trees[0] is None:
        raise refused("one statement at a time: send the others in calls of their own")
    tree = trees[0]
    bodies = [tree, *(cte.this for cte in tree.find_all(exp.CTE))]
    writing = next(tree.find_all(*_NO_READING), None)
    if writing is not None or not all(isinstance(body, (exp.Query, exp.Values)) for body in bodies):
        what = f", and no {writing.key.upper()} in it" if writing is not None else ""
        raise refused(_ONLY_READING + what)
    if len(list(tree.find_all(exp.Placeholder))) > parameters:
        raise refused("the SQL has a parameter (? or :name) whose value is not in parameters")
    return tree


def _only_known_functions(tokens: Sequence[Token], tree: exp.Expr, dialect: str) -> None:
    """Judge every word before a bracket as it is written, whatever sqlglot took it for."""
    known = FUNCTIONS[dialect]
    named = [fold(alias.name) for alias in tree.find_all(exp.TableAlias) if alias.columns]
    for at, token in enumerate(tokens[:-1]):
        word = fold(token.text)
        if tokens[at + 1].token_type != TokenType.L_PAREN or not _is_word(token):
            continue
        if word in named:  # WITH name(a, b) AS, FROM t AS name(a, b): once for each that is defined
            named.remove(word)
            continue
        is_quoted = token.token_type == TokenType.IDENTIFIER
        is_qualified = at > 0 and tokens[at - 1].token_type == TokenType.DOT
        if is_qualified or not (word in known or (word in GRAMMAR and not is_quoted)):
            likely = ", ".join(near(word, known)[:3])
            raise refused(
                f"the function {token.text[:60]} may not be used here; there are {likely} and other usual ones"
            )


def _is_word(token: Token) -> bool:
    if token.token_type in (TokenType.STRING, TokenType.NUMBER):
        return False
    return token.token_type == TokenType.IDENTIFIER or token.text[:1].isalpha() or token.text[:1] in ("_", "$")
