"""A move between files and a server: equal rows, cut off anywhere, and an old database that refuses."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import JSON, Boolean, Column, Float, Integer, LargeBinary, Table

from loom_worker.core.errors import BadSettings, Unavailable
from loom_worker.core.settings import from_env
from loom_worker.store import schema
from loom_worker.store.database import Database, engine_of
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.engines.move_ends import ALL, GROUP, GROUPS, Row, opened
from loom_worker.store.move import TABLES, Differs, move, undo
from loom_worker.store.prepare import check, prepare
from tests.unit.store.made import said, submitted

pytestmark = pytest.mark.takes(60)

Url = Callable[[str], str]

TEXTS = ("", "a\tb\\n\r\n\\.", "Zürich 東京 🎉 \u2028", "NaN, Infinity \\u0000", '\'; DROP "user" --', "e\u0301 %s")
JSONS = (
    '[{"name": "look", "arguments": {"x": 0.30000000000000004, "y": 1e300}}]',
    '[ {"content":"Z\\u00fcrich \\ud83c\\udf89 東京" , "n":18446744073709551616} ]',
    '["NaN", {"a": [], "": null}]',
    "[]",
)
FLOATS = (0.1 + 0.2, -0.0, 1e308, 5e-324)
MORE = 2 * GROUP * GROUPS + 7
"""Rows of three transactions."""
COMMAND = (sys.executable, "-m", "loom_worker.cli.main", "move", "--to")

heavy = pytest.mark.heavy
ways = pytest.mark.parametrize(
    ("old", "new"),
    [
        ("file", "other"),
        pytest.param("file", "server", marks=heavy),
        pytest.param("server", "file", marks=heavy),
    ],
)


@pytest.fixture
def url_of(request: pytest.FixtureRequest, tmp_path: Path) -> Url:
    def url(name: str) -> str:
        if name != "server":
            return f"sqlite:///{tmp_path}/{name}.db"
        server: str = request.getfixturevalue("postgres_url")
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("DROP DATABASE IF EXISTS moved WITH (FORCE)")
            connection.execute("CREATE DATABASE moved")
        return server.rpartition("/")[0] + "/moved"

    return url


def value(column: "Column[Any]", number: int) -> Any:
    """A value for a column as drivers know it; the same for all columns that point to one."""
    for key in column.foreign_keys:
        return value(key.column, number)
    if isinstance(column.type, JSON):
        return JSONS[number % len(JSONS)]
    if isinstance(column.type, Boolean):
        return number % 2
    if isinstance(column.type, Float):
        return FLOATS[number % len(FLOATS)]
    if isinstance(column.type, LargeBinary):
        return bytes(range(256)) * number
    if isinstance(column.type, Integer):
        is_large = column.type.__visit_name__ == "big_integer" and not column.primary_key
        return 2**63 - 1 - number if is_large else number + 1
    text = TEXTS[number % len(TEXTS)]
    return f"{text} {table_of(column)}.{column.name} {number}" if number else ""


def table_of(column: "Column[Any]") -> str:
    return column.table.name


def row_of(table: Table, number: int) -> Row:
    return tuple(value(column, number) for column in table.columns)


def made(url: str, *, more: int = 0, **changed: Any) -> str:
    """A database with odd rows in each table, those of turns, and more rows of usage."""
    prepare(from_env({"LOOM_DATABASE_URL": url}))
    with opened(url) as end:
        with end.transaction():
            end.put_aside()
        for table in TABLES:
            numbers = range(7 + (more if table is schema.usage else 0))
            rows = [row_of(table, number) for number in numbers]
            if table is schema.messages and changed:
                names = list(table.columns.keys())
                rows[-1] = tuple(changed.get(name, old) for name, old in zip(names, rows[-1], strict=True))
            end.add(table, iter([rows]))
        end.bring_back()
        with end.transaction():
            end.finish(TABLES)
            end.run("DROP TABLE loom_later")
    with closing(Database(url)) as database:
        said(database, turns=3)
        submitted(database, "s2")
    return url


def rows_of(url: str) -> dict[str, list[Row]]:
    with opened(url) as end:
        return {table.name: [row for group in end.rows(table, ALL) for row in group] for table in TABLES}


def refusal(url: str) -> str:
    """Why Loom does not use a database; empty: it does."""
    try:
        check(from_env({"LOOM_DATABASE_URL": url}))
    except BadSettings as error:
        return str(error)
    return ""


@ways
def test_every_row_arrives_as_it_was_and_the_new_database_goes_on(old: str, new: str, url_of: Url) -> None:
    here, there = made(url_of(old)), url_of(new)
    before = rows_of(here)
    assert all(before.values())
    checked = move(here, there, say=print)
    assert rows_of(there) == before == rows_of(here)
    assert {each.table: each.rows for each in checked} == {name: len(rows) for name, rows in before.items()}
    assert {each.mended for each in checked} == {0}
    assert refusal(there) == ""
    with closing(Database(there)) as database:
        submitted(database, "s2")
        said(database, "s3", turns=1)
        found = {row for row in rows_of(there)["turns"] if row not in before["turns"]}
    assert len(found) == 2
    assert _objects(there) == _objects(made(url_of(new if new == "server" else "third")))


def _objects(url: str) -> set[Row]:
    """Indexes, triggers and constraints of a database."""
    postgresql = (
        "SELECT 'index', indexdef FROM pg_indexes WHERE schemaname = 'public' "
        "UNION SELECT 'trigger', pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal "
        "UNION SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace"
    )
    with opened(url) as end:
        return set(end.all(postgresql if url.startswith("postgresql") else "SELECT type, sql FROM sqlite_schema"))


@heavy
def test_what_a_server_cannot_hold_is_mended_and_told(url_of: Url) -> None:
    odd = '[{"name": "look", "arguments": "a\\u0000b \\ud800", "n": [NaN, -Infinity, 0.1]}]'
    here = made(url_of("file"), content="a\0b", tool_calls_json=odd)
    there = url_of("server")
    checked = {each.table: each.mended for each in move(here, there, say=print)}
    assert {name: times for name, times in checked.items() if times} == {"messages": 2}
    contents = {row[6]: row[8] for row in rows_of(there)["messages"]}
    assert contents["a\ufffdb"] == '[{"name": "look", "arguments": "a\\ufffdb \\ufffd", "n": [null, null, 0.1]}]'


@pytest.mark.parametrize("old", ["other", pytest.param("server", marks=heavy)])
def test_words_are_found_after_a_move_to_a_file(old: str, url_of: Url) -> None:
    here, there = made(url_of(old)), url_of("file")
    move(here, there, say=print)
    with opened(there) as end:
        assert end.all("SELECT count(*) FROM messages_fts5 WHERE messages_fts5 MATCH 'assistant'") == [(3,)]


@ways
def test_the_old_database_refuses_whoever_writes_until_the_move_is_given_up(old: str, new: str, url_of: Url) -> None:
    here, there = made(url_of(old)), url_of(new)
    shown = engine_of(there).where
    with closing(Database(here)) as running:
        submitted(running, "s2")
        with pytest.raises(KeyboardInterrupt):
            move(here, there, say=_cut_off)
        for write in (lambda: submitted(running, "s2"), lambda: _emptied(running)):
            with pytest.raises(Unavailable, match="takes no writes: it moves"):
                write()
        assert f"is being moved to {shown}; go on with" in refusal(here)
        assert undo(here) == shown
        submitted(running, "s2")
        assert refusal(here) == ""
    with pytest.raises(BadSettings, match="is not being moved"):
        undo(here)


def _cut_off(_text: str) -> None:
    raise KeyboardInterrupt


def _emptied(database: Database) -> None:
    with database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("DELETE FROM api_keys")


@ways
def test_after_a_move_the_old_database_says_where_to(old: str, new: str, url_of: Url) -> None:
    here, there = made(url_of(old)), url_of(new)
    with closing(Database(here)) as running:
        move(here, there, say=print)
        with pytest.raises(Unavailable, match="takes no writes"):
            submitted(running, "s2")
    told = f"has moved to {engine_of(there).where}; set LOOM_DATABASE_URL to that"
    assert told in refusal(here)
    for attempt in (lambda: undo(here), lambda: move(here, there, say=print)):
        with pytest.raises(BadSettings, match="has moved to"):
            attempt()


@pytest.mark.parametrize("new", ["other", pytest.param("server", marks=heavy)])
def test_a_database_that_has_rows_or_another_move_is_refused_and_nothing_is_done(new: str, url_of: Url) -> None:
    here, there = made(url_of("file")), url_of(new)
    with pytest.raises(BadSettings, match="is the database that LOOM_DATABASE_URL names"):
        move(here, here, say=print)
    prepare(from_env({"LOOM_DATABASE_URL": there}))
    with closing(Database(there)) as database:
        submitted(database)
    with pytest.raises(BadSettings, match="has rows already"):
        move(here, there, say=print)
    with opened(there) as end, end.transaction():
        end.mark(f"filling {schema.VERSION} mov_1 /elsewhere.db")
    with pytest.raises(BadSettings, match=r"is being filled from /elsewhere\.db"):
        move(here, there, say=print)
    assert refusal(here) == ""
    assert "is being filled from /elsewhere.db" in refusal(there)


def test_a_row_that_is_lost_on_its_way_keeps_the_old_database(url_of: Url) -> None:
    here, there = made(url_of("file")), url_of("other")

    def say(text: str) -> None:
        if text.startswith("usage:"):
            with opened(there) as end:
                end.run("DELETE FROM sessions WHERE lane = ''")

    with pytest.raises(Differs, match=r"sessions: 9 rows, 8 copied\): give up with `loom move --undo`"):
        move(here, there, say=say)
    assert "is being moved to" in refusal(here)
    assert "is being filled from" in refusal(there)


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "LOOM_HOME": str(tmp_path / "home"), "PYTHONUNBUFFERED": "1"}


def _killed_after(line: str, command: tuple[str, ...], env: dict[str, str]) -> list[str]:
    """What a move had said when it was killed at a line."""
    heard = []
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        for text in _lines(process):
            heard.append(text)
            if text.startswith(line):
                os.kill(process.pid, signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL, heard
    return heard


def _lines(process: "subprocess.Popen[str]") -> Iterator[str]:
    assert process.stdout is not None
    yield from process.stdout


@ways
def test_a_move_that_is_killed_goes_on_and_doubles_nothing(
    old: str, new: str, url_of: Url, home: dict[str, str]
) -> None:
    here, there = made(url_of(old), more=MORE), url_of(new)
    before = rows_of(here)
    env, command = {**home, "LOOM_DATABASE_URL": here}, (*COMMAND, there)
    heard = list[str]()
    for line in (f"{engine_of(here).where} takes no writes", "sessions:", "usage:", "indexes"):
        heard += _killed_after(line, command, env)
        assert "is being moved to" in refusal(here)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert "rows copied" not in done.stdout
    assert done.stdout.endswith("Set LOOM_DATABASE_URL to the new one and run `loom up`.\n")
    copied = [line.partition(":")[0] for line in heard if line.endswith("rows copied\n")]
    assert rows_of(there) == before
    assert len(set(copied)) >= len(copied) - 2  # of the tables in whose midst it may have been killed
    assert refusal(there) == ""
    assert "has moved to" in refusal(here)


@pytest.mark.parametrize("new", ["other", pytest.param("server", marks=heavy)])
def test_a_table_that_was_copied_in_part_goes_on_behind_its_last_row(new: str, url_of: Url) -> None:
    here, there = made(url_of("file"), more=MORE), url_of(new)
    told = list[str]()

    def say(text: str) -> None:
        told.append(text)
        if text.startswith("usage:"):
            with opened(there) as end:
                end.run(f"DELETE FROM usage WHERE n > {GROUP * GROUPS}")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        move(here, there, say=say)
    total = len(rows_of(here)["usage"])
    assert told[-1] == f"usage: {total:,} rows copied"
    move(here, there, say=told.append)
    assert f"usage: {total - GROUP * GROUPS:,} rows copied" in told
    assert rows_of(there) == rows_of(here)


def test_a_home_on_which_loom_runs_is_refused(url_of: Url, home: dict[str, str]) -> None:
    from loom_worker.supervisor.home import locked
    from loom_worker.supervisor.home import prepare as prepare_home

    here, folder = made(url_of("file")), Path(home["LOOM_HOME"])
    prepare_home(folder)
    env = {**home, "LOOM_DATABASE_URL": here}
    with locked(folder):
        refused = subprocess.run((*COMMAND, url_of("other")), env=env, capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "stop it with `loom stop`" in refused.stderr
