from dataclasses import replace

import pytest
from sqlalchemy import update

from loom_worker.core.values.calls import Call
from loom_worker.core.values.sessions import Choice
from loom_worker.core.values.tools import Caller
from loom_worker.core.values.turns import Claim, Step
from loom_worker.store.agent_errors import AgentErrors, NewAgentError
from loom_worker.store.calls import HOUR_MS, CallOwner, Calls, Left, tool_counts
from loom_worker.store.database import Database
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.journal import Entries, Journal
from loom_worker.store.schema import turns
from loom_worker.store.sessions import Sessions
from loom_worker.store.turns import Turns
from tests.support.at_once import at_once
from tests.unit.store import made
from tests.unit.store.made import NOW_MS, PROGRESS, WORKSPACE, call, claimed, final, running


@pytest.fixture
def claim(database: Database) -> Claim:
    """A turn with two calls that were sent once."""
    claim = running(database)
    Journal(database).save(claim, Entries((), (call(0), call(1))), PROGRESS)
    return claim


def take(database: Database, claim: Claim, position: int = 0, send: int = 1) -> Call | None:
    return Calls(database).claim(claim.turn.id, position, send, worker="w", now_ms=NOW_MS + 1, durable=False)


def close(database: Database, claim: Claim, taken: Call, content: str = "4") -> int | None:
    done = replace(taken, status="completed", content=content, finished_ms=NOW_MS + 9)
    left = Calls(database).close(claim.turn.id, done)
    return None if left is None else left.under_way


def ended_call(database: Database, claim: Claim, position: int) -> Left:
    taken = take(database, claim, position)
    assert taken is not None
    left = Calls(database).close(claim.turn.id, replace(taken, status="completed", finished_ms=NOW_MS + 9))
    assert left is not None
    return left


def stored(database: Database, claim: Claim) -> tuple[Call, ...]:
    return Turns(database).get(WORKSPACE, claim.turn.id).calls


def test_a_call_is_taken_once(database: Database, claim: Claim) -> None:
    taken = take(database, claim)
    assert taken == replace(call(0), status="running", worker="w", started_ms=NOW_MS + 1)
    assert take(database, claim) is None


@pytest.mark.parametrize("durable", [False, True])
def test_of_many_workers_one_takes_the_call(database: Database, claim: Claim, durable: bool) -> None:
    def run(number: int) -> Call | None:
        return Calls(database).claim(claim.turn.id, 0, 1, worker=f"w{number}", now_ms=NOW_MS, durable=durable)

    taken = at_once(run, range(12))
    winners = [found for found in taken if found is not None]
    assert [winner.worker for winner in winners] == [stored(database, claim)[0].worker]


@pytest.mark.parametrize(("position", "send"), [(9, 1), (0, 0), (0, 2)])
def test_a_call_that_is_not_there_or_of_another_sending_is_not_taken(
    database: Database, claim: Claim, position: int, send: int
) -> None:
    assert take(database, claim, position, send) is None


def test_closing_tells_how_many_are_still_open(database: Database, claim: Claim) -> None:
    left = []
    for position in (1, 0):
        taken = take(database, claim, position)
        assert taken is not None
        left.append(close(database, claim, taken))
    assert left == [1, 0]
    assert [(one.status, one.content, one.duration_ms) for one in stored(database, claim)] == [
        ("completed", "4", 8)
    ] * 2


def test_a_call_is_closed_once(database: Database, claim: Claim) -> None:
    taken = take(database, claim)
    assert taken is not None
    close(database, claim, taken, "first")
    assert close(database, claim, taken, "second") is None
    assert stored(database, claim)[0].content == "first"


