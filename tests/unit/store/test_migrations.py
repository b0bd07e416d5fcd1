"""Older files become what a new one is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, inspect, text

from loom_worker.core.settings import Settings, from_env
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.store import schema
from loom_worker.store.engines.sqlite import migrate_file
from loom_worker.store.prepare import prepare, version_of

VERSIONS = sorted(path.name[:4] for path in (Path(schema.__file__).parent / "migrations/versions").glob("0*.py"))
FIRST_AND_LAST = (VERSIONS[0], *VERSIONS[-2:])
"""Those that are tried before each commit; the steps from the others are parts of the first one's."""

JSON = dict.fromkeys(("metadata", "kernel", "usage"), "{}")
USUAL: dict[str, dict[str, object]] = {
    "sessions": {"lane": "l", "workspace": "w", "id": "s", "agent": "default", "status": "active", **JSON}
    | {"next_seq": 2, "created_ms": 1, "updated_ms": 1},
    "turns": {"id": "t", "lane": "l", "session_id": "s", "workspace": "w", "agent": "default", "seq": 1, "input": "Hi"}
    | {"status": "queued", "max_attempts": 3, "usage": "{}", "patterns": "[]", "metadata": "{}", "created_ms": 1},
    "usage": {"workspace": "w", "turn_id": "t", "agent": "a", "model": "m", "input_tokens": 1, "output_tokens": 1}
    | {"cache_read_tokens": 0, "cache_write_tokens": 0, "llm_calls": 1, "at_ms": 1},
    "messages": {"lane": "l", "session_id": "s", "turn_id": "t", "content": "", "context": "", "token_count": 1}
    | {"created_ms": 1},
}


def made(url: str, version: str) -> None:
    """A database as that version left it."""
    migrate_file(url, version)


def shape(url: str) -> Mapping[str, Any]:
    """Every table's columns and keys, and every index."""
    engine = create_engine(url, module=sqlite3)
    looked = inspect(engine)
    found: dict[str, Any] = {
        name: (
            {column["name"]: (str(column["type"]), column["nullable"]) for column in looked.get_columns(name)},
            [(key["constrained_columns"], key["options"]) for key in looked.get_foreign_keys(name)],
            sorted(str(unique["column_names"]) for unique in looked.get_unique_constraints(name)),
        )
        for name in looked.get_table_names()
        if name != "loom_version" and not name.startswith("messages_fts5")
    }
    with engine.connect() as tx:
        indexes = tx.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"))
        found |= {name: " ".join(sql.split()) for name, sql in indexes}
    engine.dispose()
    return found


def older(tmp_path: Path, version: str) -> tuple[Settings, Engine]:
    """The settings of a home whose database is as that version left it, and the engine of that database."""
    settings = from_env({"LOOM_HOME": str(tmp_path)})
    made(settings.database_url, version)
    return settings, create_engine(settings.database_url, module=sqlite3)


def insert(tx: Connection, table: str, **values: object) -> None:
    """Insert a row; of a session, a turn or a message it need name only what is not usual."""
    row = USUAL.get(table, {}) | values
    tx.execute(text(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})"), row)


@pytest.mark.parametrize(
    "version",
    [pytest.param(each, marks=() if each in FIRST_AND_LAST else pytest.mark.heavy) for each in VERSIONS],
)
def test_a_file_of_any_version_becomes_what_the_code_expects(tmp_path: Path, version: str) -> None:
    settings = from_env({"LOOM_HOME": str(tmp_path)})
    made(settings.database_url, version)
    assert prepare(settings) == (version != schema.VERSION)
    assert version_of(settings.database_url) == schema.VERSION
    fresh = f"sqlite:///{tmp_path / 'fresh.db'}"
    engine = create_engine(fresh, module=sqlite3)
    schema.metadata.create_all(engine)
    engine.dispose()
    assert shape(settings.database_url) == shape(fresh)


def test_a_migration_keeps_every_row(tmp_path: Path) -> None:
    settings, engine = older(tmp_path, "0001")
    with engine.begin() as tx:
        insert(tx, "sessions")
        insert(tx, "turns")
    prepare(settings)
    with engine.connect() as tx:
        assert tx.execute(text("SELECT input, cancel FROM turns")).all() == [("Hi", None)]
    engine.dispose()


def test_messages_of_an_older_file_are_found_by_their_words(tmp_path: Path) -> None:
    settings, engine = older(tmp_path, "0002")
    with engine.begin() as tx:
        insert(tx, "sessions")
        for n, (role, said, result) in enumerate(
            [("user", "the red boat", None), ("assistant", "去北京旅行", None), ("tool", "", '[{"content": "Norway"}]')]
        ):
            insert(tx, "messages", id=f"m{n}", role=role, content=said, tool_result_json=result)
    engine.dispose()
    prepare(settings)
    with engine.connect() as tx:
        for n, word in enumerate(["boats", "北京", "norway"], start=1):
            found = text("SELECT rowid FROM messages_fts5 WHERE messages_fts5 MATCH :word")
            assert tx.execute(found, {"word": f'"{word}"'}).scalars().all() == [n]
    engine.dispose()


def test_costs_of_an_older_file_belong_to_the_user_of_their_session(tmp_path: Path) -> None:
    settings, engine = older(tmp_path, "0007")
    with engine.begin() as tx:
        for session, user in (("s1", "maria"), ("s2", None)):
            insert(tx, "sessions", lane=session, id=session, user=user)
        for session in ("s1", "s2", "deleted"):
            insert(tx, "usage", session_id=session)
    engine.dispose()
    prepare(settings)
    with engine.connect() as tx:
        found = tx.execute(text("SELECT session_id, user FROM usage ORDER BY n")).all()
        assert found == [("s1", "maria"), ("s2", None), ("deleted", None)]
    engine.dispose()


def test_the_index_forgets_what_a_tool_gave_that_now_is_one_of_memory(tmp_path: Path) -> None:
    settings, engine = older(tmp_path, "0021")
    with engine.begin() as tx:
        insert(tx, "sessions")
        for number, tool in enumerate(("memory_search", "look")):
            result = f'[{{"name": "{tool}", "content": "walnut"}}]'
            insert(tx, "messages", id=str(number), role="tool", tool_result_json=result)
    prepare(settings)
    with engine.begin() as tx:
        found = tx.execute(text("SELECT rowid FROM messages_fts5 WHERE messages_fts5 MATCH 'walnut'")).scalars().all()
        names = tx.execute(
            text("SELECT tool_result_json FROM messages WHERE n IN (SELECT value FROM json_each(:n))"),
            {"n": str(list(found))},
        )
        assert ["look" in row[0] for row in names] == [True]
        tx.execute(text("DELETE FROM messages"))
        assert tx.execute(text("SELECT count(*) FROM messages_fts5_docsize")).scalar_one() == 0
    engine.dispose()
