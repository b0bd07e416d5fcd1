"""SQL text of the model's as one statement that is known to read: by sqlglot, in the database's own dialect.

What is run is put together from the very tokens that were judged, with nothing between them but blanks: a comment, or
a blank of Unicode's, that the database would read differently never reaches it. Spellings whose end sqlglot and a
database might see in different places (dollar quotes, U&"...", optimizer hints, user variables) are refused.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from loom_worker.backends.functions import FUNCTIONS, GRAMMAR
from loom_worker.backends.hints import near
from loom_worker.backends.scope import fold
from loom_worker.backends.statements import MAX_SQL_CHARS, READING
from loom_worker.core.errors import ToolFailed

DIALECTS: Mapping[str, str] = {
    "sqlite": "sqlite",
    "postgresql": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
    "duckdb": "duckdb",
}
"""sqlglot's names of the dialects, by the database's name in its URL."""

Parameters = Sequence[object] | Mapping[str, object]

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
"""PostgreSQL's types that turn text or numbers into names of anything in the database."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement that reads, of tables yet to be judged."""

    tree: exp.Expr
    """A Query or Values; of an EXPLAIN what is to be explained."""
    sql: str
    """For the driver, with ``marker`` for each parameter."""
    values: tuple[object, ...]
    """For the markers, in their order."""
    is_explain: bool


def parse(sql: str, kind: str, *, parameters: Parameters | None = None, marker: str = "?") -> Statement:
    """Read one statement and refuse whatever else there is.

    Args:
        kind: of database, a key of DIALECTS.
        parameters: a mapping for ``:name`` in the text, a sequence for ``?``.
        marker: what the driver calls a parameter: ``?``, or ``%s``, for which other percent signs are doubled.

    Raises:
        ToolFailed: it cannot be parsed, is more than one statement, does anything but read, or calls a function that
            is not known to be harmless.
    """
    if len(sql) > MAX_SQL_CHARS or "\0" in sql:
        raise refused(f"the SQL is longer than {MAX_SQL_CHARS} characters or holds a NUL")
    dialect = DIALECTS[kind]
    explain = _EXPLAIN.match(sql)
    body = sql[explain.end() :] if explain else sql
    tokens = _tokens(body, dialect)
    values, places = _parameters(tokens, parameters)
    tree = _tree(_text(body, tokens, dict.fromkeys(places, "?")), dialect)
    _only_reads(tree, len(values))
    if kind != "sqlite":
        _only_known_functions(tokens, tree, dialect)
    escape = _doubled if values and marker == "%s" else str
    text = _text(body, tokens, dict.fromkeys(places, marker), escape)
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
    """Values in the order of their places, and the places: indexes of tokens (a name is the one after its colon)."""
    if parameters is None:
        return (), []
    if isinstance(parameters, Mapping):
        return _named(tokens, parameters)
    places = [place for place, token in enumerate(tokens) if token.token_type == TokenType.PLACEHOLDER]
    if len(places) != len(parameters):
        raise refused(f"the SQL has {len(places)} times ?, but there are {len(parameters)} parameters")
    return tuple(parameters), places


def _named(tokens: Sequence[Token], parameters: Mapping[str, object]) -> tuple[tuple[object, ...], list[int]]:
    places = []
    for place, (colon, name) in enumerate(pairwise(tokens)):
        is_named = colon.token_type == TokenType.COLON and colon.end + 1 == name.start and name.text in parameters
        if is_named and not (place and tokens[place - 1].token_type == TokenType.L_BRACKET):
            places.append(place + 1)
    if unused := sorted(set(parameters) - {tokens[place].text for place in places}):
        raise refused(f"no parameter of the SQL is called :{unused[0]}")
    return tuple(parameters[tokens[place].text] for place in places), places


def _text(sql: str, tokens: Sequence[Token], markers: Mapping[int, str], escape: Callable[[str], str] = str) -> str:
    """The tokens as they were written, with blanks where anything stood between them, and markers for parameters."""
    parts: list[str] = []
    end = tokens[0].start
    for place, token in enumerate(tokens):
        gap = sql[end : token.start]
        parts.append(("\n" if "\n" in gap else " ") if gap else "")
        if place in markers and token.token_type != TokenType.PLACEHOLDER:
            parts.pop()
            parts.pop()  # the colon
        parts.append(markers[place] if place in markers else escape(sql[token.start : token.end + 1]))
        end = token.end + 1
    return "".join(parts)


def _doubled(text: str) -> str:
    return text.replace("%", "%%")


def _tree(sql: str, dialect: str) -> exp.Expr:
    try:
        trees = sqlglot.parse(sql, dialect=dialect)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        near_by = f"{first.get('start_context', '')}{first.get('highlight', '')}"[-40:]
        place = f"line {first.get('line')}, column {first.get('col')}"
        raise refused(f"the SQL cannot be parsed at {place}: {first.get('description')} near {near_by!r}") from error
    except (TokenError, RecursionError) as error:
        raise refused("the SQL cannot be parsed: it is nested too deeply or not closed") from error
    if len(trees) != 1 or trees[0] is None:
        raise refused("one statement at a time: send the others in calls of their own")
    return trees[0]


def _only_reads(tree: exp.Expr, parameters: int) -> None:
    bodies = [tree, *(cte.this for cte in tree.find_all(exp.CTE))]
    writing = next(tree.find_all(*_NO_READING), None)
    if writing is not None or not all(isinstance(body, (exp.Query, exp.Values)) for body in bodies):
        what = f", and no {writing.key.upper()} in it" if writing is not None else ""
        raise refused(_ONLY_READING + what)
    if len(list(tree.find_all(exp.Placeholder))) > parameters:
        raise refused("the SQL has a parameter (? or :name) whose value is not in parameters")


def _only_known_functions(tokens: Sequence[Token], tree: exp.Expr, dialect: str) -> None:
    """Judge every word before a bracket as it is written, whatever sqlglot took it for."""
    known = FUNCTIONS[dialect]
    named = [fold(alias.name) for alias in tree.find_all(exp.TableAlias) if alias.columns]
    for place, token in enumerate(tokens[:-1]):
        word = fold(token.text)
        if tokens[place + 1].token_type != TokenType.L_PAREN or not _is_word(token):
            continue
        if word in named:  # WITH name(a, b) AS, FROM t AS name(a, b): once for each that is defined
            named.remove(word)
            continue
        is_quoted = token.token_type == TokenType.IDENTIFIER
        is_qualified = place > 0 and tokens[place - 1].token_type == TokenType.DOT
        if is_qualified or not (word in known or (word in GRAMMAR and not is_quoted)):
            likely = ", ".join(near(word, known)[:3])
            raise refused(
                f"the function {token.text[:60]} may not be used here; there are {likely} and other usual ones"
            )


def _is_word(token: Token) -> bool:
    if token.token_type in (TokenType.STRING, TokenType.NUMBER):
        return False
    return token.token_type == TokenType.IDENTIFIER or token.text[:1].isalpha() or token.text[:1] in ("_", "$")
