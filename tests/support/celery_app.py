"""An app of a test's own: configuring the one of the package would leave its connections to the next test."""

from pathlib import Path
from typing import Any

from celery import Celery

from loom_worker.core.settings import from_env
from loom_worker.tasks.app import configure


def app_at(url: str, home: Path) -> Celery:
    """An app with Loom's options, at this broker."""
    conf: Any = configure(from_env({"LOOM_HOME": str(home), "LOOM_REDIS_URL": url})).conf
    made = Celery("test", set_as_current=False)
    names = (
        "broker_url",
        "broker_password",
        "result_backend",
        "broker_transport_options",
        "result_backend_transport_options",
    )
    made.conf.update(
        {name: conf[name] for name in (*names, "task_routes", "task_ignore_result", "redis_socket_keepalive")}
    )
    return made
