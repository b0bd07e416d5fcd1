"""A worker dies by SIGKILL in the middle of a turn; nobody who asked must notice more than a pause."""

import threading

import pytest

from tests.support.messages_server import Hang, MessagesServer, Say
from tests.support.messages_wire import WireCall, answer, sse
from tests.support.runbook import follow
from tests.support.system import System, alone, kill, spoken
from tests.support.until import until

pytestmark = [pytest.mark.journey, pytest.mark.takes(35)]

SLOW_QUERY = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 12000000) SELECT COUNT(*) FROM c"
"""About two seconds."""


def test_a_turn_whose_worker_is_killed_mid_stream_is_answered_once(server: MessagesServer, system: System) -> None:
    release = threading.Event()
    half = sse(answer("the first half and the second half"))
    server.then(Hang(release, half, after_bytes=len(half) // 2), Say("The whole answer."))
    before = system.output
    system.post("/v1/sessions", {"id": "killed", "budget": {"tokens": 1_000_000}})
    turn_id, next_id = system.submit("killed", "What is it?"), system.submit("killed", "And then?")
    seen = system.events(turn_id)
    begun = next(event for event in seen if event.type == "output_text.delta")
    worker = str(system.holder(turn_id))
    pid = system.kill(worker)
    release.set()

    turn, after = system.ended(turn_id), system.ended(next_id)
    assert (turn["status"], turn["output_text"], turn["attempt"]) == ("completed", "The whole answer.", 2)
    assert after["status"] == "completed"
    assert after["started_at"] >= turn["completed_at"]
    said = [(message["role"], message["turn_id"]) for message in system.messages("killed")]
    assert said == [("user", turn_id), ("assistant", turn_id), ("user", next_id), ("assistant", next_id)]

    [(used,)] = system.rows("SELECT tokens FROM spending WHERE level = 'session'")
    told = [turn["usage"][f"{kind}_tokens"] for turn in (turn, after) for kind in ("input", "output")]
    assert (used, system.rows("SELECT id FROM reservations")) == (sum(told), [])

    rest = list(seen)
    assert [event.id for event in rest] == list(range(begun.id + 1, rest[-1].id + 1))
    assert [event.data["attempt"] for event in rest if event.type == "turn.retrying"] == [2]
    assert spoken([begun, *rest]) == "The whole answer."

    until(lambda: system.children.get(worker, pid) != pid, 20, f"{worker} is started again")
    assert f"{worker} ended (SIGKILL); restarting" in system.output.removeprefix(before)


@pytest.mark.heavy
def test_a_turn_whose_tool_worker_is_killed_during_a_query_gets_its_result_from_another(
    server: MessagesServer, system: System
) -> None:
    call = WireCall("toolu_slow", "execute_sql", {"sql": SLOW_QUERY})
    server.then(Say("Let me count.", [call]), Say("Counted."))
    turn_id = system.submit("tool", "How many are there?")
    system.kill(str(until(lambda: system.tool_worker(turn_id), 20, "the query runs")))

    turn = system.ended(turn_id)
    assert (turn["status"], turn["output_text"]) == ("completed", "Counted.")
    (done,) = turn["tool_calls"]
    assert done["status"] == "completed"
    assert "12000000" in done["content"]
    results = [result for message in system.messages("tool") for result in message["tool_results"]]
    assert [result["tool_id"] for result in results] == ["toolu_slow"]
    assert [event.type for event in system.events(turn_id)].count("tool_call.completed") == 1


@pytest.mark.heavy
def test_a_turn_that_kills_every_worker_is_given_up_and_the_next_one_of_its_session_runs(
    server: MessagesServer, system: System
) -> None:
    release = threading.Event()
    half = sse(answer("never to be heard"))
    server.then(*[Hang(release, half, after_bytes=len(half) // 2)] * 2)
    turn_id = system.submit("poison", "Kill.", max_attempts=2)
    next_id = system.submit("poison", "And then?")
    until(lambda: asked(server, "Kill.") == 1, 20, "the first attempt runs")
    system.kill(str(system.holder(turn_id)))
    until(lambda: asked(server, "Kill.") == 2, 20, "the last attempt runs")
    kill(until(lambda: next(iter(alone(system.home, turn_id)), None), 5, "it runs in a process of its own") or 0)
    release.set()

    turn = system.ended(turn_id)
    assert (turn["status"], turn["reason"]) == ("failed", "dead")
    assert "2 attempts" in turn["error"]["message"]
    assert system.ended(next_id)["status"] == "completed"
    assert [dead["id"] for dead in system.get("/v1/turns?status=failed&reason=dead").json["data"]] == [turn_id]
    for block in ("dead turn, list", "dead turn, why", "poison turn, look"):
        follow(system, block, TURN=turn_id)
    server.then(Say("Answered after all."))
    again = follow(system, "dead turn, retry", TURN=turn_id).split()[2]
    assert system.ended(again)["output_text"] == "Answered after all."


def asked(server: MessagesServer, text: str) -> int:
    """How often the model was asked with this text last."""
    return sum(text in str(request["messages"][-1]) for request in server.requests)
