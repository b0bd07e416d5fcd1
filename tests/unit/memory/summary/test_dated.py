"""What has left the active window becomes summaries by date and facts, each message once, whatever dies on the way."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select

from loom_worker.core.errors import BudgetSpent, Interrupted, LoomError, ProviderFailed, Unavailable
from loom_worker.core.settings import Settings
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.chat import ChatMessage, Request
from loom_worker.core.values.facts import Fact, FactFilter
from loom_worker.core.values.sessions import NewSession, Session
from loom_worker.core.values.tenants import WorkspaceUser
from loom_worker.core.values.tiers import MemoryTiers
from loom_worker.memory.compress import Compressor
from loom_worker.memory.summarize import CompressionRules
from loom_worker.store import rows
from loom_worker.store.budgets import Budgets
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.facts import Facts
from loom_worker.store.ledger import Ledger
from loom_worker.store.memory import Memories
from loom_worker.store.schema import messages
from loom_worker.store.sessions import Sessions
from loom_worker.store.tables import dated_summaries
from tests.unit.memory.summary.conversation import Says, means, message, talk
from tests.unit.store.made import mark_due

MARIA = WorkspaceUser("default", "maria")
TIERS = MemoryTiers(batch_size=6)
ROOT = Path(__file__).parents[4]


def answer(*facts: dict[str, Any], summary: str = "Maria moves.") -> str:
    usual = {"subject": "user", "message": 1, "confidence": 0.8}
    return json.dumps({"summary": summary, "facts": [{**usual, **fact} for fact in facts]})


BERLIN, TEA = {"relation": "lives in", "object": "Berlin"}, {"relation": "likes", "object": "tea"}


@dataclass
class Room:
    """A database, and the compressor of one worker that does what a model says."""

    database: Database
    tiers: MemoryTiers | None = TIERS

    def session(self, name: str = "s1", *, turns: int, who: WorkspaceUser | str = MARIA) -> Session:
        """A session with so many turns in it, two messages each."""
        session = Sessions(self.database).create(who, NewSession(name), now_ms=1)
        towns = "Berlin, Paris or Rome, tea, a kite: "
        self.say(session, [replace(each, chat=replace(each.chat, text=towns + each.chat.text)) for each in talk(turns)])
        return session

    def say(self, session: Session, said: Any) -> None:
        made = [
            {
                **rows.message_columns(replace(each, id=f"{session.id}-{each.id}"), lane=session.lane),
                "session_id": session.id,
            }
            for each in said
        ]
        with self.database.write(lock=WHOLE) as tx:
            tx.execute(insert(messages), made)

    def compressor(self, model: Says | None, **tiers: Any) -> Compressor:
        """A worker whose agents have these tiers."""
        chosen = replace(self.tiers, **tiers) if self.tiers else None

        class Agents:
            def compression(self, session: Session) -> CompressionRules:
                return replace(means(model), tiers=chosen)

        class Living:
            def alive(self) -> frozenset[str]:
                return frozenset()

        return Compressor(
            worker="worker-1",
            memories=Memories(self.database),
            facts=Facts(self.database),
            budgets=Budgets(self.database),
            agents=Agents(),
            workers=Living(),
            stopping=Stopping(1.0),
            slots=threading.Semaphore(1),
            clock_ms=lambda: 1_760_000_000_000,
        )

    def compress(self, session: Session, say: Callable[[Request], str | Exception] | None, **tiers: Any) -> Says | None:
        """As often as there is more to do in a memory that is due."""
        mark_due(self.database, session.lane)
        model = None if say is None else Says(say)
        worker = self.compressor(model, **tiers)
        while worker.compress(session.lane):
            pass
        return model

    def summaries(self) -> list[Any]:
        """All rows, in the order of the conversation."""
        with self.database.read() as tx:
            return list(tx.execute(select(dated_summaries).order_by(dated_summaries.c.from_n)))

    def facts(self, who: WorkspaceUser = MARIA) -> list[Fact]:
        """All of a user, the oldest first."""
        page = Facts(self.database).page(who, FactFilter("all"), limit=99, after=None)
        return list(reversed(page.items))


@pytest.fixture
def room(database: Database) -> Room:
    return Room(database)


def by_kind(of_part: str | Callable[[Request], str | Exception]) -> Callable[[Request], str | Exception]:
    """A model that answers a request for a summary by date so, and any other with notes."""

    def say(request: Request) -> str | Exception:
        if "long-term memory" not in request.system:
            return "Ada sends the orders."
        return of_part if isinstance(of_part, str) else of_part(request)

    return say


def test_each_message_that_left_the_window_is_in_one_summary_with_its_dates(room: Room) -> None:
    session = room.session(turns=40)
    room.compress(session, by_kind(answer(BERLIN)))
    found = room.summaries()
    state = Memories(room.database).load(session.lane, limit=0).state
    spans = [(row.from_n, row.to_n, row.messages) for row in found]
    assert spans == [(first, first + 5, 6) for first in range(1, spans[-1][1], 6)]
    assert state.dated_n == spans[-1][1]
    assert 0 <= state.first_n - 1 - state.dated_n < 6
    assert {(row.content, row.by_model, row.session_id) for row in found} == {
        ("Maria moves.", "claude-compressor", "s1")
    }
    assert (found[0].from_ms, found[0].to_ms) == (1_750_000_000_000, 1_750_000_000_000)


def test_one_call_writes_a_summary_and_facts_and_is_paid_by_the_session(room: Room) -> None:
    session = room.session(turns=8)  # 16 messages: one compression of four, another of four, one batch of six
    model = room.compress(session, by_kind(answer(BERLIN, TEA)))
    assert model is not None
    asked = ["long-term memory" in request.system for request in model.asked]
    assert asked.count(True) == len(room.summaries()) == 1
    assert [(fact.object, fact.message_id) for fact in room.facts()] == [("Berlin", "s1-msg_0"), ("tea", "s1-msg_0")]
    [total] = Ledger(room.database).totals("default", group_by="kind")
    assert (total["key"], total["llm_calls"]) == ("summary", len(model.asked))
    changes = Memories(room.database).load(session.lane, limit=0).state.changes
    assert [change.kind for change in changes].count("summarized") == 1
    assert changes[-1].as_json()["by"] == "claude-compressor"


def test_a_session_of_an_agent_without_tiers_has_none(room: Room) -> None:
    session = room.session(turns=40)
    replace(room, tiers=None).compress(session, by_kind(answer(BERLIN)))
    assert (room.summaries(), room.facts()) == ([], [])
    room.compress(session, by_kind(answer(BERLIN)))  # its file has them now, and it catches up
    assert len(room.summaries()) >= 10


@pytest.mark.parametrize(
    "say",
    [
        "I would rather talk about boats.",
        '{"summary": "cut of',
        lambda _: ProviderFailed("no key"),
        lambda _: BudgetSpent("spent", "session", None),
    ],
    ids=["words", "cut", "failed", "spent"],
)
def test_garbage_and_failure_give_the_heuristic_summary_and_no_facts(room: Room, say: Any) -> None:
    session = room.session(turns=8)
    room.compress(session, by_kind(say))
    [row] = room.summaries()
    assert (row.by_model, room.facts()) == ("heuristic", [])
    assert "Order 100" in row.content


@pytest.mark.parametrize("bad", ["I see.", '{"summary": "A move.", "facts": ["He moved", {"subj', '{"summary": "cut'])
def test_an_answer_that_cannot_be_read_is_asked_for_once_more_and_both_are_paid(room: Room, bad: str) -> None:
    said = [answer(BERLIN), bad]
    model = room.compress(room.session(turns=8), by_kind(lambda _: said.pop()))
    assert model is not None
    assert [fact.object for fact in room.facts()] == ["Berlin"]
    [total] = Ledger(room.database).totals("default", group_by="kind")
    assert total["llm_calls"] == len(model.asked)


def test_an_answer_is_asked_for_twice_and_no_more_and_its_summary_stays(room: Room) -> None:
    model = room.compress(room.session(turns=8), by_kind('{"summary": "Maria moves.", "facts": ["She moved"]}'))
    assert model is not None
    assert ["long-term memory" in request.system for request in model.asked].count(True) == 2
    assert ([row.content for row in room.summaries()], room.facts()) == (["Maria moves."], [])


def test_the_log_tells_how_many_facts_are_not_kept_and_why_but_not_which(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    secret = {"relation": "password is", "object": "Berlin"}
    room.compress(room.session(turns=8), by_kind(answer(BERLIN, secret, {"relation": "likes", "object": "opera"})))
    [line] = [record.getMessage() for record in caplog.records if "not kept" in record.getMessage()]
    assert line.endswith("{'secret': 1, 'unsaid': 1}")


@pytest.mark.parametrize(
    "summary", ["who wanted what, what was found and decided and why", '{"name": "find", "arguments": {}}']
)
def test_a_summary_by_date_that_repeats_the_prompt_or_calls_a_tool_is_written_without_the_model(
    room: Room, summary: str
) -> None:
    room.compress(room.session(turns=8), by_kind(answer(BERLIN, summary=summary)))
    assert ["Order 100" in row.content for row in room.summaries()] == [True]
    assert [fact.object for fact in room.facts()] == ["Berlin"]


def test_the_strategy_heuristic_asks_no_model(room: Room) -> None:
    model = room.compress(room.session(turns=8), by_kind(answer(BERLIN)), strategy="heuristic")
    assert model is not None
    assert not any("long-term memory" in request.system for request in model.asked)
    assert [row.by_model for row in room.summaries()] == ["heuristic"]


@pytest.mark.parametrize(
    ("tiers", "summaries", "facts"),
    [
        ({"has_summaries": False}, 0, 1),
        ({"extracts_facts": False}, 1, 0),
        ({"has_knowledge": False}, 1, 0),
        ({"has_summaries": False, "has_knowledge": False}, 0, 0),
    ],
    ids=str,
)
def test_only_the_tiers_of_the_agent_are_filled(room: Room, tiers: Any, summaries: int, facts: int) -> None:
    model = room.compress(room.session(turns=8), by_kind(answer(BERLIN)), **tiers)
    assert (len(room.summaries()), len(room.facts())) == (summaries, facts)
    assert model is not None
    assert any("long-term memory" in request.system for request in model.asked) is bool(summaries or facts)


def test_the_model_is_told_what_is_known_and_closes_it(room: Room) -> None:
    one = room.session(turns=8)
    room.compress(one, by_kind(answer(BERLIN, {"subject": "Zoe", "relation": "owns", "object": "a kite"})))
    two = room.session("s2", turns=8)
    paris = answer({"relation": "has a flat in", "object": "Paris", "replaces": ["f1"]})
    model = room.compress(two, by_kind(paris))
    assert model is not None
    [request] = [each for each in model.asked if "long-term memory" in each.system]
    assert request.messages[0].text.startswith("<known>\nf1: user lives in Berlin (since 2025-06-15)\n</known>")
    held = {fact.object: fact.until_ms is None for fact in room.facts()}
    assert held == {"Berlin": False, "a kite": True, "Paris": True}


def test_in_a_workspace_facts_about_whoever_writes_carry_the_users_name(room: Room) -> None:
    shared = replace(room, tiers=replace(TIERS, scope="workspace"))
    shared.compress(shared.session(turns=8), by_kind(answer(BERLIN)))
    nobody = shared.session("s2", turns=8, who="default")
    shared.compress(nobody, by_kind(answer({"relation": "lives in", "object": "Rome"})))
    found = Facts(room.database).find(nobody.lane, "workspace", ())
    assert sorted(fact.text for fact in found) == ["maria lives in Berlin", "user of s2 lives in Rome"]


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (Interrupted("stopping"), nullcontext()),
        (Unavailable("The database does not answer."), pytest.raises(Unavailable)),
    ],
)
def test_a_worker_that_stops_or_has_no_database_leaves_the_batch_to_the_next(
    room: Room, failure: LoomError, told: AbstractContextManager[Any]
) -> None:
    session = room.session(turns=8)
    with told:
        room.compress(session, by_kind(lambda _: failure))
    assert (room.summaries(), room.facts()) == ([], [])
    room.compress(session, by_kind(answer(BERLIN)))
    assert (len(room.summaries()), len(room.facts())) == (1, 1)


def test_a_summary_that_comes_too_late_leaves_no_facts(room: Room) -> None:
    session, others = room.session(turns=8), []

    def meanwhile(_: Request) -> str:
        if not others:
            others.append(True)
            room.compress(session, by_kind(answer(TEA, summary="Maria likes tea.")))
        return answer(BERLIN, summary="Maria moves.")

    room.compress(session, by_kind(meanwhile))
    assert [row.content for row in room.summaries()] == ["Maria likes tea."]
    assert [fact.object for fact in room.facts()] == ["tea"]


def test_two_sessions_that_state_the_same_at_the_same_time_make_one_fact(room: Room) -> None:
    one, two = room.session(turns=8), room.session("s2", turns=8)

    def meanwhile(_: Request) -> str:
        room.compress(two, by_kind(answer(BERLIN)))
        return answer(BERLIN, TEA)

    room.compress(one, by_kind(meanwhile))
    assert sorted(fact.object for fact in room.facts()) == ["Berlin", "tea"]
    Sessions(room.database).delete("default", "s2")
    assert sorted(fact.object for fact in room.facts()) == ["Berlin", "tea"]


def test_a_turn_longer_than_a_batch_stays_whole(room: Room) -> None:
    session = Sessions(room.database).create(MARIA, NewSession("s1"), now_ms=1)
    long = [replace(message(n, ChatMessage("user", f"part {n}")), turn_id="turn_x") for n in range(20)]
    room.say(session, [*long, *(message(n, ChatMessage("user", f"more {n}")) for n in range(20, 40))])
    room.compress(session, by_kind(answer(BERLIN)))
    assert room.summaries()[0].messages == 20
    assert sum(row.messages for row in room.summaries()) >= 24


def test_nothing_said_in_a_deleted_session_becomes_a_fact(room: Room) -> None:
    session = room.session(turns=8)

    def delete(_: Request) -> str:
        Sessions(room.database).delete("default", "s1")
        return answer(BERLIN)

    room.compress(session, by_kind(delete))
    assert (room.summaries(), room.facts()) == ([], [])


@pytest.mark.heavy
@pytest.mark.parametrize("point", ["summary.claimed", "summary.made", "summary.applied"])
def test_a_worker_that_is_killed_neither_loses_nor_doubles_a_summary_or_a_fact(
    room: Room, settings: Settings, point: str
) -> None:
    session = room.session(turns=4)
    with room.database.write(lock=WHOLE) as tx:
        tx.exec_driver_sql("INSERT INTO memory (lane, first_n, due_ms) VALUES (?, 7, 1)", (session.lane,))
    command = [sys.executable, "-m", "tests.support.compressing_process", session.lane, answer(BERLIN, TEA)]
    env = {**os.environ, "LOOM_HOME": str(settings.home), "LOOM_CRASHPOINTS": point}
    ends = [subprocess.run(command, env=env, cwd=ROOT, timeout=60).returncode for _ in range(2)]
    assert ends == [-signal.SIGKILL, 0]
    assert [(row.from_n, row.to_n) for row in room.summaries()] == [(1, 6)]
    assert [(fact.object, fact.confidence) for fact in room.facts()] == [("Berlin", 0.8), ("tea", 0.8)]
