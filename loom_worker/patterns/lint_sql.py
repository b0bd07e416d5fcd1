"""Whether a template is SQL once its placeholders are filled in."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from loom_worker.core.values.patterns import Parameter, Pattern
from loom_worker.patterns.render import fill, placeholders

DIALECTS: dict[str, tuple[str | None, ...]] = {
    "sql": (None, "sqlite", "postgres", "mysql", "duckdb"),
    "sqlite": ("sqlite",),
    "postgresql": ("postgres",),
    "mysql": ("mysql",),
    "mariadb": ("mysql",),
    "duckdb": ("duckdb",),
}
"""sqlglot's dialects for each ``backend_type`` with SQL templates; one that parses is enough."""

_NUMBERS = ("int", "num", "float", "dec", "double", "real")


def trouble(template: str, pattern: Pattern) -> str:
    """Why no dialect of the pattern's backend reads a template, in one line; empty: one does."""
    told = ""
    for is_bare in (False, True):
        values = {parameter.name: _value(parameter, is_bare=is_bare) for parameter in pattern.parameters}
        filled = _filled(template, values)
        for dialect in DIALECTS[pattern.backend_type]:
            problem = _problem(filled, dialect)
            if not problem:
                return ""
            told = told or problem
    return told


def _filled(template: str, values: Mapping[str, str]) -> str:
    return fill(template, {**{name: name for name in placeholders(template)}, **values})


def _problem(sql: str, dialect: str | None) -> str:
    from sqlglot import ErrorLevel, parse
    from sqlglot.errors import ParseError, SqlglotError

    try:
        with _quiet(logging.getLogger("sqlglot")):
            statements = parse(sql, read=dialect, error_level=ErrorLevel.IMMEDIATE)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        return f"{first.get('description', 'not readable')} at its line {first.get('line', 1)}"
    except (SqlglotError, RecursionError) as error:
        return str(error).splitlines()[0][:120]
    return "" if any(statements) else "there is no statement in it"


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Keep sqlglot from warning of statements that it knows by their first word only, such as EXPLAIN."""
    was, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was


def _value(parameter: Parameter, *, is_bare: bool) -> str:
    """What stands for a placeholder: its default or example; bare: something that any place takes."""
    given = (parameter.default if parameter.default is not None else parameter.example) if not is_bare else ""
    if given:
        return given
    return "1" if parameter.type.lower().startswith(_NUMBERS) else parameter.name
