"""Attempts at a delivery of a real outbox, at a real receiver, as a monitor is told of them."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from loom_worker.core.settings_tree import WebhookSettings
from loom_worker.core.values.notifications import Delivery
from loom_worker.store.database import Database
from loom_worker.store.journal import Journal
from loom_worker.store.outbox import Outbox
from loom_worker.webhook.deliver import Deliverer
from tests.support.notes import Notes
from tests.support.webhook_receiver import Answer, WebhookReceiver, unused_port
from tests.unit.store.made import delivery, final, running

SETTINGS = WebhookSettings(secret="whsec_" + "A" * 44, allow_private=True)


@pytest.fixture
def enqueue(database: Database) -> Callable[[str], Delivery]:
    def enqueued(url: str) -> Delivery:
        claim = running(database)
        made = delivery(1, claim, url=url, next_ms=0)
        Journal(database).finish(claim, final(delivery=made))
        return made

    return enqueued


def attempted(database: Database, sent: Delivery) -> Notes:
    notes = Notes()
    Deliverer(Outbox(database), SETTINGS, notes).deliver(sent.id)
    return notes


def told(notes: Notes) -> list[tuple[str, str]]:
    return [(note.how, note.words) for note in notes.all]


def test_a_delivery_that_arrives_has_succeeded(database: Database, enqueue: Callable[[str], Delivery]) -> None:
    with WebhookReceiver() as receiver:
        sent = enqueue(receiver.url)
        notes = attempted(database, sent)
    assert told(notes) == [("started", ""), ("succeeded", "HTTP 200")]
    work = notes.all[0].work
    assert (work.id, work.ids) == (f"{sent.id}:{work.started_ms}", (sent.id, sent.turn_id))
    assert (work.part_of, work.names) == (sent.turn_id, {"attempt": "1"})


def test_an_attempt_that_is_refused_has_failed_and_the_next_one_is_another(
    database: Database, enqueue: Callable[[str], Delivery]
) -> None:
    box = Outbox(database)
    with WebhookReceiver() as receiver:
        receiver.answer_with(Answer(status=503, body=b"what somebody wrote"), Answer(status=410))
        sent = enqueue(receiver.url)
        first = attempted(database, sent)
        assert told(first) == [("started", ""), ("failed", "HTTP 503; tried again later")]
        box.save(replace(sent, attempts=1, next_ms=0))
        second = attempted(database, sent)
    assert told(second)[-1] == ("failed", "HTTP 410; disabled")
    assert second.all[0].work.names == {"attempt": "2"}
    assert second.all[0].work.id != first.all[0].work.id


def test_of_a_receiver_that_is_not_there_the_url_is_not_told(
    database: Database, enqueue: Callable[[str], Delivery]
) -> None:
    url = f"http://127.0.0.1:{unused_port()}/what-somebody-wrote"
    notes = attempted(database, enqueue(url))
    assert told(notes)[-1] == ("failed", "no response; tried again later")
    assert "what-somebody-wrote" not in repr(notes)


def test_a_delivery_that_is_not_due_is_not_reported(database: Database, enqueue: Callable[[str], Delivery]) -> None:
    with WebhookReceiver() as receiver:
        sent = enqueue(receiver.url)
        attempted(database, sent)
        assert attempted(database, sent).all == []
