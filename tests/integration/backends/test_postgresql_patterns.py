"""The patterns for PostgreSQL on a server of its own that holds the sample shop.

What reads the system catalogs runs as the server's owner would run it; all else by an agent's execute_sql, as a user
who may read the shop and the views that the owner made of those reports.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from loom_worker.backends.sql import SqlBackend
from loom_worker.core.errors import ToolFailed
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.values.patterns import Pattern
from loom_worker.demo import shop
from loom_worker.patterns.render import fill
from tests.support.callers import CALLER
from tests.support.postgres import Postgres
from tests.support.shipped_patterns import shipped
from tests.support.until import until

pytestmark = [pytest.mark.integration, pytest.mark.heavy, pytest.mark.takes(10)]

PATTERNS = {pattern.id: pattern for pattern in shipped().patterns if pattern.backend_type == "postgresql"}
TEMPLATES = [(pattern_id, name) for pattern_id, pattern in PATTERNS.items() for name in pattern.templates]
OWNERS = [(each, name) for each, name in TEMPLATES if re.search(r"\bpg_", PATTERNS[each].templates[name].text)]
AGENTS = [each for each in TEMPLATES if each not in OWNERS]
REPORTS = {each: PATTERNS[each] for each, name in TEMPLATES if name == "from_view"}

EVENTS = """
CREATE TABLE events (id integer PRIMARY KEY, payload jsonb);
INSERT INTO events VALUES
  (1, '{"kind": "purchase", "channel": "web", "amount": 12.5, "items": [{"sku": "A-1"}, {"sku": "B-2"}]}'),
  (2, '{"kind": "purchase", "channel": "shop", "amount": "unknown", "items": [{"sku": "A-1"}]}'),
  (3, '{"kind": "visit", "channel": "web", "items": "none"}'),
  (4, '["no object"]'),
  (5, NULL);
"""
USERS = """
CREATE ROLE agent LOGIN;
GRANT pg_monitor TO agent;
CREATE ROLE guest LOGIN;
GRANT USAGE ON SCHEMA ops TO agent, guest;
GRANT SELECT ON ALL TABLES IN SCHEMA public, ops TO agent, guest;
"""
WORK = """
CREATE INDEX orders_by_customer_and_time ON orders (customer_id, ordered_at);
DELETE FROM payments WHERE id <= 300;
SELECT sum(quantity) FROM order_lines;
SELECT count(*) FROM orders WHERE shipping_cost > 5;
"""
"""Leaves a covered index, dead rows and sequential scans behind."""
SAME_ORDER = "UPDATE orders SET status = status WHERE id = 1"

Rows = list[list[Any]]


class Server:
    """The shop's database, as its owner and as an agent's users reach it."""

    def __init__(self, port: int) -> None:
        self._port = port

    def connect(self) -> Any:
        """A connection of the owner's; each statement is its own transaction."""
        import psycopg

        return psycopg.connect(f"host=127.0.0.1 port={self._port} user=loom dbname=pattern_shop", autocommit=True)

    def owner(self, sql: str) -> Rows:
        """What the owner gets at psql."""
        with self.connect() as connection:
            return [list(row) for row in connection.execute(sql).fetchall()]

    def agent(self, sql: str, *, user: str = "agent", **more: object) -> Rows:
        """What an agent gets from execute_sql; ``more`` are further arguments of it."""
        url = f"postgresql+psycopg://{user}@127.0.0.1:{self._port}/pattern_shop"
        with closing(SqlBackend(url, timeout_s=20)) as backend:
            tool = next(tool for tool in backend.tools() if tool.spec.name == "execute_sql")
            rows: Rows = json.loads(str(tool.run({"sql": sql, **more}, CALLER)))["rows"]
            return rows


def filled(pattern_id: str, template: str, **values: str) -> str:
    """A template with its defaults, but for the values that are given."""
    pattern = PATTERNS[pattern_id]
    defaults = {parameter.name: parameter.default or "" for parameter in pattern.parameters}
    return fill(pattern.templates[template].text, defaults | values)


