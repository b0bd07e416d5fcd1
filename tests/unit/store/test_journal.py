from dataclasses import replace

import pytest

from loom_worker.core.errors import Fenced, Interrupted
from loom_worker.core.values.budgets import usd
from loom_worker.core.values.calls import CANCELLED
from loom_worker.core.values.chat import ChatMessage, ToolOutcome, ToolUse, Usage
from loom_worker.core.values.sessions import SessionPatch
from loom_worker.core.values.turns import Ending, Step
from loom_worker.events.rebuild import rebuild
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.journal import Entries, Journal
from loom_worker.store.ledger import Charge, Ledger, charge
from loom_worker.store.messages import Messages
from loom_worker.store.outbox import Outbox
from loom_worker.store.sessions import Sessions
from loom_worker.store.turns import Turns
from tests.support.refused import REFUSED
from tests.unit.store.made import (
    NOW_MS,
    PROGRESS,
    SPENT,
    WORKSPACE,
    call,
    claimed,
    counts,
    delivery,
    filled,
    final,
    message,
    running,
    submitted,
)


def test_steps_come_back_in_their_order_whatever_order_they_were_written_in(database: Database) -> None:
    claim = running(database)
    Journal(database).save(claim, Entries((Step(2, "reply", {"b": 1}), Step(1, "matched", {"a": 1}))), PROGRESS)
    assert [step.n for step in Turns(database).with_journal(WORKSPACE, claim.turn.id)[1]] == [1, 2]


def test_a_step_that_is_there_already_is_an_error_and_leaves_all_as_it_was(database: Database) -> None:
    claim = running(database)
    Journal(database).save(claim, Entries((Step(1, "matched", {"a": 1}),)), PROGRESS)
    with pytest.raises(REFUSED):
        Journal(database).save(claim, Entries((Step(2, "reply", {}), Step(1, "reply", {}))), {**PROGRESS, "run_ms": 99})
    assert Turns(database).with_journal(WORKSPACE, claim.turn.id)[1] == (Step(1, "matched", {"a": 1}),)
    assert Turns(database).get(WORKSPACE, claim.turn.id).run_ms == PROGRESS["run_ms"]


def test_the_database_serves_on_after_a_refused_write(database: Database) -> None:
    claim = running(database)
    with pytest.raises(REFUSED):
        Journal(database).save(claim, Entries((Step(1, "reply", {}), Step(1, "reply", {}))), PROGRESS)
    Journal(database).finish(claim, final())
    assert Turns(database).get(WORKSPACE, claim.turn.id).status == "completed"


def test_the_end_of_a_turn_is_written_in_all_tables(database: Database) -> None:
    claim = running(database)
    Journal(database).finish(
        claim,
        final(
            entries=Entries((Step(1, "reply", {}),), (call(0, status="completed", content="4"),)),
            said=(message(1, claim), message(2, claim)),
            delivery=delivery(1, claim),
        ),
    )
    turn = Turns(database).get(WORKSPACE, claim.turn.id)
    assert (turn.status, turn.output_text, turn.usage, turn.run_ms) == ("completed", "done", SPENT, 5)
    assert (turn.completed_ms, turn.calls[0].content) == (NOW_MS + 100, "4")
    assert filled(database) == {
        "sessions": 1, "turns": 1, "steps": 1, "calls": 1, "messages": 2, "outbox": 1, "usage": 1,
    }  # fmt: skip
    session = Sessions(database).get(WORKSPACE, "s1")
    assert (session.usage, session.queue_depth, session.is_busy) == (SPENT, 0, False)
    assert Outbox(database).due(now_ms=NOW_MS, limit=9) == ("whd_0001",)


def test_an_end_that_fails_anywhere_is_written_nowhere(database: Database) -> None:
    first = running(database)
    Journal(database).finish(first, final(said=(message(1, first),), delivery=delivery(1, first)))
    claim = running(database)
    before = counts(database), Sessions(database).get(WORKSPACE, "s1"), Turns(database).get(WORKSPACE, claim.turn.id)
    broken = (
        {"said": (message(2, claim), message(1, claim))},
        {"said": (message(2, claim),), "delivery": delivery(1, claim)},
        {"entries": Entries((Step(1, "reply", {}), Step(1, "reply", {})))},
        {"entries": Entries((), (call(0), call(0)))},
    )
    for fields in broken:
        with pytest.raises(REFUSED):
            Journal(database).finish(claim, final(**fields))
        after = counts(database), Sessions(database).get(WORKSPACE, "s1"), Turns(database).get(WORKSPACE, claim.turn.id)
        assert after == before
    Journal(database).finish(claim, final(said=(message(2, claim),)))


def test_a_turn_ends_once(database: Database) -> None:
    claim = running(database)
    Journal(database).finish(claim, final(said=(message(1, claim),)))
    with pytest.raises(Fenced):
        Journal(database).finish(claim, final(said=(message(2, claim),)))
    assert (counts(database)["messages"], counts(database)["usage"]) == (1, 1)


