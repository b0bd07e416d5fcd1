import base64
from collections.abc import Callable

import pytest

from loom_worker.core.values.ids import now_us
from loom_worker.core.values.notifications import Delivery
from loom_worker.webhook.send import send
from tests.support.webhook_receiver import Received, WebhookReceiver
from tests.unit.docs.pages import block_after

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
BODY = '{"type":"turn.completed","timestamp":"2026-11-21T23:00:00Z","data":{"id":"turn_1","output_text":"forty"}}'


@pytest.fixture
def receive() -> Callable[[str, dict[str, str], bytes, set[str]], int]:
    """The receiver of docs/webhooks.md, as it stands there."""
    names: dict[str, Callable[[str, dict[str, str], bytes, set[str]], int]] = {}
    exec(block_after("docs/webhooks.md", "run:"), names)
    return names["receive"]


@pytest.fixture(scope="module")
def delivered() -> Received:
    """A delivery as it came over the wire."""

    with WebhookReceiver() as receiver:
        delivery = Delivery("whd_1", "default", "turn_1", receiver.url, SECRET, BODY, "pending", 0, 0)
        assert send(delivery, secret="", timeout_s=5, allow_private=True, now_us=now_us()).is_delivered
        return receiver.wait_for(1, timeout_s=60)[0]


def test_the_documented_receiver_takes_a_delivery_of_ours_and_handles_it_once(
    receive: Callable[..., int], delivered: Received, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: set[str] = set()
    assert receive(SECRET, dict(delivered.headers), delivered.body, seen) == 204
    assert receive(SECRET, dict(delivered.headers), delivered.body, seen) == 204
    assert capsys.readouterr().out == "turn.completed turn_1 forty\n"


@pytest.mark.parametrize(
    ("secret", "body"),
    [
        ("whsec_" + base64.b64encode(b"x" * 32).decode(), BODY.encode()),
        (SECRET, BODY.replace("forty", "fifty").encode()),
    ],
    ids=["another secret", "another body"],
)
def test_the_documented_receiver_refuses_what_is_not_ours(
    receive: Callable[..., int], delivered: Received, secret: str, body: bytes
) -> None:
    assert receive(secret, dict(delivered.headers), body, set()) == 401
