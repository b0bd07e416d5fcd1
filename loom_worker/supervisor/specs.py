"""The processes of `loom up`: their command lines and the order in which they stop."""

import sys
import sysconfig
from pathlib import Path

from loom_worker.core.isolation import process_env
from loom_worker.core.settings import VALKEY_CONF, Settings, embedded_socket
from loom_worker.supervisor import valkey
from loom_worker.supervisor.decide import Spec

WORKERS = (
    ("worker-1", "turn,judge,workflow"),
    # Two workers for turns: one survives the other. Judges wait for models as turns do.
    ("worker-2", "turn,judge,workflow"),
    ("worker-3", "tool,webhook,summary,trace"),
)
WORKER_GRACE_S = 20.0
"""A worker hands a running turn over after LaneSettings.drain_s; this leaves it as long again."""


def specs(settings: Settings, *, flower_port: int) -> tuple[Spec, ...]:
    """Every process that these settings need.

    Raises:
        NoServer: an embedded server is needed and there is none.
    """
    loom = loom_command()
    workers = (
        Spec(
            name,
            (*loom, "worker", "--queues", queues, "--name", name),
            stop_stage=1,
            grace_s=WORKER_GRACE_S,
            needs=process_env.of_worker(queues.split(",")),
        )
        for name, queues in WORKERS
    )
    return (
        *_embedded_server(settings),
        Spec("web", (*loom, "web"), stop_stage=0, is_indispensable=True, needs=process_env.WEB),
        *workers,
        Spec("beat", (*loom, "beat"), stop_stage=2),
        Spec("flower", (*loom, "flower", "--port", str(flower_port)), stop_stage=2),
    )


def _embedded_server(settings: Settings) -> tuple[Spec, ...]:
    if not settings.has_embedded_redis:
        return ()
    own = settings.home
    command = valkey.argv(
        valkey.find_binary(), socket_path=embedded_socket(own), data_dir=own / "valkey", config=own / VALKEY_CONF
    )
    return (Spec("valkey", command, stop_stage=3, is_foundation=True, is_indispensable=True),)


def loom_command() -> tuple[str, ...]:
    """How this installation runs ``loom``: its script, so that `ps` says ``loom worker``, else the module."""
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        script = folder / "loom"
        if script.is_file():
            return (sys.executable, str(script))
    return (sys.executable, "-m", "loom_worker.cli.main")
