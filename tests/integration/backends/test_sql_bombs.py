"""What is made to keep a parser busy keeps it so for a few seconds at most."""

import contextlib
import time

import pytest

from loom_worker.backends.parse import parse
from loom_worker.backends.statements import MAX_SQL_CHARS
from loom_worker.core.errors import ToolFailed
from tests.support.sql_attacks import BOMBS
from tests.support.until import AT_ONCE_S

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mysql", "duckdb"])
def test_bombs_for_the_parser_go_off_and_raise_nothing_else(kind: str) -> None:
    bombs = [bomb.sql[:MAX_SQL_CHARS] for bomb in BOMBS if not bomb.is_bomb]
    bombs += ["/*" * 5000, "/**/" * 4000, "-- \n" * 4000, "EXPLAIN " * 2000, "(" * 5000]
    bombs += ["SELECT " + "CASE WHEN " * 1500, "SELECT " + "NOT " * 3000 + "1", "SELECT " + "1+" * 3000 + "1"]
    for bomb in bombs:
        start = time.monotonic()
        with contextlib.suppress(ToolFailed):
            parse(bomb, kind)
        assert time.monotonic() - start < AT_ONCE_S, bomb[:20]
