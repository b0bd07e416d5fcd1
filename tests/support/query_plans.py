"""How a database finds the rows of every statement of an act, its triggers' included: `plans(database, act)`."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from loom_worker.store.database import Database
from tests.support.every_connection import each_connection
from tests.support.sql_heard import heard

_EXPLAINED = """
LOAD 'auto_explain';
SET auto_explain.log_min_duration = 0;
SET auto_explain.log_nested_statements = on;
SET auto_explain.log_analyze = on;
SET auto_explain.log_format = json;
SET client_min_messages = log;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_sort = off;
"""
"""Tables of a few rows are read from end to end even where there is an index, unless nothing else is left."""

_COMPARED = re.compile(r'\(+"?(\w+)"?\)?(?:::\w+)? ([<=>])')


def plans(database: Database, act: Callable[[], object]) -> list[str]:
    """In SQLite's words: SEARCH turns USING INDEX turns_unfinished (lane=?)."""
    if database.engine.name == "PostgreSQL":
        with nodes_heard(database) as nodes:
            act()
        return [words for node in nodes if (words := _in_words(node))]
    with heard(database) as said:
        act()
    found = []
    with database.read() as tx:
        for statement in said:
            if statement.startswith(("SELECT", "WITH", "UPDATE", "DELETE")):
                # With its values in it, so that what looks like a parameter is part of a text.
                rows = tx.exec_driver_sql("EXPLAIN QUERY PLAN " + statement.replace("%", "%%")).all()
                found += [str(row[-1]) for row in rows]
    return found


@contextmanager
def nodes_heard(database: Database) -> Iterator[list[dict[str, Any]]]:
    """The nodes of all plans that PostgreSQL carries out meanwhile, with the rows that it reads."""
    nodes: list[dict[str, Any]] = []

    def hear(notice: psycopg.errors.Diagnostic) -> None:
        _, is_plan, plan = (notice.message_primary or "").partition(" plan:\n")
        if is_plan:
            nodes.extend(_flat(json.loads(plan)["Plan"]))

    def listen(raw: "psycopg.Connection[Any]", *_: Any) -> None:
        raw.add_notice_handler(hear)
        raw.execute(_EXPLAINED)

    with each_connection(database, listen):
        yield nodes


def rows_read(node: dict[str, Any]) -> int:
    """Those that a node took from a table, or by an index."""
    if "Relation Name" not in node:
        return 0
    each = node.get("Actual Rows", 0) + node.get("Rows Removed by Filter", 0)
    return int(each * node.get("Actual Loops", 1))


def _flat(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for inner in node.get("Plans", ()):
        yield from _flat(inner)


def _in_words(node: dict[str, Any]) -> str:
    kind, table, index = node["Node Type"], node.get("Relation Name"), node.get("Index Name", "")
    if kind == "Seq Scan":
        return f"SCAN {table}"
    if kind in ("Sort", "Incremental Sort"):
        return "USE TEMP B-TREE FOR ORDER BY"
    if not index:
        return ""
    condition = " AND ".join(f"{column}{sign}?" for column, sign in _COMPARED.findall(node.get("Index Cond", "")))
    found_by = f"USING INDEX {index}"
    return f"SEARCH {table} {found_by} ({condition})" if condition else f"SCAN {table} {found_by}"
