"""The end of a turn: one transaction, then the news."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from loom_worker.core.errors import Unavailable
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.budgets import usd
from loom_worker.core.values.calls import Call
from loom_worker.core.values.sessions import Choice
from loom_worker.core.values.turns import Claim, Ending, Turn
from loom_worker.core.values.webhooks import Webhook
from loom_worker.store.database import Database
from loom_worker.store.journal import Final, Journal
from loom_worker.turn.decide import problem
from loom_worker.turn.ending import finished
from loom_worker.turn.state import TurnState
from tests.support.models import says, wants
from tests.support.stage import WORKSPACE, Stage

HOOK = Webhook("https://example.org/hook", "whsec_" + "x" * 32)


def test_a_webhook_is_owed_from_the_moment_the_turn_has_ended(stage: Stage) -> None:
    stage.model.scenes = [says("Done.")]
    told_at_delivery: list[list[str]] = []
    turn = stage.submit(webhook=HOOK)
    stage.book.on_deliver = lambda: told_at_delivery.append(stage.told(turn))
    turn = stage.serve(turn, stage.worker("w1"))
    [delivery] = stage.outbox.page(WORKSPACE, limit=9, after=None).items
    assert (delivery.turn_id, delivery.url, delivery.status, delivery.attempts) == (turn.id, HOOK.url, "pending", 0)
    assert stage.book.delivered == [delivery.id]
    assert told_at_delivery[0][-1] == "turn.completed"
    taken = stage.outbox.take(delivery.id, now_ms=stage.now_ms, hold_ms=1)
    assert taken is not None
    assert '"output_text":"Done."' in taken.body.replace('": "', '":"')


def test_a_failed_turn_tells_its_webhook_too(stage: Stage) -> None:
    turn = stage.serve(stage.submit("x" * 1_000_000, webhook=HOOK), stage.worker("w1"))
    assert turn.status == "failed"
    assert len(stage.book.delivered) == 1


def test_messages_have_the_date_on_which_they_were_said_and_the_order_of_turns(stage: Stage) -> None:
    for text, said_ms in (("second", 2_000), ("first", 1_000), ("now", None)):
        stage.model.scenes = [says("Noted.")]
        stage.serve(stage.submit(text, said_ms=said_ms), stage.worker("w1"))
    listed = stage.messages.page(WORKSPACE, "s1", limit=9, after=None).items
    assert [(each.chat.text, each.created_ms) for each in listed[:4]] == [
        ("second", 2_000),
        ("Noted.", 2_000),
        ("first", 1_000),
        ("Noted.", 1_000),
    ]
    assert {each.created_ms for each in listed[4:]} == {stage.now_ms}


def test_without_a_webhook_nothing_is_delivered(stage: Stage) -> None:
    stage.answered(says("Done."))
    assert (stage.book.delivered, stage.outbox.page(WORKSPACE, limit=9, after=None).items) == ([], ())


@dataclass
class Refusing(Journal):
    """A journal whose database is full when the turn ends, until it has refused so often."""

    database: Database
    refusals: int
    at_last: Callable[[], object]

    def __post_init__(self) -> None:
        super().__init__(self.database)

    def finish(self, claim: Claim, final: Final) -> None:
        if self.refusals == 0:
            super().finish(claim, final)
            return
        self.refusals -= 1
        if self.refusals == 0:
            self.at_last()
        raise Unavailable("disk full")


@pytest.mark.heavy
def test_an_answer_outlives_a_database_that_is_full_for_a_while(stage: Stage) -> None:
    stage.model.scenes = [says("Heard.")]
    refusing = Refusing(stage.database, 2, lambda: None)
    turn = stage.serve(stage.submit(), stage.worker("w1", journal=refusing))
    assert (turn.output_text, turn.attempt, len(stage.model.asked)) == ("Heard.", 1, 1)


def test_there_is_no_answer_and_no_news_while_the_database_refuses_the_end(stage: Stage) -> None:
    stage.model.scenes = [says("Unheard."), says("Heard.")]
    turn, stopping = stage.submit(webhook=HOOK), Stopping(drain_s=0)
    refusing = Refusing(stage.database, 1, stopping.ask)
    turn = stage.serve(turn, stage.worker("w1", journal=refusing, stopping=stopping))
    assert (turn.status, turn.output_text, stage.said(), stage.book.delivered) == ("in_progress", None, [], [])
    assert not any(event.is_final for event in stage.live(turn))
    assert stage.lane_state(turn) == "kicked"
    turn = stage.serve(turn, stage.worker("w2"))
    assert (turn.output_text, turn.attempt) == ("Heard.", 1)


def test_usage_is_charged_to_the_session_once(stage: Stage) -> None:
    stage.model.scenes = [wants(("note", {})), says("One."), says("Two.")]
    worker = stage.worker("w1")
    stage.serve(stage.submit(), worker)
    stage.serve(stage.submit(), worker)
    usage = stage.sessions.get(WORKSPACE, "s1").usage
    assert (usage.llm_calls, usage.input_tokens) == (3, 30)
    assert usage.cost_usd == usd(0.003)


def test_messages_keep_what_they_cost_and_count_what_they_weigh(stage: Stage) -> None:
    stage.answered(says("Done."))
    question, answer = stage.messages.page(WORKSPACE, "s1", limit=9, after=None).items
    assert (question.usage, answer.usage and answer.usage.output_tokens) == (None, 5)
    assert question.token_count > 0 < answer.token_count


def a_turn(**facts: Any) -> Turn:
    return Turn("turn_1", "lane", "s1", "w", "default", 1, "in_progress", "How many?", 0, **facts)


def test_calls_under_way_are_cancelled_in_what_readers_are_shown() -> None:
    calls = (Call("a", "add", {}, 0, 1, status="running", started_ms=5), Call("b", "add", {}, 1, 1, status="completed"))
    work = TurnState.begin(Claim(a_turn(calls=calls), (), rom=None, kernel={}, choice=Choice(), user=None))
    ending = Ending("incomplete", "deadline", error=problem("deadline", "Too late."))
    turn = finished(work, ending, now_ms=9, run_ms=4)
    assert [call.status for call in turn.calls] == ["cancelled", "completed"]
    assert (turn.status, turn.reason, turn.completed_ms, turn.run_ms, turn.position) == (
        "incomplete",
        "deadline",
        9,
        4,
        0,
    )
