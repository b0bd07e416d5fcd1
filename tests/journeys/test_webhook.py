"""The end of a turn is told to a receiver that checks the signature with a package of its own."""

import base64
import json
from collections.abc import Iterator

import pytest
import standardwebhooks

from tests.journeys.conftest import WEBHOOK_SECRET
from tests.support.system import Json, System
from tests.support.until import until
from tests.support.webhook_receiver import Answer, Received, WebhookReceiver

pytestmark = [pytest.mark.journey, pytest.mark.takes(9)]

OWN_SECRET = "whsec_" + base64.b64encode(b"the secret of one turn and no other").decode()


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as receiver:
        yield receiver


def verified(request: Received, secret: str) -> Json:
    body: Json = standardwebhooks.Webhook(secret).verify(request.body, dict(request.headers))
    return body


def delivery_of(system: System, turn_id: str) -> Json | None:
    deliveries: list[Json] = system.get("/v1/deliveries").json["data"]
    return next((delivery for delivery in deliveries if delivery["turn_id"] == turn_id), None)


def delivered(system: System, turn_id: str) -> Json | None:
    delivery = delivery_of(system, turn_id)
    return delivery if delivery and delivery["status"] == "delivered" else None


def test_the_receiver_gets_the_turn_as_the_api_shows_it_signed_with_the_default_secret(
    system: System, receiver: WebhookReceiver
) -> None:
    turn_id = system.submit("told", "hello", webhook=receiver.url, metadata={"order": 7})
    (request,) = receiver.wait_for(1, timeout_s=60)
    body = verified(request, WEBHOOK_SECRET)
    assert body["type"] == "turn.completed"
    assert body["data"] == system.turn(turn_id)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        verified(request, OWN_SECRET)


def test_a_turn_with_a_secret_of_its_own_is_signed_with_that_and_the_secret_is_never_shown(
    system: System, receiver: WebhookReceiver
) -> None:
    hook = {"url": receiver.url, "secret": OWN_SECRET}
    turn_id = system.submit("own", "hello", webhook=hook)
    (request,) = receiver.wait_for(1, timeout_s=60)
    assert verified(request, OWN_SECRET)["data"]["id"] == turn_id
    until(lambda: delivered(system, turn_id), 10, "the delivery is noted")
    shown = system.get("/v1/deliveries").text + json.dumps(system.turn(turn_id))
    assert OWN_SECRET.removeprefix("whsec_") not in shown


def test_a_failed_delivery_is_seen_pending_and_goes_out_again_under_the_same_id_when_replayed(
    system: System, receiver: WebhookReceiver
) -> None:
    receiver.answer_with(Answer(status=500), Answer(status=200))
    turn_id = system.submit("again", "hello", webhook=receiver.url)

    def failed_once() -> Json | None:
        delivery = delivery_of(system, turn_id)
        return delivery if delivery and delivery["attempts"] == 1 else None

    pending = until(failed_once, 20, "the first attempt has failed")
    assert pending is not None
    assert (pending["status"], pending["last_status"], pending["delivered_at"]) == ("pending", 500, None)

    assert system.post(f"/v1/deliveries/{pending['id']}/replay").status in (200, 202)
    first, second = receiver.wait_for(2, timeout_s=60)
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == pending["id"]
    assert first.body == second.body
    verified(second, WEBHOOK_SECRET)
    until(lambda: delivered(system, turn_id), 10, "the delivery is noted")


@pytest.mark.heavy
def test_a_failed_delivery_goes_out_again_by_itself_after_about_five_seconds(
    system: System, receiver: WebhookReceiver
) -> None:
    receiver.answer_with(Answer(raw=b""), Answer(status=204))
    turn_id = system.submit("alone", "hello", webhook=receiver.url)
    first, second = receiver.wait_for(2, timeout_s=60)
    assert 4 < second.at_s - first.at_s < 10
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert verified(second, WEBHOOK_SECRET)["data"]["id"] == turn_id
    until(lambda: delivered(system, turn_id), 10, "the delivery is noted")
