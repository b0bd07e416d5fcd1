import importlib
import logging
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery
from kombu.transport import TRANSPORT_ALIASES
from redis.exceptions import ResponseError

from loom_worker.core.settings import from_env
from loom_worker.tasks import app as loom_app
from loom_worker.tasks.app import QUEUES, TASK_MODULES, broker_url, configure
from loom_worker.tasks.repairs import NoWaitRedisBackend
from loom_worker.tasks.transport import Channel, Transport


def conf_for(url: str, home: Path) -> Any:
    return configure(from_env({"LOOM_HOME": str(home), "LOOM_REDIS_URL": url})).conf


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("unix:///run/s", "redis+socket:///run/s"),
        ("redis://h:1/2", "redis://h:1/2"),
        ("rediss://u:p@h/0", "rediss://u:p@h/0"),
    ],
)
def test_the_broker_is_named_as_kombu_names_it(url: str, broker: str, tmp_path: Path) -> None:
    assert broker_url(from_env({"LOOM_REDIS_URL": url})) == broker
    assert conf_for(url, tmp_path).broker_url == broker


def test_a_unix_socket_has_no_keepalive_and_a_port_has_it_again(tmp_path: Path) -> None:
    unix = dict(conf_for("unix:///run/s", tmp_path).broker_transport_options)
    assert "socket_keepalive" not in unix
    port = conf_for("redis://h", tmp_path)
    assert port.broker_transport_options == {**unix, "socket_keepalive": True}
    assert port.redis_socket_keepalive


def test_every_task_has_the_queue_in_its_name(tmp_path: Path) -> None:
    configured = configure(from_env({"LOOM_HOME": str(tmp_path)}))
    for module in TASK_MODULES:
        importlib.import_module(module)
    ours = {name for name in configured.tasks if name.startswith("loom.")}
    assert ours == {
        "loom.turn.run",
        "loom.turn.wake",
        "loom.tool.call",
        "loom.judge.score",
        "loom.webhook.deliver",
        "loom.summary.compress",
        "loom.trace.export",
        "loom.workflow.advance",
    }
    queues = {name: configured.amqp.router.route({}, name)["queue"].name for name in ours}
    assert queues == {name: name.split(".")[1] for name in ours}
    assert set(queues.values()) == set(QUEUES)


def test_tasks_of_others_are_not_routed_by_us(tmp_path: Path) -> None:
    configured = configure(from_env({"LOOM_HOME": str(tmp_path)}))
    assert configured.amqp.router.route({}, "celery.chord_unlock")["queue"].name == "celery"


def test_tasks_are_acknowledged_late_and_never_carry_pickles(tmp_path: Path) -> None:
    conf = conf_for("redis://h", tmp_path)
    assert conf.task_acks_late
    assert conf.task_reject_on_worker_lost
    assert conf.worker_prefetch_multiplier == 1
    assert (conf.task_serializer, conf.accept_content) == ("json", ["json"])


def test_results_lie_on_the_same_redis_and_nobody_listens_for_them(app: Celery, valkey: redis.Redis) -> None:
    assert isinstance(app.backend, NoWaitRedisBackend)
    app.backend.client.set("seen", "here")
    assert valkey.get("seen") == "here"
    app.backend.on_task_call(None, "id")
    assert app.backend.add_pending_result("result") == "result"
    assert app.backend.add_pending_results(iter("ab")) == ["a", "b"]
    assert app.backend.remove_pending_result("result") == "result"
    assert valkey.pubsub_channels() == []


def test_a_message_lies_under_a_prefix_of_ours_on_its_own_queue(app: Celery, valkey: redis.Redis) -> None:
    app.send_task("loom.turn.run", args=("lane1",))
    assert valkey.llen("loom:q:turn") == 1
    keys: Any = valkey.keys("*")
    assert [key for key in keys if not key.startswith("loom:")] == []


def test_every_redis_url_uses_the_repaired_transport(app: Celery) -> None:
    ours = {TRANSPORT_ALIASES[scheme] for scheme in ("redis", "rediss", "redis+socket")}
    assert ours == {"loom_worker.tasks.transport:Transport"}
    with app.connection() as connection:
        assert isinstance(connection.transport, Transport)


def test_a_channel_with_unacknowledged_messages_closes_though_its_connection_is_gone(
    app: Celery, valkey: redis.Redis
) -> None:
    app.send_task("loom.turn.run", args=("lane1",))
    connection = app.connection()
    channel = connection.default_channel
    assert isinstance(channel, Channel)
    queue = app.amqp.router.route({}, "loom.turn.run")["queue"].bind(channel)
    assert queue.get() is not None
    transport = channel.connection
    transport.client = None
    channel.close()
    transport.client = connection
    connection.close()
    assert (valkey.llen("loom:q:turn"), valkey.hlen("loom:q:unacked")) == (0, 1)


def test_a_worker_killed_while_it_gives_messages_back_keeps_nobody_from_it_for_long(
    app: Celery, valkey: redis.Redis
) -> None:
    with app.connection() as connection, connection.channel() as channel:
        qos = channel.qos
        assert channel.client.lock(qos.unacked_mutex_key, timeout=qos.unacked_mutex_expire).acquire(blocking=False)
    [lock] = valkey.keys("*mutex*")  # type: ignore[misc]  # redis-py says it may be awaited
    assert 0 < valkey.pttl(lock) <= 5_000  # type: ignore[operator]  # the same


def test_a_task_that_outlives_its_channel_is_not_acknowledged_and_the_worker_goes_on(
    app: Celery, valkey: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    app.send_task("loom.turn.run", args=("lane1",))
    with app.connection() as connection:
        channel = connection.channel()
        message = app.amqp.router.route({}, "loom.turn.run")["queue"].bind(channel).get()
        channel.qos._delivered.clear()  # as after its restore
        channel.close()
        message.ack_log_error(logging.getLogger("celery.worker"), connection.connection_errors)
    assert "Couldn't ack" in caplog.text


def test_a_redis_that_refuses_to_write_is_connected_to_anew() -> None:
    assert issubclass(ResponseError, Transport.connection_errors)  # such as MISCONF, when its disk is full


def test_the_app_is_nobody_s_current_one() -> None:
    from celery import current_app

    assert current_app._get_current_object() is not loom_app.app
