"""Something done before each statement that a connection to PostgreSQL is given."""

from collections.abc import Callable
from typing import Any

import psycopg


def before_each(raw: "psycopg.Connection[Any]", act: Callable[[str], object]) -> None:
    """`act` is given its text, the values written into it; of many rows at once those of the first."""
    if "execute" in vars(raw):  # a connection is checked out many times
        return
    usual: Any = raw.cursor_factory
    sent = raw.execute

    class Cursor(usual):  # type: ignore[misc]
        def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
            _tell(raw, act, query, params)
            return super().execute(query, params, **options)

        def executemany(self, query: Any, params_seq: Any, **options: Any) -> None:
            rows = list(params_seq)
            for values in rows[:1]:
                _tell(raw, act, query, values)
            super().executemany(query, rows, **options)

    def execute(query: Any, params: Any = None, **options: Any) -> Any:
        _tell(raw, act, query, params)
        return sent(query, params, **options)

    raw.cursor_factory = Cursor
    raw.execute = execute  # type: ignore[method-assign]


def _tell(raw: "psycopg.Connection[Any]", act: Callable[[str], object], query: Any, params: Any) -> None:
    act(psycopg.ClientCursor(raw).mogrify(query, params))
