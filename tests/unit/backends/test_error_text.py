import pytest
from sqlalchemy.exc import NoSuchModuleError, OperationalError, ProgrammingError

from loom_worker.backends.error_text import translated
from loom_worker.backends.results import TooWide
from loom_worker.core.errors import ToolFailed

NO_SUCH = 'Binder Error: Referenced column "x" not found in FROM clause!\nCandidate bindings: "secret"\n\nLINE 1: x'
TIMEOUT = "canceling statement due to statement timeout"
NO_FUNCTION = 'Catalog Error: Scalar Function with name f does not exist!\nDid you mean "secret"?'


def failed(*arguments: object) -> OperationalError:
    return OperationalError("SELECT", None, Exception(*arguments))


@pytest.mark.cases(
    ("error", "said", "code"),
    [
        (ProgrammingError("SELECT", None, Exception(NO_SUCH)), "no such column: x", "INVALID_INPUT"),
        (ProgrammingError("SELECT", None, Exception(NO_FUNCTION)), "Catalog Error: Scalar Function", "INVALID_INPUT"),
        (failed(1054, "Unknown column 'x' in 'SELECT'"), "no such c", "INVALID_INPUT"),
        (failed(1969, "(max_statement_time exceeded)"), "took longer than 2 s", "DATABASE_ERROR"),
        (failed(TIMEOUT), "took longer", "DATABASE_ERROR"),
        (failed(1021, "Disk full"), "Disk full", "DATABASE_ERROR"),
        (OperationalError("x", None, Exception("gone"), connection_invalidated=True), "does not answer", "UNAVAILABLE"),
        (NoSuchModuleError("x"), "does not answer: NoSuchModuleError", "UNAVAILABLE"),
        (TooWide("too many columns"), "too many columns", "INVALID_INPUT"),
    ],
)  # fmt: skip
def test_a_complaint_is_told_in_the_databases_words_and_none_of_its_proposals(
    error: Exception, said: str, code: str
) -> None:
    with pytest.raises(ToolFailed, match=said) as caught, translated(2):
        raise error
    assert caught.value.code == code
    assert "secret" not in str(caught.value)


def test_a_server_that_cannot_be_reached_is_unavailable() -> None:
    with pytest.raises(ToolFailed, match="does not answer: connection refused") as caught, translated(2):
        raise OperationalError(None, None, Exception("connection refused"))
    assert caught.value.code == "UNAVAILABLE"
