"""The sample shop that the demo model is asked about, with views for the statements that its answers are held to."""

from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from loom_worker.core.sqlite_driver import sqlite3
from tests.support.sample_shop import copy_shop

TODAY = date(2026, 11, 23)
NEWCOMERS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "demo_newcomers.yaml").read_text("utf-8"))
Figures = list[tuple[Any, ...]]


@cache
def shop() -> sqlite3.Connection:
    """The shop with the views ``sold``, ``placed`` and ``back``, of which the demo model knows nothing."""
    connection = copy_shop(TODAY)
    for name, sql in NEWCOMERS["views"].items():
        connection.execute(f"CREATE TEMP VIEW {name} AS {sql}")
    return connection


def figures(sql: str) -> Figures:
    """The rows of a statement that was written apart from the demo model's rules."""
    return shop().execute(sql.replace("'now'", f"'{TODAY}'")).fetchall()