@pytest.fixture(scope="module")
def server(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server with the shop, events, the reports as views, and two sessions of which one blocks the other."""
    import psycopg

    with psycopg.connect(f"host=127.0.0.1 port={postgres.port} user=loom dbname=postgres", autocommit=True) as first:
        first.execute("CREATE DATABASE pattern_shop")
    server = Server(postgres.port)
    shop_path = tmp_path_factory.mktemp("shop") / "shop.db"
    shop.build(shop_path, today=date(2026, 1, 1))
    with server.connect() as connection:
        copy(shop_path, connection)
        for statements in (shop.statements("indexes"), EVENTS, "CREATE SCHEMA ops", *views(), USERS, WORK):
            connection.execute(statements)
    # A session hands in what it counted when it ends, at the latest.
    until(lambda: counted(server), 20, "the server has counted the scans and dead rows")
    with blocked(server):
        yield server


def copy(shop_path: Path, connection: Any) -> None:
    """Tables and rows of the shop, as they are."""
    connection.execute(shop.statements("tables"))
    with closing(sqlite3.connect(shop_path)) as source:
        for table in shop.tables():
            with connection.cursor().copy(f"COPY {table} FROM STDIN") as target:
                for row in source.execute(f"SELECT * FROM {table}"):
                    target.write_row(row)


def views() -> list[str]:
    """The reports as views, made as the patterns tell the owner: of the first template, by the name told."""
    made = []
    for pattern_id, pattern in REPORTS.items():
        view = next(parameter.default for parameter in pattern.parameters if parameter.name == "view")
        assert f"CREATE VIEW {view} AS with the first template" in pattern.best_practices
        made.append(f"CREATE VIEW {view} AS {filled(pattern_id, next(iter(pattern.templates)))}")
    return made


def counted(server: Server) -> bool:
    tables = "relname IN ('payments', 'order_lines')"
    ((dead, read),) = server.owner(f"SELECT sum(n_dead_tup), sum(seq_tup_read) FROM pg_stat_user_tables WHERE {tables}")
    return bool(dead >= 300 and read > 0)


@contextmanager
def blocked(server: Server) -> Iterator[None]:
    """One session holds a row in an open transaction, another waits for it."""
    with ExitStack() as stack:
        holder, waiter = stack.enter_context(server.connect()), stack.enter_context(server.connect())
        holder.execute("BEGIN")
        holder.execute(SAME_ORDER)
        thread = threading.Thread(target=update, args=(waiter,))
        thread.start()
        stack.callback(thread.join)
        stack.callback(holder.execute, "ROLLBACK")
        until(lambda: server.owner("SELECT 1 FROM pg_locks WHERE NOT granted") != [], 20, "the second session waits")
        yield


def update(connection: Any) -> None:
    import psycopg

    with suppress(psycopg.Error):  # the server may be gone by then
        connection.execute(SAME_ORDER)


def both(run: Callable[[str], Rows], pattern: Pattern, template: str) -> tuple[Rows, Rows]:
    """What a template gives with its defaults, and with the examples of its parameters."""
    examples = {parameter.name: parameter.example for parameter in pattern.parameters}
    return run(filled(pattern.id, template)), run(filled(pattern.id, template, **examples))


def test_the_library_is_whole() -> None:
    names = """active_queries distinct_on_latest jsonb_fields lock_waits missing_indexes slow_query_plan table_sizes
        unused_indexes vacuum_health"""
    assert sorted(PATTERNS) == [f"postgresql/{name}" for name in names.split()]
    assert len(REPORTS) == 6


@pytest.mark.parametrize(("pattern_id", "template"), OWNERS)
def test_every_report_of_the_owner_gives_rows(server: Server, pattern_id: str, template: str) -> None:
    assert all(both(server.owner, PATTERNS[pattern_id], template))


@pytest.mark.parametrize(("pattern_id", "template"), AGENTS)
def test_every_template_for_the_agent_gives_rows_by_its_own_tool(
    server: Server, pattern_id: str, template: str
) -> None:
    assert all(both(server.agent, PATTERNS[pattern_id], template))


@pytest.mark.parametrize("pattern_id", PATTERNS)
def test_the_example_of_a_pattern_is_one_of_its_own_use(server: Server, pattern_id: str) -> None:
    pattern = PATTERNS[pattern_id]
    template = next(iter(pattern.templates))
    for example in pattern.examples:
        values = {name: str(value) for name, value in example.parameters.items()}
        assert values.keys() <= {parameter.name for parameter in pattern.parameters}
        run = server.owner if (pattern_id, template) in OWNERS else server.agent
        assert run(filled(pattern_id, template, **values))


@pytest.mark.parametrize("pattern_id", REPORTS)
def test_the_system_catalogs_are_out_of_an_agents_reach_as_the_patterns_say(server: Server, pattern_id: str) -> None:
    assert "never reads the system catalogs" in PATTERNS[pattern_id].best_practices
    with pytest.raises(ToolFailed):
        server.agent(filled(pattern_id, next(iter(PATTERNS[pattern_id].templates))))


def test_the_blocker_is_named_with_its_state_and_as_the_root(server: Server) -> None:
    ((_, _, waiting, _, user, state, _, last, is_root),) = server.agent(filled("postgresql/lock_waits", "from_view"))
    assert (waiting, user, state, last, is_root) == (SAME_ORDER, "loom", "idle in transaction", SAME_ORDER, True)


def test_the_oldest_transaction_comes_first(server: Server) -> None:
    sessions = server.agent(filled("postgresql/active_queries", "from_view"))
    assert [row[3] for row in sessions[:2]] == ["idle in transaction", "active"]
    assert sessions[1][6] == "Lock"


def test_a_user_without_the_right_to_monitor_is_shown_nobody_elses_session_as_the_pattern_tells(server: Server) -> None:
    assert server.agent(filled("postgresql/active_queries", "from_view"), user="guest") == []


def test_an_index_that_another_one_begins_with_is_covered(server: Server) -> None:
    found = server.owner(filled("postgresql/unused_indexes", "covered"))
    assert [row[:3] for row in found] == [["orders", "orders_by_customer", "orders_by_customer_and_time"]]


def test_indexes_that_keep_a_constraint_are_never_called_unused(server: Server) -> None:
    names = {row[2] for row in server.owner(filled("postgresql/unused_indexes", "unused", scans="1000000000"))}
    assert "orders_by_time" in names
    assert not [name for name in names if name.endswith(("_pkey", "_key"))]


def test_foreign_keys_without_an_index_are_those_of_the_shop(server: Server) -> None:
    found = server.owner(filled("postgresql/missing_indexes", "foreign_keys_without_index"))
    columns = {(row[0], row[2]) for row in found}
    assert columns == {
        ("employees", "store_id"),
        ("orders", "promotion_id"),
        ("orders", "store_id"),
        ("products", "supplier_id"),
    }


def test_the_dead_rows_are_those_that_were_deleted(server: Server) -> None:
    dead = {row[1]: row[3] for row in server.agent(filled("postgresql/vacuum_health", "from_view"))}
    assert dead["payments"] == 300


def test_a_document_of_another_shape_spoils_no_query(server: Server) -> None:
    by_kind = server.agent(filled("postgresql/jsonb_fields", "by_field"))
    assert by_kind == [["purchase", 2, 12.5], [None, 2, None], ["visit", 1, None]]
    assert server.agent(filled("postgresql/jsonb_fields", "array_items")) == [["A-1", 2, 2], ["B-2", 1, 1]]
    containing = server.agent(filled("postgresql/jsonb_fields", "containing", wanted='{"items": [{"sku": "B-2"}]}'))
    assert [row[0] for row in containing] == [1]


def test_the_operator_that_asks_for_a_key_is_counted_as_a_parameter_as_the_pattern_tells(server: Server) -> None:
    with pytest.raises(ToolFailed) as refused:
        server.agent("SELECT id FROM events WHERE payload ? 'kind' AND id > ?", parameters=[0])
    assert str(refused.value) in {error.error for error in PATTERNS["postgresql/jsonb_fields"].common_errors}
    asked = "SELECT id FROM events WHERE jsonb_exists(payload, 'kind') AND id > ?"
    assert server.agent(asked, parameters=[1]) == [[2], [3]]


def test_options_in_brackets_are_refused_as_the_pattern_tells(server: Server) -> None:
    with pytest.raises(ToolFailed):
        server.agent("EXPLAIN (ANALYZE, BUFFERS) SELECT 1")


def test_three_ways_to_the_latest_row_agree(server: Server) -> None:
    values = {"n": "10000", "k": "1"}
    latest, lateral, numbered = (
        server.agent(filled("postgresql/distinct_on_latest", name, **values))
        for name in ("latest", "by_lateral", "newest_k")
    )
    assert latest == lateral
    assert sorted(row[0] for row in latest) == sorted(row[0] for row in numbered)
    ((customers,),) = server.agent("SELECT count(DISTINCT customer_id) FROM orders")
    assert len(latest) == customers


def test_a_measured_plan_tells_times_and_an_estimate_does_not(server: Server) -> None:
    told = {
        name: "\n".join(row[0] for row in server.agent(filled("postgresql/slow_query_plan", name)))
        for name in ("estimate", "measured")
    }
    assert "actual time" in told["measured"]
    assert "actual time" not in told["estimate"]
