"""A database's complaints as text for the model, without what SQLAlchemy and the drivers add."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DataError, DBAPIError, NotSupportedError, ProgrammingError, SQLAlchemyError

from loom_worker.backends.hints import unknown
from loom_worker.backends.results import TooWide
from loom_worker.core.errors import ToolFailed

MAX_COMPLAINT_CHARS = 2000

_TOO_LONG = re.compile(r"statement timeout|max_statement_time|maximum statement execution time|Interrupted!|timed out")
_WRONG = (ProgrammingError, DataError, NotSupportedError)


@contextmanager
def translated(timeout_s: float) -> Iterator[None]:
    """Raise ToolFailed for whatever a database or its driver raises.

    INVALID_INPUT is the statement's fault, UNAVAILABLE that of a server which does not answer, DATABASE_ERROR all else.
    """
    try:
        yield
    except TooWide as error:
        raise ToolFailed(str(error), "INVALID_INPUT") from error
    except DBAPIError as error:
        raise _failure(error, timeout_s) from error
    except SQLAlchemyError as error:
        raise ToolFailed(f"the database does not answer: {type(error).__name__}", "UNAVAILABLE") from error


def _failure(error: DBAPIError, timeout_s: float) -> ToolFailed:
    message = _message(error)
    if _TOO_LONG.search(message):
        return ToolFailed(f"the query took longer than {timeout_s:g} s: select or group less", "DATABASE_ERROR")
    if missing := unknown(message):
        return ToolFailed(missing, "INVALID_INPUT")
    if error.connection_invalidated or (error.statement is None and not isinstance(error, _WRONG)):
        return ToolFailed(f"the database does not answer: {message[:200]}", "UNAVAILABLE")
    return ToolFailed(message, "INVALID_INPUT" if isinstance(error, _WRONG) else "DATABASE_ERROR")


def _message(error: DBAPIError) -> str:
    """The complaint itself. Hints and proposals are left out: they name columns whatever the scope."""
    diagnosis = getattr(error.orig, "diag", None)
    text = getattr(diagnosis, "message_primary", None)
    if text is None:
        arguments: tuple[object, ...] = getattr(error.orig, "args", ())
        is_numbered = len(arguments) > 1 and isinstance(arguments[0], int)  # as MySQL's are
        text = arguments[1] if is_numbered else str(error.orig)
        text = re.split(r"\n(?:Candidate|Did you mean|LINE )|\n\n", str(text))[0]
    return " ".join(str(text).split())[:MAX_COMPLAINT_CHARS]
