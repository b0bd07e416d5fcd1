"""`loom up`: prepare the home, start everything, say what runs where, stop it all again."""

import contextlib
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial

from loom_worker.core.errors import BadSettings, LoomError
from loom_worker.core.isolation import home_secrets, process_env
from loom_worker.core.settings import Settings, embedded_socket
from loom_worker.core.values.problems import Problem
from loom_worker.supervisor import home, ports, valkey
from loom_worker.supervisor.doctor import Doctor, Told
from loom_worker.supervisor.health_check import Rounds, Telling, looking, server_in_words
from loom_worker.supervisor.launcher import Launcher
from loom_worker.supervisor.processes import Processes
from loom_worker.supervisor.run import Supervisor
from loom_worker.supervisor.specs import loom_command, specs
from loom_worker.supervisor.watcher import Places, Secrets, Watcher

WRONG_SETTING = 2
"""What a command exits with that was refused a setting."""


class NotPrepared(LoomError):
    """The database or the sample data could not be made; the text says why."""


def up(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    is_port_explicit: bool,
    say: Callable[[str], None],
    launcher: Launcher,
) -> int:
    """Run everything until stopped; returns the exit status.

    Args:
        environ: of the children; what this function chooses is added to it.
        launcher: what starts them.

    Raises:
        Conflict, PortTaken, BadSettings, NoServer, NotPrepared, NoRoom: nothing runs; the text says what is in the way.
    """
    began_s = time.monotonic()
    os.umask(0o077)
    home.prepare(settings.home)
    with home.locked(settings.home), _places(settings, environ, is_port_explicit=is_port_explicit) as places:
        with home.usable(settings.home):
            home.probe(settings.home)
            if settings.has_embedded_redis:
                settings = replace(settings, redis_url=home_secrets.embedded_with_password(settings.home))
            settings, secrets = _with_secrets(settings)
        wanted = specs(settings, flower_port=places.flower_port)
        child_env = _child_env(settings, environ, places)
        say = partial(_if_possible, say)
        logs_json = settings.log.format == "json"
        processes = Processes(settings.home / home.LOGS, child_env, logs_json=logs_json, launcher=launcher)
        watcher = Watcher(settings, places, processes, secrets=secrets, began_s=began_s, say=say)
        watcher.begin()
        say(f"starting on {settings.home} …")
        _prepare_data(child_env, launcher)
        socket_path = embedded_socket(settings.home)
        if settings.has_embedded_redis:
            with home.usable(settings.home):
                valkey.make_room(socket_path, settings.home / "valkey")
        stamped = partial(_stamped, say)
        supervisor = Supervisor(
            wanted,
            processes,
            is_open=lambda: not settings.has_embedded_redis or valkey.is_open(socket_path),
            onlooker=watcher,
            rounds=Rounds(_look(settings, stamped), host=socket.gethostname()),
            say=stamped,
        )
        with _examined(watcher, child_env, launcher):
            return supervisor.run()


@contextmanager
def _examined(watcher: Watcher, child_env: Mapping[str, str], launcher: Launcher) -> Iterator[None]:
    """Meanwhile a process looks at agents and tools, and the watcher will tell what it finds."""
    try:
        doctor = Doctor(child_env, launcher)
    except OSError as error:
        text = f"agents and tools could not be looked at: {error.strerror or error}"
        watcher.tell(Told((Problem(text, "run `loom doctor --problems`", is_warning=True),)))
        yield
        return
    watcher.tell(doctor)
    try:
        yield
    finally:
        doctor.stop()


def _if_possible(say: Callable[[str], None], text: str) -> None:
    """Say it; output on a full disk, or to a reader that is gone, is no reason to stop what runs."""
    with contextlib.suppress(OSError):
        say(text)


def _stamped(say: Callable[[str], None], text: str) -> None:
    say(f"[{datetime.now():%H:%M:%S}] {text}")


def _look(settings: Settings, say: Callable[[str], None]) -> Telling:
    server = server_in_words(settings.redis_url, is_embedded=settings.has_embedded_redis)
    return Telling(looking(settings.redis_url), server=server, say=say)


@contextmanager
def _places(settings: Settings, environ: Mapping[str, str], *, is_port_explicit: bool) -> Iterator[Places]:
    host, wanted, flower = settings.web.host, settings.web.port, settings.flower
    is_flower_explicit = bool(environ.get("LOOM_FLOWER_PORT", "").strip())
    with (
        ports.reserved(host, wanted, is_explicit=is_port_explicit) as port,
        ports.reserved(flower.address, flower.port, is_explicit=is_flower_explicit, by=ports.FLOWER) as flower_port,
    ):
        yield Places(port=port, wanted_port=wanted, flower_port=flower_port, host=host, flower_address=flower.address)


def _with_secrets(settings: Settings) -> tuple[Settings, Secrets]:
    flower = home.flower_password(settings.home)
    home_secrets.home_token(settings.home)
    if settings.webhook.secret is not None:
        return settings, Secrets(flower, None)
    webhook = home.webhook_secret(settings.home)
    return replace(settings, webhook=replace(settings.webhook, secret=webhook.text)), Secrets(flower, webhook)


def _child_env(settings: Settings, environ: Mapping[str, str], places: Places) -> dict[str, str]:
    chosen = {
        "LOOM_HOME": str(settings.home),
        "LOOM_PORT": str(places.port),
        "LOOM_WEBHOOK_SECRET": settings.webhook.secret or "",
        # A log that lags behind a crash by a buffer hides the crash.
        "PYTHONUNBUFFERED": "1",
    }
    return {**environ, **chosen}


def _prepare_data(child_env: Mapping[str, str], launcher: Launcher) -> None:
    """In a process of its own: what it imports would stay in the supervisor's memory for as long as Loom runs."""
    environ = process_env.of_process(child_env, process_env.PREPARE)
    with tempfile.TemporaryFile() as said:
        status = launcher.start((*loom_command(), "prepare"), environ, outputs=(said.fileno(), said.fileno())).wait()
        said.seek(0)
        text = said.read().decode("utf-8", "replace")
    complaints = [line.removeprefix("loom: ") for line in text.splitlines() if line.startswith("loom: ")]
    if status == WRONG_SETTING and complaints:
        raise BadSettings("\n".join(complaints))
    if status and complaints:
        raise NotPrepared("\n".join(complaints))
    if status:
        raise NotPrepared(f"cannot prepare the data:\n{text.strip()[-2000:]}")