def test_calls_that_are_open_at_the_end_are_cancelled_and_others_stay(database: Database) -> None:
    claim = running(database)
    saved = (call(0, status="completed", content="4"), call(1), call(2, status="running"))
    Journal(database).save(claim, Entries((), saved), PROGRESS)
    Journal(database).finish(claim, final(ending=Ending("cancelled"), open_calls=2))
    turn = Turns(database).get(WORKSPACE, claim.turn.id)
    assert [(one.status, one.content) for one in turn.calls] == [
        ("completed", "4"), ("cancelled", CANCELLED), ("cancelled", CANCELLED)
    ]  # fmt: skip
    assert turn.calls[1].finished_ms == NOW_MS + 100


def test_a_turn_does_not_end_with_calls_told_as_cancelled_that_have_a_result(database: Database) -> None:
    claim = running(database)
    Journal(database).save(claim, Entries((), (call(0, status="completed", content="4"), call(1))), PROGRESS)
    before = counts(database), Turns(database).get(WORKSPACE, claim.turn.id)
    with pytest.raises(Interrupted, match=claim.turn.id):
        Journal(database).finish(claim, final(ending=Ending("cancelled"), open_calls=2, said=(message(1, claim),)))
    assert (counts(database), Turns(database).get(WORKSPACE, claim.turn.id)) == before


def test_an_end_without_a_reply_charges_nothing(database: Database) -> None:
    Journal(database).finish(running(database), final(Usage(), ending=Ending("failed", "dead")))
    assert counts(database)["usage"] == 0


def test_usage_adds_up_and_an_unknown_price_makes_the_sum_unknown(database: Database) -> None:
    for number, usage in enumerate((SPENT, SPENT, Usage(input_tokens=1, cost_usd=None, llm_calls=1))):
        Journal(database).finish(running(database, input=str(number)), final(usage))
        total = Sessions(database).get(WORKSPACE, "s1").usage
        assert (total.llm_calls, total.cost_usd) == [(1, 0.25), (2, 0.5), (3, None)][number]


def test_the_ledger_sums_by_every_key_and_within_the_workspace_only(database: Database) -> None:
    Journal(database).finish(running(database, "s1"), final())
    Journal(database).finish(running(database, "s1"), final(spent={"m2": SPENT}))
    Journal(database).finish(running(database, "s2"), final(Usage(input_tokens=1, cost_usd=None, llm_calls=1)))
    Journal(database).finish(running(database, "s1", workspace="other"), final())
    ledger = Ledger(database)
    sums = {
        group: [(row["key"], row["input_tokens"], row["cost_usd"], row["turns"]) for row in rows]
        for group, rows in ((name, ledger.totals(WORKSPACE, group_by=name)) for name in ("session", "model", "agent"))
    }
    assert sums == {
        "session": [("s1", 20, 0.5, 2), ("s2", 1, None, 1)],
        "model": [("m1", 11, None, 2), ("m2", 10, 0.25, 1)],
        "agent": [("default", 21, None, 3)],
    }
    assert [row["key"] for row in ledger.totals(WORKSPACE, group_by="day")] == ["2027-01-15"]
    assert ledger.totals(WORKSPACE, group_by="workspace")[0]["turns"] == 3
    assert ledger.totals("nobody", group_by="model") == ()


def test_a_message_comes_back_with_everything_it_had(database: Database) -> None:
    claim = running(database)
    use = ToolUse("toolu_1", "look", {"n": 1}, flaw="cut")
    chats = (
        ChatMessage("user", text="hi", context="today"),
        ChatMessage("assistant", text="", tool_uses=(use,), opaque=({"type": "thinking", "x": [1]},)),
        ChatMessage("tool", outcomes=(ToolOutcome("toolu_1", "look", "no", is_error=True, duration_ms=3),)),
    )
    said = tuple(message(number, claim, chat=chat, usage=SPENT) for number, chat in enumerate(chats))
    Journal(database).finish(claim, final(said=said))
    stored = tuple(Messages(database).get(WORKSPACE, "s1", one.id) for one in said)
    assert stored == tuple(replace(one, n=number) for number, one in enumerate(said, start=1))


def test_the_first_system_text_is_kept_with_the_version_of_its_agent(database: Database) -> None:
    Journal(database).finish(running(database), final(rom="be kind", agent_version="1"))
    Journal(database).finish(running(database), final(rom="be kind", agent_version="2"))
    session = Sessions(database).get(WORKSPACE, "s1")
    assert (session.rom, session.agent_version) == ("be kind", "1")


def test_a_version_without_a_system_text_is_not_kept(database: Database) -> None:
    Journal(database).finish(running(database), final(agent_version="1"))
    assert Sessions(database).get(WORKSPACE, "s1").agent_version is None


@pytest.mark.parametrize(
    ("patch", "version"),
    [
        (SessionPatch(agent="default@latest"), None),
        (SessionPatch(agent="default@2", version="2"), "2"),
        (SessionPatch(backend="other.db"), "1"),
    ],
)
def test_a_turn_that_ran_meanwhile_does_not_bring_the_old_system_text_back(
    database: Database, patch: SessionPatch, version: str | None
) -> None:
    Journal(database).finish(running(database), final(rom="old", agent_version="1"))
    claim = running(database)
    Sessions(database).patch(WORKSPACE, "s1", patch, now_ms=NOW_MS)
    Journal(database).finish(claim, final(rom="old", agent_version="1"))
    session = Sessions(database).get(WORKSPACE, "s1")
    assert (session.rom, session.agent_version) == (None, version)
    Journal(database).finish(running(database), final(rom="new", agent_version="2"))
    assert Sessions(database).get(WORKSPACE, "s1").rom == "new"


