"""A webhook that is set once the turn was accepted."""

import pytest

from loom_worker.core.errors import Conflict, NotFound, Overruled
from loom_worker.core.settings import LimitSettings
from loom_worker.core.values.turns import Ending
from loom_worker.core.values.webhooks import Webhook
from loom_worker.store.claims import Claims
from loom_worker.store.database import Database
from loom_worker.store.journal import Journal
from loom_worker.store.outbox import Outbox
from loom_worker.store.submit import Retry, retry
from loom_worker.store.turns import set_webhook
from tests.unit.store.made import NOW_MS, WORKSPACE, delivery, final, running, submitted

HOOK = Webhook("https://hooks.example/x", format="a2a", headers={"Authorization": "Bearer s3cret"}, name="mine")


def test_a_webhook_is_set_replaced_under_its_name_and_taken_away(database: Database) -> None:
    turn = submitted(database)
    assert set_webhook(database, WORKSPACE, turn.id, HOOK).webhook == HOOK
    other = Webhook("https://hooks.example/y", format="a2a", name="mine")
    assert set_webhook(database, WORKSPACE, turn.id, other).webhook == other
    assert set_webhook(database, WORKSPACE, turn.id, None).webhook is None


def test_a_webhook_of_another_name_is_kept(database: Database) -> None:
    turn = submitted(database, webhook=Webhook("https://hooks.example/own"))
    with pytest.raises(Conflict) as raised:
        set_webhook(database, WORKSPACE, turn.id, HOOK)
    assert raised.value.slug == "webhook-set"


def test_nobody_sets_it_in_another_workspace(database: Database) -> None:
    turn = submitted(database)
    with pytest.raises(NotFound):
        set_webhook(database, "others", turn.id, HOOK)


def test_a_turn_that_has_ended_takes_none(database: Database) -> None:
    claim = running(database)
    Journal(database).finish(claim, final())
    with pytest.raises(Conflict):
        set_webhook(database, WORKSPACE, claim.turn.id, HOOK)


@pytest.mark.parametrize("before", [None, Webhook("https://hooks.example/x", name="mine", format="a2a")])
@pytest.mark.parametrize("after", [None, HOOK])
def test_a_turn_does_not_end_before_its_owner_knows_the_webhook(
    database: Database, before: Webhook | None, after: Webhook | None
) -> None:
    claim = running(database, webhook=before)
    set_webhook(database, WORKSPACE, claim.turn.id, after)
    if before == after:
        Journal(database).finish(claim, final())
        return
    with pytest.raises(Overruled):
        Journal(database).finish(claim, final())
    assert Claims(database).webhook(claim) == after


def test_a_delivery_keeps_the_headers(database: Database) -> None:
    claim = running(database)
    made = delivery(1, claim, headers={"Authorization": "Bearer s3cret"})
    Journal(database).finish(claim, final(delivery=made))
    taken = Outbox(database).take(made.id, now_ms=NOW_MS, hold_ms=1)
    assert taken is not None
    assert taken.headers == {"Authorization": "Bearer s3cret"}
    assert "s3cret" not in repr(taken)


def test_a_turn_that_is_run_again_reports_as_before(database: Database) -> None:
    claim = running(database, webhook=HOOK)
    Journal(database).finish(claim, final(ending=Ending("failed", "dead")))
    again, _ = retry(database, LimitSettings(), (WORKSPACE, claim.turn.id), Retry(), now_ms=NOW_MS)
    assert again.webhook == HOOK
