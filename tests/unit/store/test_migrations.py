"""Older files become what a new one is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, inspect, text

from loom_worker.core.settings import from_env
from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.store import schema
from loom_worker.store.prepare import prepare, version_of

VERSIONS = sorted(path.name[:4] for path in (Path(schema.__file__).parent / "migrations/versions").glob("0*.py"))


def made(url: str, version: str) -> None:
    """A database as that version left it."""
    config = Config()
    config.set_main_option("script_location", str(Path(schema.__file__).parent / "migrations"))
    config.attributes["url"] = url
    command.upgrade(config, version)


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


@pytest.mark.parametrize("version", VERSIONS)
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
    settings = from_env({"LOOM_HOME": str(tmp_path)})
    made(settings.database_url, "0001")
    engine = create_engine(settings.database_url, module=sqlite3)
    with engine.begin() as tx:
        tx.execute(
            text(
                "INSERT INTO sessions (lane, workspace, id, agent, status, metadata, kernel, usage, next_seq, "
                "created_ms, updated_ms) VALUES ('l', 'w', 's', 'default', 'active', '{}', '{}', '{}', 2, 1, 1)"
            )
        )
        tx.execute(
            text(
                "INSERT INTO turns (id, lane, session_id, workspace, agent, seq, status, max_attempts, input, usage, "
                "patterns, metadata, created_ms) VALUES ('t', 'l', 's', 'w', 'default', 1, 'queued', 3, 'Hi', '{}', "
                "'[]', '{}', 1)"
            )
        )
    prepare(settings)
    with engine.connect() as tx:
        assert tx.execute(text("SELECT input, cancel FROM turns")).all() == [("Hi", None)]
    engine.dispose()


def test_messages_of_an_older_file_are_found_by_their_words(tmp_path: Path) -> None:
    settings = from_env({"LOOM_HOME": str(tmp_path)})
    made(settings.database_url, "0002")
    engine = create_engine(settings.database_url, module=sqlite3)
    with engine.begin() as tx:
        tx.execute(
            text(
                "INSERT INTO sessions (lane, workspace, id, agent, status, metadata, kernel, usage, next_seq, "
                "created_ms, updated_ms) VALUES ('l', 'w', 's', 'default', 'active', '{}', '{}', '{}', 2, 1, 1)"
            )
        )
        for n, (role, said, result) in enumerate(
            [("user", "the red boat", None), ("assistant", "去北京旅行", None), ("tool", "", '[{"content": "Norway"}]')]
        ):
            values = {"id": f"m{n}", "role": role, "said": said, "result": result}
            insert = (
                "INSERT INTO messages (id, lane, session_id, turn_id, role, content, context, tool_result_json, "
                "token_count, created_ms) VALUES (:id, 'l', 's', 't', :role, :said, '', :result, 1, 1)"
            )
            tx.execute(text(insert), values)
    engine.dispose()
    prepare(settings)
    with engine.connect() as tx:
        for n, word in enumerate(["boats", "北京", "norway"], start=1):
            found = text("SELECT rowid FROM messages_fts5 WHERE messages_fts5 MATCH :word")
            assert tx.execute(found, {"word": f'"{word}"'}).scalars().all() == [n]
    engine.dispose()


def test_costs_of_an_older_file_belong_to_the_user_of_their_session(tmp_path: Path) -> None:
    settings = from_env({"LOOM_HOME": str(tmp_path)})
    made(settings.database_url, "0007")
    engine = create_engine(settings.database_url, module=sqlite3)
    with engine.begin() as tx:
        for session, user in (("s1", "maria"), ("s2", None)):
            insert = (
                "INSERT INTO sessions (lane, workspace, id, agent, status, user, metadata, kernel, usage, next_seq, "
                "created_ms, updated_ms) VALUES (:id, 'w', :id, 'default', 'active', :user, '{}', '{}', '{}', 2, 1, 1)"
            )
            tx.execute(text(insert), {"id": session, "user": user})
        for session in ("s1", "s2", "deleted"):
            insert = (
                "INSERT INTO usage (workspace, session_id, turn_id, agent, model, input_tokens, output_tokens, "
                "cache_read_tokens, cache_write_tokens, llm_calls, at_ms) "
                "VALUES ('w', :id, 't', 'a', 'm', 1, 1, 0, 0, 1, 1)"
            )
            tx.execute(text(insert), {"id": session})
    engine.dispose()
    prepare(settings)
    with engine.connect() as tx:
        found = tx.execute(text("SELECT session_id, user FROM usage ORDER BY n")).all()
        assert found == [("s1", "maria"), ("s2", None), ("deleted", None)]
    engine.dispose()


def test_the_index_forgets_what_a_tool_gave_that_now_is_one_of_memory(tmp_path: Path) -> None:
    settings = from_env({"LOOM_HOME": str(tmp_path)})
    made(settings.database_url, "0021")
    engine = create_engine(settings.database_url, module=sqlite3)
    with engine.begin() as tx:
        tx.execute(
            text(
                "INSERT INTO sessions (lane, workspace, id, agent, status, metadata, kernel, usage, next_seq, "
                "created_ms, updated_ms) VALUES ('l', 'w', 's', 'default', 'active', '{}', '{}', '{}', 2, 1, 1)"
            )
        )
        for number, tool in enumerate(("memory_search", "look")):
            values = {"id": str(number), "result": f'[{{"name": "{tool}", "content": "walnut"}}]'}
            tx.execute(
                text(
                    "INSERT INTO messages (id, lane, session_id, turn_id, role, content, context, tool_result_json, "
                    "token_count, created_ms) VALUES (:id, 'l', 's', 't', 'tool', '', '', :result, 1, 1)"
                ),
                values,
            )
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
