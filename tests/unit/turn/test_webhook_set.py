"""A client sets a turn's webhook while the turn runs."""

from loom_worker.core.values.chat import TextDelta
from loom_worker.core.values.webhooks import Webhook
from loom_worker.store.outbox import Outbox
from loom_worker.store.turns import set_webhook
from tests.support.models import says
from tests.support.stage import WORKSPACE, Stage

OLD = Webhook("https://hooks.example/old", name="mine", format="a2a")
NEW = Webhook("https://hooks.example/new", name="mine", format="a2a", headers={"X-A2A-Notification-Token": "t"})


def test_the_end_is_reported_to_the_webhook_that_was_set_in_mid_stream(stage: Stage) -> None:
    turn = stage.submit()
    stage.model.scenes = [
        [TextDelta("Four"), lambda: set_webhook(stage.database, WORKSPACE, turn.id, NEW), says("Four")[-1]]
    ]
    turn = stage.serve(turn, stage.worker("w1"))
    assert (turn.status, turn.output_text) == ("completed", "Four")
    (sent,) = Outbox(stage.database).page(WORKSPACE, limit=9, after=None).items
    assert (sent.url, sent.headers) == (NEW.url, {"X-A2A-Notification-Token": "t"})
    assert turn.usage.llm_calls == 1


def test_one_that_is_taken_away_meanwhile_is_told_nothing(stage: Stage) -> None:
    turn = stage.submit(webhook=OLD)
    stage.model.scenes = [
        [TextDelta("Four"), lambda: set_webhook(stage.database, WORKSPACE, turn.id, None), says("Four")[-1]]
    ]
    assert stage.serve(turn, stage.worker("w1")).status == "completed"
    assert Outbox(stage.database).page(WORKSPACE, limit=9, after=None).items == ()
