from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from bench.past import lengthen, make_sessions, open_database
from loom_worker.core.settings import LimitSettings, from_env
from loom_worker.core.values.chat import ChatMessage
from loom_worker.core.values.ids import new_id
from loom_worker.core.values.sessions import Message, NewSession
from loom_worker.core.values.turns import NewTurn, Turn
from loom_worker.store import rows
from loom_worker.store.database import Database
from loom_worker.store.messages import Messages
from loom_worker.store.prepare import prepare
from loom_worker.store.schema import messages, sessions, steps, turns, usage
from loom_worker.store.submit import submit


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    prepare(from_env({"LOOM_HOME": str(tmp_path)}))
    with closing(open_database(tmp_path)) as opened:
        yield opened


@pytest.fixture
def finished(database: Database) -> Turn:
    """A turn with a step, a question, an answer and its usage."""
    new = NewSession(id="s", agent="default")
    turn, _ = submit(database, LimitSettings(), ("default", new), NewTurn(input="hi"), now_ms=1)
    spent = dict.fromkeys(("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"), 1)
    with database.write() as tx:
        tx.execute(turns.update().values(status="completed", completed_ms=2))
        tx.execute(insert(steps), {"turn_id": turn.id, "n": 1, "kind": "reply", "version": 1, "payload": {}})
        for role, text in (("user", "hi"), ("assistant", "Hello.")):
            said = Message(new_id("msg_"), "s", turn.id, ChatMessage(role, text), token_count=1, created_ms=1)
            tx.execute(insert(messages), rows.message_columns(said, lane=turn.lane))
        of = {"workspace": "default", "session_id": "s", "turn_id": turn.id, "agent": "default", "model": "m"}
        tx.execute(insert(usage), {**of, **spent, "llm_calls": 1, "cost_usd": 0.0, "at_ms": 1})
    return turn


def test_a_session_grows_by_whole_turns_whose_texts_differ(database: Database, finished: Turn, tmp_path: Path) -> None:
    lengthen(tmp_path, finished.id, 3)
    kept = Messages(database).page("default", finished.session_id, limit=100, after=None)
    said = [message.chat.text for message in kept.items]
    assert said == ["hi", "Hello.", "1 hi", "1 Hello.", "2 hi", "2 Hello.", "3 hi", "3 Hello."]
    with database.read() as tx:
        for table in (turns, steps, usage):
            assert len(tx.execute(select(table)).all()) == 4
        assert tx.execute(select(turns.c.seq).order_by(turns.c.seq)).scalars().all() == [1, 2, 3, 4]


def test_the_turn_that_comes_next_stands_behind_the_copies(database: Database, finished: Turn, tmp_path: Path) -> None:
    lengthen(tmp_path, finished.id, 3)
    session = ("default", NewSession(id="s", agent="default"))
    turn, _ = submit(database, LimitSettings(), session, NewTurn(input="and now?"), now_ms=3)
    assert (turn.seq, turn.position) == (5, 0)


def test_sessions_are_made_with_a_model_of_their_own(database: Database, tmp_path: Path) -> None:
    make_sessions(tmp_path, "wide", 3, model="scripted-demo+5ms")
    with database.read() as tx:
        found = tx.execute(select(sessions.c.id, sessions.c.model).order_by(sessions.c.id)).all()
    assert [tuple(row) for row in found] == [(f"wide-{n}", "scripted-demo+5ms") for n in range(3)]
