"""Tool calls through real Celery chords, on a real worker."""

from datetime import date

import pytest

from loom_worker.demo import shop
from tests.support.engine import Engine
from tests.support.messages_server import MessagesServer, Say
from tests.support.messages_wire import WireCall
from tests.support.until import until

pytestmark = [pytest.mark.heavy, pytest.mark.integration, pytest.mark.takes(12)]


def counting(number: int, up_to: int) -> WireCall:
    sql = f"WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < {up_to}) SELECT MAX(x) FROM c"
    return WireCall(f"toolu_{number}", "execute_sql", {"sql": sql})


@pytest.fixture(scope="module", autouse=True)
def _data(engine: Engine) -> None:
    shop.ensure(engine.home / "shop.db", today=date(2026, 11, 21))


def test_calls_of_one_reply_come_back_in_call_order_whatever_their_order_of_completion(
    engine: Engine, server: MessagesServer
) -> None:
    calls = [counting(0, 6_000_000), counting(1, 2_000_000), counting(2, 1)]
    server.then(Say("I count three times.", calls), Say("Done."))
    before = engine.tasks_run()
    turn = engine.submit("chord", "Count.")
    events = list(engine.events(turn))

    completed = [event.data["id"] for event in events if event.type == "tool_call.completed"]
    assert completed == ["toolu_2", "toolu_1", "toolu_0"]
    ended = engine.turn(turn)
    assert [(call.id, call.status) for call in ended.calls] == [(f"toolu_{n}", "completed") for n in range(3)]
    sent = server.requests[-1]["messages"][-1]["content"]
    assert [block["tool_use_id"] for block in sent if block["type"] == "tool_result"] == [call.id for call in calls]
    (results,) = (message.chat.outcomes for message in engine.messages("chord") if message.chat.outcomes)
    assert [result.tool_use_id for result in results] == [call.id for call in calls]
    assert [str(up_to) in result.content for result, up_to in zip(results, (6_000_000, 2_000_000, 1), strict=True)]

    after = engine.tasks_run()
    assert after["loom.tool.call"] - before.get("loom.tool.call", 0) == 3
    assert after["loom.turn.wake"] - before.get("loom.turn.wake", 0) == 1
    assert [event.id for event in events] == list(range(1, len(events) + 1))


def test_a_call_that_fails_is_a_result_and_the_turn_goes_on(engine: Engine, server: MessagesServer) -> None:
    wrong = WireCall("toolu_bad", "execute_sql", {"sql": "SELECT no_such_column FROM products"})
    unknown = WireCall("toolu_unknown", "drop_everything", {})
    server.then(Say("I try.", [wrong, unknown, counting(2, 5)]), Say("Two of three failed."))
    ended = engine.ended(engine.submit("failing", "Try."))
    assert (ended.status, ended.output_text) == ("completed", "Two of three failed.")
    assert [call.status for call in ended.calls] == ["failed", "failed", "completed"]
    sent = server.requests[-1]["messages"][-1]["content"]
    assert [block.get("is_error", False) for block in sent if block["type"] == "tool_result"] == [True, True, False]


def test_while_its_tools_run_a_turn_holds_no_worker(engine: Engine, server: MessagesServer) -> None:
    server.then(Say("I count.", [counting(0, 4_000_000)]), Say("Counted."))
    turn = engine.submit("parked", "Count.")
    next(event for event in engine.events(turn) if event.type == "tool_call.started")
    held = "SELECT held_by FROM turns WHERE id = ? AND status = 'in_progress' AND parked_until_ms IS NOT NULL"
    assert until(lambda: engine.rows(held, turn.id), 10, "the turn is parked") == [(None,)]
    assert engine.ended(turn).status == "completed"