def test_the_result_of_an_overtaken_sending_is_dropped(database: Database, claim: Claim) -> None:
    slow = take(database, claim)
    assert slow is not None
    (again,) = Calls(database).send(claim, (slow,), now_ms=NOW_MS + 5)
    assert (again.sends, again.status, again.worker, again.sent_ms) == (2, "pending", None, NOW_MS + 5)
    assert close(database, claim, slow, "late") is None
    assert take(database, claim, send=1) is None
    second = take(database, claim, send=2)
    assert second is not None
    assert close(database, claim, second, "in time") == 1
    assert stored(database, claim)[0].content == "in time"


def test_a_call_that_has_a_result_is_not_sent_again(database: Database, claim: Claim) -> None:
    taken = take(database, claim)
    assert taken is not None
    close(database, claim, taken)
    sent = Calls(database).send(claim, (call(0), call(1)), now_ms=NOW_MS + 5)
    assert [(one.position, one.status, one.sends) for one in sent] == [(1, "pending", 2)]


def test_a_call_that_was_taken_since_it_was_looked_at_is_not_sent_again(database: Database, claim: Claim) -> None:
    taken = take(database, claim)
    assert taken is not None
    assert Calls(database).send(claim, (call(0),), now_ms=NOW_MS + 5) == ()
    assert next((one.status, one.sends, one.worker) for one in stored(database, claim)) == ("running", 1, "w")
    (again,) = Calls(database).send(claim, (taken,), now_ms=NOW_MS + 6)
    assert (again.status, again.sends, again.worker) == ("pending", 2, None)


def test_sending_again_leaves_the_owner_of_the_turn_and_other_calls_alone(database: Database, claim: Claim) -> None:
    Calls(database).send(claim, (call(1),), now_ms=NOW_MS + 5)
    assert stored(database, claim)[0] == call(0)
    Journal(database).finish(claim, final())


def test_a_result_after_the_end_of_the_turn_is_dropped(database: Database, claim: Claim) -> None:
    taken = take(database, claim)
    assert taken is not None
    Journal(database).finish(claim, final())
    before = stored(database, claim)
    assert close(database, claim, taken, "late") is None
    assert take(database, claim, position=1) is None
    assert stored(database, claim) == before


def test_a_result_counts_though_the_turn_was_entered_again_meanwhile(database: Database, claim: Claim) -> None:
    taken = take(database, claim)
    assert taken is not None
    assert claimed(database, claim.turn.lane, "w2").turn.fence == 2
    assert close(database, claim, taken) == 1


def test_calls_of_another_turn_do_not_count_as_open(database: Database, claim: Claim) -> None:
    other = running(database, "s2")
    Journal(database).save(other, Entries((), (call(0),)), PROGRESS)
    taken = take(database, other)
    assert taken is not None
    assert close(database, other, taken) == 0


def test_the_owner_of_a_call_is_known_until_it_is_deleted(database: Database, claim: Claim) -> None:
    caller = Caller(claim.turn.lane, "s1", WORKSPACE, claim.turn.id, "toolu_0")
    owner = CallOwner(agent="default", choice=Choice(), tool="look", reply_n=1, caller=caller)
    assert Calls(database).owner_of(claim.turn.id, 0) == owner
    assert Calls(database).owner_of(claim.turn.id, 9) is None
    Sessions(database).delete(WORKSPACE, "s1")
    assert Calls(database).owner_of(claim.turn.id, 0) is None
    assert take(database, claim) is None


def test_a_call_that_ends_marks_the_next_one_as_sent(database: Database) -> None:
    claim = running(database)
    unsent = [replace(call(n), sends=0, sent_ms=None) for n in range(1, 4)]
    Journal(database).save(claim, Entries((), (call(0), replace(call(4)), *unsent)), PROGRESS)
    taken = take(database, claim)
    assert taken is not None
    done = replace(taken, status="completed", content="x", finished_ms=NOW_MS + 9)
    left = Calls(database).close(claim.turn.id, done, concurrency=2)
    assert left is not None
    assert left.next is not None
    assert (left.under_way, left.next.position, left.next.sends, left.next.sent_ms) == (2, 1, 1, NOW_MS + 9)
    assert [one.sends for one in stored(database, claim)] == [1, 1, 0, 0, 1]


