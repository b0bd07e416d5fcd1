"""Push notifications: a turn's webhook and its body."""

import json
from dataclasses import replace

import pytest
from a2a.compat.v0_3 import types as types_03
from a2a.types.a2a_pb2 import StreamResponse, TaskPushNotificationConfig
from google.protobuf.json_format import Parse, ParseDict

from loom_worker.core.values.turns import Call, Turn
from loom_worker.core.values.webhooks import Webhook
from loom_worker.fronts.a2a.push import PUSH_BODIES, config_of, webhook_of
from loom_worker.fronts.a2a.version_03 import old_config
from loom_worker.webhook.body import LIMIT_BYTES, WebhookBodies

TURN = Turn("turn_1", "1", "s", "w", "default", 1, "completed", "hello", 0, output_text="42", completed_ms=1)
CONFIG = {
    "id": "mine",
    "taskId": "turn_1",
    "url": "https://h.example/x",
    "token": "t",
    "authentication": {"scheme": "Bearer", "credentials": "s 3"},
}


def test_a_configuration_is_read_back_as_it_was_set() -> None:
    turn = replace(TURN, webhook=webhook_of(CONFIG, "1.0"))
    config = config_of(turn)
    assert config == CONFIG
    ParseDict(config, TaskPushNotificationConfig())
    types_03.TaskPushNotificationConfig.model_validate(old_config(config))


@pytest.mark.parametrize("webhook", [None, Webhook("https://h.example")])
def test_a_webhook_of_loom_s_own_api_is_none(webhook: Webhook | None) -> None:
    assert config_of(replace(TURN, webhook=webhook)) is None


def test_one_without_an_id_has_the_task_s() -> None:
    config = config_of(replace(TURN, webhook=webhook_of({"url": "https://h.example"}, "1.0")))
    assert config == {"id": "turn_1", "taskId": "turn_1", "url": "https://h.example"}


LONG = replace(
    TURN,
    status="requires_action",
    output_text="é" * 40_000,
    metadata={"a": "x" * 9_000, "b": "y" * 6_000},
    calls=(Call("toolu_1", "pay", {"to": "z" * 30_000}, 0, 1, approval="waiting"),),
)


@pytest.mark.parametrize(
    "turn", [TURN, LONG, replace(LONG, calls=(), status="failed", error={"message": "e" * 30_000})]
)
def test_the_body_is_the_task_and_short_enough(turn: Turn) -> None:
    for hook, other in ((webhook_of(CONFIG, "1.0"), False), (webhook_of(CONFIG, "0.3"), True)):
        body = WebhookBodies("http://loom", others=PUSH_BODIES).of(replace(turn, webhook=hook))
        assert len(body.encode()) < LIMIT_BYTES
        if other:
            assert types_03.Task.model_validate_json(body).id == "turn_1"
        else:
            assert Parse(body, StreamResponse()).task.id == "turn_1"
    assert json.loads(body)["metadata"]["loom"].get("truncated") == (True if turn is not TURN else None)


def test_other_webhooks_have_loom_s_own_body() -> None:
    body = WebhookBodies("http://loom", others=PUSH_BODIES).of(replace(TURN, webhook=Webhook("https://h.example")))
    assert json.loads(body)["type"] == "turn.completed"
