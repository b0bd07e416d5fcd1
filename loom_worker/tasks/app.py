"""The Celery app and its settings; every option that is not plain says what breaks without it."""

from typing import Any
from urllib.parse import unquote, urlsplit

from celery import Celery

from loom_worker.core.settings import Settings
from loom_worker.tasks import transport

TASK_MODULES = ("loom_worker.tasks.tasks",)

QUEUES = transport.QUEUES

app = Celery("loom", set_as_current=False)


def configure(settings: Settings, *, runs_tasks: bool = True) -> Celery:
    """Point the app at this installation's Redis.

    Args:
        runs_tasks: False in a process that only sends or watches; importing the tasks takes it a second.
    """
    transport.install(app)
    broker, is_socket = broker_url(settings), settings.redis_url.startswith("unix://")
    password = urlsplit(settings.redis_url).password or ""
    app.conf.update(
        # Workers tell Flower the URL of a socket as it is, but never this password.
        broker_url=broker.replace(f":{password}@", "@", 1) if is_socket else broker,
        broker_password=unquote(password) if is_socket else None,
        # Celery splits at the first plus, and its backend knows a socket without kombu's "redis+".
        result_backend=f"loom_worker.tasks.repairs:NoWaitRedisBackend+{broker.removeprefix('redis+')}",
        imports=TASK_MODULES if runs_tasks else (),
        **_OPTIONS,
    )
    if is_socket:
        # A Unix socket has no keepalive, and redis-py refuses the option there.
        kept = {key: value for key, value in _OPTIONS["broker_transport_options"].items() if key != "socket_keepalive"}
        app.conf.broker_transport_options = kept
        app.conf.redis_socket_keepalive = False
    return app


def broker_url(settings: Settings) -> str:
    """The Redis URL as kombu spells it."""
    url = settings.redis_url
    return f"redis+socket://{url.removeprefix('unix://')}" if url.startswith("unix://") else url


_OPTIONS: dict[str, Any] = {
    # Leases and the sweep recover in seconds; this only clears what killed workers left unacknowledged. What is
    # delivered again while it still runs does nothing: every message is a hint, checked against the database.
    "broker_transport_options": {
        "visibility_timeout": 30,
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
        # Who gives messages back holds this lock; killed meanwhile, it kept all others from it for 300 s, the default.
        # Two at once do no harm: each message is given back in a transaction of its own.
        "unacked_mutex_expire": 5,
        # Without timeouts a broker that swallows bytes holds a publisher for ever (25 s and counting, measured).
        "socket_timeout": 15,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        "health_check_interval": 25,
        # A send to a dead broker otherwise waits 2 and 4 s for it, retry=False or not (6.0 s measured; so 0.2 s). A
        # worker's own connection does not go by this: it tries for ever, see broker_connection_max_retries.
        "max_retries": 1,
        "interval_start": 0.2,
        # One list a queue in each BRPOP instead of four.
        "priority_steps": [0],
        "global_keyprefix": "loom:q:",
        "client_name": "loom-worker",
    },
    "result_backend_transport_options": {"global_keyprefix": "loom:r:"},
    "broker_connection_retry_on_startup": True,
    # The default gives up after 100 tries and the worker exits.
    "broker_connection_max_retries": None,
    "broker_pool_limit": 32,
    "redis_socket_timeout": 15,
    "redis_socket_connect_timeout": 5,
    "redis_socket_keepalive": True,
    "redis_backend_health_check_interval": 25,
    "task_serializer": "json",
    "accept_content": ["json"],
    "task_ignore_result": True,
    # With early acknowledgement a SIGKILL loses what runs: a chord's body then never fires.
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    # acks_late with 1 reserves exactly as many messages as there are slots; disabling prefetch instead idles the
    # threads pool for 630 ms a refill.
    "worker_prefetch_multiplier": 1,
    "result_expires": 900,
    "result_chord_expires": 3600,
    "worker_send_task_events": True,
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    "worker_enable_remote_control": True,
    # Celery would end running tasks when the broker goes away; ours are fenced by the database and may go on.
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "task_publish_retry_policy": {"max_retries": 3, "interval_start": 0, "interval_step": 0.2, "interval_max": 1},
    "task_routes": [
        lambda name, *_args, **_options: {"queue": name.split(".")[1]} if name.startswith("loom.") else None
    ],
    "timezone": "UTC",
}
