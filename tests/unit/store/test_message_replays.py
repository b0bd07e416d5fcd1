"""Operators list the messages between agents, and queue dead ones again."""

from typing import Any, get_args

import pytest

from loom_worker.core.errors import Conflict, Invalid, NotFound
from loom_worker.core.values.agent_messages import MOST_ATTEMPTS, TTL_MS, AgentMessage, MessageStatus
from loom_worker.core.values.cutting import FIELD_BYTES
from loom_worker.core.values.tenants import WorkspaceUser
from loom_worker.core.values.turns import Claim, Ending, Turn
from loom_worker.store.agent_messages import AgentMessages
from loom_worker.store.database import Database
from loom_worker.store.journal import Journal
from tests.support.agent_messages import dead, sent, settle, taken, wait_for_messages
from tests.unit.store.made import NOW_MS, PROGRESS, WORKSPACE, final, running, submitted

LATER_MS = NOW_MS + 2 * TTL_MS


@pytest.fixture
def sender(database: Database) -> Turn:
    return submitted(database, "sender")


def replayed(database: Database, message_id: str, **options: Any) -> tuple[AgentMessage, tuple[str, ...]]:
    return AgentMessages(database).replay(options.pop("tenant", WORKSPACE), message_id, now_ms=LATER_MS)


def found(database: Database, message_id: str) -> AgentMessage:
    return AgentMessages(database).get(WORKSPACE, message_id)


def failed(database: Database, claim: Claim) -> None:
    """The turn fails with all that it has taken."""
    Journal(database).finish(claim, final(ending=Ending("failed", "provider"), progress=PROGRESS | {"completed_ms": 1}))


def test_a_dead_message_is_as_good_as_new_once_it_is_replayed(database: Database, sender: Turn) -> None:
    message_id = dead(database, sender, at_ms=NOW_MS)
    assert (found(database, message_id).status, found(database, message_id).reason) == ("dead", "expired")
    message, _ = replayed(database, message_id)
    assert message == found(database, message_id)
    assert (message.status, message.reason, message.ended_ms, message.attempts) == ("queued", None, None, 0)
    assert message.expires_ms == LATER_MS + TTL_MS
    assert settle(database, at_ms=LATER_MS + TTL_MS - 1) == 0


def test_a_message_that_four_turns_failed_with_can_be_taken_four_times_again(database: Database, sender: Turn) -> None:
    message_id = sent(database, sender, to="default", at_ms=NOW_MS)
    for attempt in range(MOST_ATTEMPTS):
        claim = running(database, f"reader{attempt}")
        assert [each.id for each in taken(database, claim, at_ms=NOW_MS)] == [message_id]
        failed(database, claim)
        settle(database, at_ms=NOW_MS)
    assert (found(database, message_id).status, found(database, message_id).reason) == ("dead", "attempts")
    replayed(database, message_id)
    [again] = taken(database, running(database, "reader"), at_ms=LATER_MS)
    assert (again.id, again.attempts) == (message_id, 1)


@pytest.mark.parametrize("status", ["queued", "taken", "done"])
def test_what_is_not_dead_is_not_replayed(database: Database, sender: Turn, status: MessageStatus) -> None:
    message_id = sent(database, sender, to="default", at_ms=NOW_MS)
    if status != "queued":
        claim = running(database, "reader")
        taken(database, claim, at_ms=NOW_MS)
        if status == "done":
            Journal(database).finish(claim, final())
            settle(database, at_ms=NOW_MS)
    before = found(database, message_id)
    with pytest.raises(Conflict, match=f"it is {status}") as refused:
        replayed(database, message_id)
    assert refused.value.slug == "not-replayable"
    assert (before.status, found(database, message_id)) == (status, before)


def test_a_replay_names_the_lanes_whose_turns_wait_for_it_and_no_others(database: Database, sender: Turn) -> None:
    message_id = dead(database, sender, to="default", at_ms=NOW_MS)
    to_others = dead(database, sender, at_ms=NOW_MS)
    waiting = wait_for_messages(database, submitted(database, "waits").lane, at_ms=NOW_MS)
    running(database, "does something else")
    assert replayed(database, to_others)[1] == ()
    assert replayed(database, message_id)[1] == (waiting.lane,)


@pytest.mark.parametrize("tenant", ["another", WorkspaceUser(WORKSPACE, "maria"), WorkspaceUser("another", "maria")])
def test_a_message_of_others_is_neither_found_nor_replayed(database: Database, sender: Turn, tenant: Any) -> None:
    message_id, rows = dead(database, sender, at_ms=NOW_MS), AgentMessages(database)
    assert rows.page(tenant, agent=None, status=None, limit=9, after=None).items == ()
    with pytest.raises(NotFound):
        rows.get(tenant, message_id)
    with pytest.raises(NotFound):
        replayed(database, message_id, tenant=tenant)
    assert found(database, message_id).status == "dead"


@pytest.mark.parametrize("after", ["x", "-1", "1" * 16, "²", ""])
def test_what_no_page_gave_is_no_cursor(database: Database, after: str) -> None:
    with pytest.raises(Invalid):
        AgentMessages(database).page(WORKSPACE, agent=None, status=None, limit=9, after=after)


def test_a_list_has_the_beginning_of_a_long_message_and_says_so(database: Database, sender: Turn) -> None:
    body = "x" * (2 * FIELD_BYTES)
    message_id = sent(database, sender, body, kind="control")
    [listed] = AgentMessages(database).page(WORKSPACE, agent=None, status=None, limit=9, after=None).items
    assert len(listed.body) <= FIELD_BYTES
    assert (listed.as_json()["truncated"], listed.as_json()["url"]) == (True, f"/v1/agent-messages/{message_id}")
    assert found(database, message_id).body == body


def test_messages_are_counted_by_status_those_without_any_too(database: Database, sender: Turn) -> None:
    rows = AgentMessages(database)
    assert rows.counts() == dict.fromkeys(get_args(MessageStatus), 0)
    dead(database, sender, at_ms=NOW_MS)
    for agent in ("helper", "default"):
        sent(database, sender, to=agent, at_ms=NOW_MS)
    taken(database, running(database, "reader"), at_ms=NOW_MS)
    assert rows.counts() == {"queued": 1, "taken": 1, "done": 0, "dead": 1}
