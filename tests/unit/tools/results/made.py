"""Results and callers as the tests of large results need them."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loom_worker.core.values.tools import Caller
from loom_worker.core.values.turns import Claim
from loom_worker.llm.tokens import cl100k_tokens
from loom_worker.tools.references import Kept, References

Make = Callable[..., References]
HOUR_MS = 3_600_000
COLUMNS = ["id", "name", "price", "city"]


def caller_of(claim: Claim) -> Caller:
    turn = claim.turn
    return Caller(turn.lane, turn.session_id, turn.workspace, turn.id, "toolu_1")


def orders(count: int) -> list[list[Any]]:
    return [[n, f"Customer {n * 7 % 1000}", n % 90 + 0.5, ("Rome", "Oslo", "Lima")[n % 3]] for n in range(count)]


def table(count: int) -> str:
    """What a query of a database gives."""
    return json.dumps({"columns": COLUMNS, "rows": orders(count), "row_count": count, "truncated": False})


def objects(count: int) -> str:
    return json.dumps([dict(zip(COLUMNS, row, strict=True)) for row in orders(count)])


def csv_text(count: int) -> str:
    return "\n".join(",".join(map(str, row)) for row in [COLUMNS, *orders(count)])


def keep(references: References, text: str, caller: Caller, content_type: str = "text/plain") -> Kept:
    """Keep a result, for which there must be room."""
    kept = references.keep(text, content_type, caller, tool="execute_sql", count=cl100k_tokens)
    assert kept is not None
    return kept


def files(folder: Path) -> list[Path]:
    return [path for path in (folder / "blobs").rglob("*") if path.is_file()]


def a_day_later() -> int:
    return int(time.time() * 1000) + 24 * HOUR_MS


def tidied(references: References, moment_ms: int) -> int:
    """All rounds that look at every folder once."""
    return sum(references.tidy(moment_ms) for _ in range(256))
