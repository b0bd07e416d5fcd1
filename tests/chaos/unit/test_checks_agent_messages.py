"""I22: each test breaks messages between agents, and references that were passed on, in one way."""

import json
from dataclasses import replace

import pytest

from tests.chaos.checker import check
from tests.chaos.records import Evidence, Injection
from tests.chaos.unit.made import NOW_MS, Run, assert_found
from tests.chaos.unit.talked import talked

TWO = "T00009 tools=send_agent@ann,send_agent@ann tools=delegate@ann >tools=receive_messages"
REF = f"ref_{'0' * 32}"


@pytest.fixture
def sender(run: Run) -> str:
    """The id of a turn that has sent two messages, which another agent has read."""
    return talked(run, TWO).id


def read_call(run: Run) -> str:
    """The call that has read them."""
    return str(run.row("SELECT id FROM calls WHERE name = 'receive_messages'")[0])


def found(evidence: Evidence) -> list[str]:
    return [each.text for each in check(evidence) if each.invariant == "I22"]


def test_messages_that_kept_every_promise_have_no_violation(run: Run, sender: str) -> None:
    assert run.row("SELECT count(*) FROM agent_messages WHERE status = 'done'")[0] == 2
    assert check(run.evidence()) == ()


def test_a_lost_message_is_found(run: Run, sender: str) -> None:
    run.sql("DELETE FROM agent_messages WHERE n = 1")
    assert_found(run.evidence(), "I22", "is completed, and its message is not in the database")
    assert_found(run.evidence(), "I22", "which is not in the database")


def test_a_message_that_is_there_twice_is_found(run: Run, sender: str) -> None:
    run.sql("UPDATE agent_messages SET body = (SELECT body FROM agent_messages WHERE n = 2)")
    assert_found(run.evidence(), "I22", "is there 2 times")
    assert_found(run.evidence(), "I22", "which is another message")


def test_a_message_that_nobody_sent_is_found(run: Run, sender: str) -> None:
    run.sql("UPDATE agent_messages SET from_turn_id = ? WHERE n = 1", run.id_of("T00001"))
    assert_found(run.evidence(), "I22", "was sent by no call")


def test_a_message_to_another_agent_is_found(run: Run, sender: str) -> None:
    run.sql("UPDATE agent_messages SET to_agent = 'dot' WHERE n = 1")
    assert_found(run.evidence(), "I22", "which is another message")
    assert_found(run.evidence(), "I22", "which is for another agent")


@pytest.mark.parametrize(
    ("change", "flaw"),
    [
        ("status = 'queued', ended_ms = NULL", "and is queued"),
        ("status = 'taken', ended_ms = NULL", "which has ended"),
        ("turn_id = 'turn_none'", "and is done (turn turn_none)"),
        ("ended_ms = NULL", "is done, and ended at None"),
    ],
)
def test_a_message_in_another_state_than_was_done_with_it_is_found(
    run: Run, sender: str, change: str, flaw: str
) -> None:
    run.sql(f"UPDATE agent_messages SET {change} WHERE n = 1")
    assert_found(run.evidence(), "I22", flaw)


def test_a_message_that_counts_as_done_and_was_never_read_is_found(run: Run, sender: str) -> None:
    run.sql("UPDATE calls SET content = 'No messages.' WHERE id = ?", read_call(run))
    assert_found(run.evidence(), "I22", "is done, and T")


def test_a_message_that_two_turns_have_read_is_found(run: Run, sender: str) -> None:
    talked(run, "T00010 tools=delegate@ann >tools=receive_messages", session="again")
    (content,) = run.row("SELECT content FROM calls WHERE id = ?", read_call(run))
    run.sql("UPDATE calls SET content = ? WHERE name = 'receive_messages'", content)
    assert_found(run.evidence(), "I22", "was received 2 times")


def test_messages_in_another_order_within_a_call_are_found(run: Run, sender: str) -> None:
    (content,) = run.row("SELECT content FROM calls WHERE id = ?", read_call(run))
    run.sql("UPDATE calls SET content = ? WHERE id = ?", json.dumps(json.loads(content)[::-1]), read_call(run))
    assert_found(run.evidence(), "I22", "has received messages in the order [2, 1]")


def test_a_later_message_that_was_read_earlier_is_found_unless_something_was_done_meanwhile(run: Run) -> None:
    one = "tools=send_agent@ann tools=delegate@ann >tools=receive_messages"
    for mark in ("T00009", "T00010"):
        talked(run, f"{mark} {one}", session=mark)
    run.sql(
        "UPDATE calls SET finished_ms = ? WHERE name = 'receive_messages' AND content LIKE '%' ||"
        " (SELECT id FROM agent_messages WHERE n = 1) || '%'",
        NOW_MS + 9_000,
    )
    assert_found(run.evidence(), "I22", "was received 8995 ms before")
    flush = Injection("flush", "broker", NOW_MS / 1000 + 1, NOW_MS / 1000 + 1)
    assert found(replace(run.evidence(), injections=(flush,))) == []


def test_a_reference_that_nobody_passed_on_is_found(run: Run, sender: str) -> None:
    run.sql("INSERT INTO blob_grants (ref, lane) SELECT ?, lane FROM turns WHERE parent_turn_id = ?", REF, sender)
    assert_found(run.evidence(), "I22", f"may read {REF}, and nobody has passed it on")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE agent_messages SET ref = ? WHERE n = 1",
        "UPDATE agent_messages SET body = body || ' ' || ? WHERE n = 1",
        "UPDATE turns SET input = input || ' ' || ? WHERE parent_turn_id IS NOT NULL",
    ],
)
def test_a_reference_may_be_read_that_the_sender_of_a_message_or_a_question_may_read(
    run: Run, sender: str, change: str
) -> None:
    run.sql("INSERT INTO blob_grants (ref, lane) SELECT ?, lane FROM turns WHERE parent_turn_id = ?", REF, sender)
    run.sql(change, REF)
    assert_found(run.evidence(), "I22", "nobody has passed it on")  # its sender may not read it either
    run.sql(
        "INSERT INTO blobs SELECT ?, lane, workspace, session_id, id, 'report', 1, 1, '', 0, 'text/plain', '{}', 1, 1"
        " FROM turns WHERE id = ?",
        REF,
        sender,
    )
    assert found(run.evidence()) == []
