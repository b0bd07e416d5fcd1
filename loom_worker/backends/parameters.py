"""What may be bound to a statement: values that every driver takes, so that none fails in a way of its own. Pure.

A driver that cannot take a value raises what no database raised, and that would count against the database itself.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from loom_worker.core.errors import ToolFailed

Parameters = Mapping[str, object] | Sequence[object]

SQLITE_BITS = 63
"""Of a whole number, beside its sign."""
MOST_DIGITS = 38
"""Of a whole number on the other databases: what the widest decimal types of all of them hold."""


def checked(parameters: Parameters | None, kind: str) -> Parameters | None:
    """Return the parameters.

    Args:
        kind: of the database, as SQLAlchemy names it.

    Raises:
        ToolFailed: INVALID_INPUT, with the parameter's name or place and what is wrong with it.
    """
    for name, value in _named(parameters):
        if flaw := _flaw(value, kind):
            raise ToolFailed(f"parameter {name[:100]!r} {flaw}", "INVALID_INPUT")
    return parameters


def _named(parameters: Parameters | None) -> Iterator[tuple[str, object]]:
    if isinstance(parameters, Mapping):
        for name, value in parameters.items():
            yield name, value
    else:
        for place, value in enumerate(parameters or (), start=1):
            yield str(place), value


def _flaw(value: object, kind: str) -> str | None:
    match value:
        case bool():
            return None
        case int() if kind == "sqlite":
            is_large = not -(1 << SQLITE_BITS) <= value < 1 << SQLITE_BITS
            return "is a whole number of more than 64 bits: give it as text" if is_large else None
        case int():
            is_large = abs(value) >= 10**MOST_DIGITS
            return f"is a whole number of more than {MOST_DIGITS} digits: give it as text" if is_large else None
        case float():
            return None if math.isfinite(value) else "is no finite number"
        case str():
            return "contains half of a character (a lone surrogate)" if is_torn(value) else None
    return None


def is_torn(text: str) -> bool:
    """True for a text with a lone surrogate, which has no bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