def test_what_waits_for_a_person_or_for_its_twin_is_not_sent_in_its_place(database: Database) -> None:
    claim = running(database)
    unsent = {"sends": 0, "sent_ms": None}
    waiting = replace(call(1), approval="waiting", approve_by_ms=NOW_MS, **unsent)
    twin = replace(call(2), arguments=call(0).arguments, **unsent)
    Journal(database).save(claim, Entries((), (call(0), waiting, twin, replace(call(3), **unsent), call(4))), PROGRESS)
    taken = take(database, claim)
    assert taken is not None
    done = replace(taken, status="completed", content="x", finished_ms=NOW_MS + 9)
    left = Calls(database).close(claim.turn.id, done, concurrency=9)
    assert left is not None
    assert left.next is not None
    assert left.next.position == 3


def test_who_ends_a_call_knows_what_readers_were_told_before_and_by_whom(database: Database) -> None:
    claim = running(database)
    steps = (Step(1, "reply", {"text": "x"}), Step(2, "events", {"first": 2, "last": 7, "log": []}))
    Journal(database).save(claim, Entries(steps, (call(0), call(1))), PROGRESS)
    Journal(database).save(claim, Entries((Step(3, "events", {"first": 8, "last": 9, "log": []}),)), PROGRESS)
    told = [ended_call(database, claim, position) for position in (0, 1)]
    assert [(left.told, left.fence) for left in told] == [(9, claim.turn.fence)] * 2


def test_a_journal_that_tells_of_no_event_has_the_first(database: Database, claim: Claim) -> None:
    assert ended_call(database, claim, 0).told == 1


def test_the_last_call_under_way_leaves_the_others_to_the_turn(database: Database) -> None:
    claim = running(database)
    Journal(database).save(claim, Entries((), (call(0), replace(call(1), sends=0, sent_ms=None))), PROGRESS)
    taken = take(database, claim)
    assert taken is not None
    left = Calls(database).close(claim.turn.id, replace(taken, status="failed", finished_ms=1), concurrency=9)
    assert left is not None
    assert (left.under_way, left.next) == (0, None)


def test_a_result_keeps_what_it_refers_to(database: Database, claim: Claim) -> None:
    taken = take(database, claim)
    assert taken is not None
    done = replace(taken, status="failed", content="x", finished_ms=1, error_id="err_1", ref="ref_1")
    Calls(database).close(claim.turn.id, done)
    assert (stored(database, claim)[0].error_id, stored(database, claim)[0].ref) == ("err_1", "ref_1")


def status(database: Database, turn_id: str, new: str) -> None:
    with database.write(lock=WHOLE) as tx:
        tx.execute(update(turns).where(turns.c.id == turn_id).values(status=new))


def test_nothing_is_counted_where_nothing_is(database: Database) -> None:
    nothing = {"awaiting_approval": 0, "errors_last_hour": 0, "large_results": 0}
    assert tool_counts(database, now_ms=made.NOW_MS) == nothing


def test_only_turns_that_ask_a_person_wait_for_one_whatever_their_workspace(database: Database) -> None:
    for workspace in ("one", "two"):
        status(database, made.submitted(database, workspace=workspace).id, "requires_action")
    made.submitted(database, "waits")
    status(database, made.submitted(database, "gone").id, "failed")
    assert tool_counts(database, now_ms=made.NOW_MS)["awaiting_approval"] == 2


@pytest.mark.parametrize(("age_ms", "counted"), [(0, 1), (HOUR_MS - 1, 1), (HOUR_MS, 0)])
def test_an_error_counts_for_an_hour(database: Database, age_ms: int, counted: int) -> None:
    lane = made.submitted(database).lane
    AgentErrors(database).store(NewAgentError(lane, "turn_1", "look", "no", {"message": "no"}), now_ms=made.NOW_MS)
    assert tool_counts(database, now_ms=made.NOW_MS + age_ms)["errors_last_hour"] == counted