def test_the_first_system_text_is_not_kept_if_the_session_moved_meanwhile(
    database: Database,
) -> None:
    claim = running(database)
    Sessions(database).patch(WORKSPACE, "s1", SessionPatch(agent="default@2", version="2"), now_ms=NOW_MS)
    Journal(database).finish(claim, final(rom="of the first", agent_version="1"))
    session = Sessions(database).get(WORKSPACE, "s1")
    assert (session.rom, session.agent_version) == (None, "2")


def test_the_first_system_text_is_not_kept_if_the_database_was_switched_meanwhile(database: Database) -> None:
    claim = running(database)
    Sessions(database).patch(WORKSPACE, "s1", SessionPatch(backend="other.db"), now_ms=NOW_MS)
    Journal(database).finish(claim, final(rom="tables of the first", agent_version="1"))
    session = Sessions(database).get(WORKSPACE, "s1")
    assert (session.rom, session.agent_version, session.backend) == (None, None, "other.db")


def test_an_end_that_tells_nothing_new_of_the_memory_leaves_what_was_told_before(database: Database) -> None:
    Journal(database).finish(running(database), final(token_correction=1.25, memory_seen=3))
    Journal(database).finish(running(database), final())
    claim = running(database)
    assert (claim.token_correction, claim.memory_seen) == (1.25, 3)
    assert Sessions(database).get(WORKSPACE, "s1").token_correction == 1.25


def test_a_summary_that_is_charged_while_a_turn_runs_is_not_lost(database: Database) -> None:
    Journal(database).finish(running(database), final())
    claim = running(database)
    summary = Charge(WORKSPACE, "s1", "default", "small", Usage(input_tokens=100, cost_usd=usd(0.5), llm_calls=1))
    with database.write(lock=WHOLE) as tx:
        charge(tx, claim.turn.lane, summary, now_ms=NOW_MS)
    Journal(database).finish(claim, final())
    used = Sessions(database).get(WORKSPACE, "s1").usage
    assert (used.llm_calls, used.input_tokens, used.cost_usd) == (3, 120, 1.0)
    by_model = {row["key"]: row for row in Ledger(database).totals(WORKSPACE, group_by="model")}
    assert (by_model["m1"]["turns"], by_model["small"]["turns"]) == (2, 0)
    assert (by_model["small"]["input_tokens"], by_model["small"]["cost_usd"]) == (100, 0.5)
    assert Ledger(database).totals(WORKSPACE, group_by="session")[0]["turns"] == 2


def test_the_first_journal_write_of_a_second_turn_leaves_the_first_alone(database: Database) -> None:
    first = running(database)
    Journal(database).save(first, Entries((Step(1, "matched", {"of": "first"}),), (call(0),)), PROGRESS)
    Journal(database).finish(first, final())
    second = claimed(database, submitted(database).lane)
    Journal(database).save(second, Entries((Step(1, "matched", {"of": "second"}),), (call(0),)), PROGRESS)
    assert Turns(database).with_journal(WORKSPACE, first.turn.id)[1][0].payload == {"of": "first"}


def test_an_answer_is_stored_once_and_read_everywhere(database: Database) -> None:
    claim, text = running(database, idempotency_key="k"), "a long answer"
    chats = (ChatMessage("user", "hi"), ChatMessage("assistant", text))
    said = [message(n, claim, chat=chat) for n, chat in enumerate(chats)]
    steps = [Step(0, "matched", {}), Step(1, "reply", {"text": text}), Step(2, "events", {"first": 2, "log": []})]
    Journal(database).finish(
        claim, final(ending=Ending("completed", output_text=text), entries=Entries(steps), said=said)
    )
    assert [stored(database, table).count(text) for table in ("turns", "steps", "messages")] == [0, 0, 1]
    turns = Turns(database)
    assert turns.get(WORKSPACE, claim.turn.id).output_text == text
    assert turns.page(WORKSPACE, {}, limit=5, after=None).items[0].output_text == text
    assert submitted(database, idempotency_key="k").output_text == text
    assert rebuild(*turns.with_journal(WORKSPACE, claim.turn.id))[-1].data["output_text"] == text


def test_an_answer_that_leaves_no_message_stays_with_its_turn(database: Database) -> None:
    claim = running(database)
    ending = Ending("incomplete", "limits", output_text="half")
    Journal(database).finish(claim, final(ending=ending, said=[message(1, claim)]))
    assert Turns(database).get(WORKSPACE, claim.turn.id).output_text == "half"


def stored(database: Database, table: str) -> str:
    with database.read() as tx:
        return str([tuple(row) for row in tx.exec_driver_sql(f"SELECT * FROM {table}")])
