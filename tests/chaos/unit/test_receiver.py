"""The receiver of webhooks as a process, posted to by Loom's own sender and by hand."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from standardwebhooks.webhooks import Webhook

from loom_worker.core.values.ids import now_us
from loom_worker.core.values.notifications import Delivery
from loom_worker.webhook.send import Attempt, send
from loom_worker.webhook.sign import headers, new_secret
from tests.chaos import receiver
from tests.chaos.receiver import is_signed
from tests.chaos.records import Hook
from tests.chaos.unit.served import serving

SECRET = new_secret(b"a" * 32)
BODY = json.dumps({"type": "turn.completed", "data": {"id": "turn_1"}})


@dataclass(frozen=True)
class Server:
    url: str
    log: Path

    def post(self, path: str, webhook_id: str, *, secret: str = SECRET) -> Attempt:
        delivery = Delivery(webhook_id, "w", "turn_1", f"{self.url}{path}", secret, BODY, "pending", 0, 1)
        return send(delivery, secret=SECRET, timeout_s=5, allow_private=True, now_us=now_us())

    def hooks(self, webhook_id: str) -> list[Hook]:
        return [hook for hook in receiver.read(self.log) if hook.id == webhook_id]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("hooks") / "log.jsonl"
    with serving("receiver", log, "--secret", SECRET, "--seed", "5") as url:
        yield Server(url, log)


def test_a_webhook_is_logged_with_all_that_a_check_needs(server: Server) -> None:
    assert server.post("/ok/T00001", "whd_1").is_delivered
    (hook,) = server.hooks("whd_1")
    assert (hook.turn_id, hook.body.decode(), hook.is_signed, hook.status) == ("turn_1", BODY, True, 204)
    assert abs(hook.at_s - time.time()) < 10


def test_a_webhook_signed_with_another_secret_is_logged_as_unsigned(server: Server) -> None:
    server.post("/ok", "whd_2", secret=new_secret(b"b" * 32))
    assert [hook.is_signed for hook in server.hooks("whd_2")] == [False]


@pytest.mark.parametrize(
    ("path", "status"), [("/redirect", 302), ("/gone", 410), ("/error", 500), ("/slow", 200), ("/down", None)]
)
def test_each_path_answers_in_its_own_way(server: Server, path: str, status: int | None) -> None:
    name = path.replace("/", "whd_")
    assert server.post(path, name).status == status
    assert [hook.status for hook in server.hooks(name)] == [status or 0]


def test_a_flaky_path_fails_once_or_twice_and_then_not(server: Server) -> None:
    for webhook_id in ("whd_a", "whd_b", "whd_c", "whd_d", "whd_e", "whd_f"):
        statuses = [server.post("/flaky", webhook_id).status for _ in range(4)]
        failed = [status for status in statuses if status != 200]
        assert 1 <= len(failed) <= 2
        assert set(failed) <= {503, None}
        assert statuses == [*failed, *[200] * (4 - len(failed))]


def test_the_way_to_answer_can_be_changed_for_all_paths(server: Server) -> None:
    assert server.post("/mode/gone", "whd_mode").status == 200
    assert server.post("/ok", "whd_3").status == 410
    server.post("/mode/", "whd_mode")
    assert server.post("/ok", "whd_3").status == 204
    assert server.hooks("whd_mode") == []


def test_a_body_that_is_no_turn_has_no_turn_id(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    line = {"id": "", "body": "eA==", "at_s": 1.0, "is_signed": False, "status": 204}
    log.write_text(json.dumps(line) + "\n")
    assert [(hook.turn_id, hook.body) for hook in receiver.read(log)] == [("", b"x")]


def test_signatures_of_the_reference_library_are_valid() -> None:
    moment = int(time.time())
    reference = Webhook(SECRET)
    signature = reference.sign("whd_1", datetime.fromtimestamp(moment, UTC), BODY)
    given = {"webhook-id": "whd_1", "webhook-timestamp": str(moment), "webhook-signature": f"v1,other {signature}"}
    assert is_signed(given, BODY.encode(), SECRET)


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-id": "whd_2"},
        {"webhook-id": ""},
        {"webhook-timestamp": "17"},
        {"webhook-timestamp": "soon"},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,AAAA"},
    ],
)
def test_a_signature_for_anything_else_is_not_valid(change: dict[str, str]) -> None:
    good = headers("whd_1", int(time.time()), body=BODY.encode(), secret=SECRET)
    assert is_signed(good, BODY.encode(), SECRET)
    assert not is_signed({**good, **change}, BODY.encode(), SECRET)


def test_a_signature_for_another_body_or_of_long_ago_is_not_valid() -> None:
    good = headers("whd_1", int(time.time()), body=BODY.encode(), secret=SECRET)
    assert not is_signed(good, BODY.encode() + b" ", SECRET)
    old = headers("whd_1", int(time.time()) - 3600, body=BODY.encode(), secret=SECRET)
    assert not is_signed(old, BODY.encode(), SECRET)
    assert is_signed(old, BODY.encode(), SECRET, skew_s=4000)
