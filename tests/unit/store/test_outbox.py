from dataclasses import replace

import pytest

from loom_worker.core.errors import NotFound
from loom_worker.core.values.notifications import Delivery
from loom_worker.store.database import Database
from loom_worker.store.journal import Journal
from loom_worker.store.outbox import Outbox
from tests.support.at_once import at_once
from tests.unit.store.made import NOW_MS, WORKSPACE, delivery, final, running


@pytest.fixture
def sent(database: Database) -> Delivery:
    """A delivery that is due at NOW_MS."""
    claim = running(database)
    made = delivery(1, claim, secret="whsec_x", body='{"é": 1}')
    Journal(database).finish(claim, final(delivery=made))
    return made


def test_a_due_delivery_is_taken_by_one(database: Database, sent: Delivery) -> None:
    box = Outbox(database)
    assert box.take(sent.id, now_ms=NOW_MS, hold_ms=30_000) == replace(sent, next_ms=NOW_MS + 30_000)
    assert box.take(sent.id, now_ms=NOW_MS, hold_ms=30_000) is None
    assert box.due(now_ms=NOW_MS + 29_999, limit=9) == ()


def test_a_delivery_is_not_taken_before_its_time(database: Database, sent: Delivery) -> None:
    assert Outbox(database).take(sent.id, now_ms=NOW_MS - 1, hold_ms=1) is None
    assert Outbox(database).due(now_ms=NOW_MS - 1, limit=9) == ()


def test_of_many_workers_one_sends(database: Database, sent: Delivery) -> None:
    taken = at_once(lambda _: Outbox(database).take(sent.id, now_ms=NOW_MS, hold_ms=30_000), range(8))
    assert len([found for found in taken if found is not None]) == 1


def test_a_delivery_whose_worker_died_is_due_again_after_its_hold(database: Database, sent: Delivery) -> None:
    box = Outbox(database)
    box.take(sent.id, now_ms=NOW_MS, hold_ms=30_000)
    assert box.due(now_ms=NOW_MS + 30_000, limit=9) == (sent.id,)
    assert box.take(sent.id, now_ms=NOW_MS + 30_000, hold_ms=30_000) is not None


def test_the_state_after_an_attempt_is_kept_and_what_was_promised_is_not_changed(
    database: Database, sent: Delivery
) -> None:
    box = Outbox(database)
    changed = replace(
        sent, status="pending", attempts=3, next_ms=NOW_MS + 5, last_status=500, last_error="no", body="x"
    )
    box.save(changed)
    taken = box.take(sent.id, now_ms=NOW_MS + 5, hold_ms=0)
    assert taken == replace(changed, body=sent.body)


@pytest.mark.parametrize("status", ["delivered", "dead", "disabled"])
def test_a_delivery_that_is_over_is_sent_again_only_when_replayed(
    database: Database, sent: Delivery, status: str
) -> None:
    box = Outbox(database)
    over = replace(sent, status=status, attempts=10, next_ms=None, delivered_ms=NOW_MS)  # type: ignore[arg-type]
    box.save(over)
    assert box.due(now_ms=NOW_MS * 2, limit=9) == ()
    assert box.take(sent.id, now_ms=NOW_MS * 2, hold_ms=1) is None
    again = box.replay(WORKSPACE, sent.id, now_ms=NOW_MS + 7)
    assert (again.status, again.attempts, again.next_ms, again.delivered_ms) == ("pending", 0, NOW_MS + 7, None)
    assert box.take(sent.id, now_ms=NOW_MS + 7, hold_ms=1) is not None


def test_nobody_replays_a_delivery_of_another_workspace(database: Database, sent: Delivery) -> None:
    box = Outbox(database)
    box.save(replace(sent, status="dead", next_ms=None))
    for workspace, delivery_id in (("other", sent.id), (WORKSPACE, "whd_none")):
        with pytest.raises(NotFound):
            box.replay(workspace, delivery_id, now_ms=NOW_MS)
    assert box.due(now_ms=NOW_MS * 2, limit=9) == ()


def test_what_has_waited_longest_is_due_first_and_no_more_than_asked_for(database: Database) -> None:
    for number, next_ms in enumerate((NOW_MS + 3, NOW_MS + 1, NOW_MS + 2)):
        claim = running(database, f"s{number}")
        Journal(database).finish(claim, final(delivery=delivery(number, claim, next_ms=next_ms)))
    assert Outbox(database).due(now_ms=NOW_MS + 9, limit=2) == ("whd_0001", "whd_0002")


def test_a_delivery_without_a_row_is_not_taken(database: Database) -> None:
    assert Outbox(database).take("whd_none", now_ms=NOW_MS, hold_ms=1) is None
