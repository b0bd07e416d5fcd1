"""Real collectors that others wrote: does all that Loom exports arrive? Those that are not installed are left out.

PATH=$PATH:/opt/phoenix/bin:/opt/mlflow/bin python -m bench --only collector
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from bench.load import burst
from bench.report import Report
from bench.scale import Scale
from bench.system import SCRIPTED, Running, System
from loom_worker.core.sqlite_driver import sqlite3
from tests.support.webhook_receiver import unused_port

SESSIONS = 20
READY_S = 300.0
ARRIVAL_S = 180.0
LOOK_S = 0.2


@dataclass(frozen=True)
class Product:
    """A collector, and how it is started and looked into; ``{port}`` and ``{folder}`` stand for its own."""

    name: str
    command: Sequence[str]
    database: str
    """Its SQLite file, which has a table ``spans``."""
    protocols: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict)
    headers: str = ""


PRODUCTS = (
    Product(
        "Phoenix",
        ("phoenix", "serve"),
        "phoenix.db",
        ("protobuf",),
        {
            "PHOENIX_WORKING_DIR": "{folder}",
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": "{port}",
            "PHOENIX_GRPC_PORT": "{other_port}",
            "PHOENIX_TELEMETRY_ENABLED": "false",
        },
    ),
    Product(
        "MLflow",
        (
            *"mlflow server --host 127.0.0.1 --port {port} --workers 1 --backend-store-uri sqlite:///{folder}/ml.db".split(),
        ),
        "ml.db",
        ("json", "protobuf"),
        headers="x-mlflow-experiment-id=0",
    ),
)


def measure(report: Report, scale: Scale) -> None:
    """Turns of a whole Loom; then every span of every trace is looked for."""
    for product in PRODUCTS:
        if shutil.which(product.command[0]) is None:
            report.add(f"{product.name} is not installed", 0, "")
            continue
        with _running(product) as (url, database):
            for protocol in product.protocols:
                _prove(report, scale, product, url, database, protocol)


def _prove(report: Report, scale: Scale, product: Product, url: str, database: Path, protocol: str) -> None:
    environ = {"LOOM_TRACE_ENDPOINT": url, "LOOM_TRACE_PROTOCOL": protocol, "LOOM_TRACE_HEADERS": product.headers}
    with System(**SCRIPTED, **environ) as loom:
        burst(loom, scale.collected_turns, sessions=SESSIONS)
        began_s = time.monotonic()
        wanted = _told(loom)
        while (missing := wanted - _taken(database)) and time.monotonic() < began_s + ARRIVAL_S:
            time.sleep(LOOK_S)
        name = f"{product.name}, {protocol}: spans of {scale.collected_turns} turns that arrived, of {len(wanted)}"
        report.add(name, len(wanted) - len(missing), "", seconds=round(time.monotonic() - began_s, 1))
        if missing:
            raise SystemExit(f"{len(missing)} spans did not arrive, such as {sorted(missing)[:3]}")


def _told(loom: Running) -> set[tuple[str, str]]:
    """Id and name of every span that the API shows."""
    client = loom.client()
    traces = (client.get(f"/v1/turns/{turn_id}/trace")[1]["data"] for (turn_id,) in loom.rows("SELECT id FROM turns"))
    return {(span["span_id"], span["name"]) for trace in traces for span in trace}


def _taken(database: Path) -> set[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
        return set(connection.execute("SELECT span_id, name FROM spans").fetchall())


@contextlib.contextmanager
def _running(product: Product) -> Iterator[tuple[str, Path]]:
    """Its URL and its database."""
    with tempfile.TemporaryDirectory(prefix="loom-bench-collector-", ignore_cleanup_errors=True) as folder:
        own = {"port": unused_port(), "other_port": unused_port(), "folder": folder}
        command = [part.format(**own) for part in product.command]
        environ = {**os.environ, **{name: text.format(**own) for name, text in product.environ.items()}}
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(command, env=environ, cwd=folder, stdout=log, stderr=log, start_new_session=True)
            try:
                _until_answers(process, int(own["port"]))
                yield f"http://127.0.0.1:{own['port']}", Path(folder, product.database)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, 15)
                process.wait()


def _until_answers(process: "subprocess.Popen[bytes]", port: int) -> None:
    deadline_s = time.monotonic() + READY_S
    while time.monotonic() < deadline_s and process.poll() is None:
        try:
            urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
        except (URLError, OSError):
            time.sleep(LOOK_S)
        else:
            return
    raise SystemExit(f"it does not answer at port {port} within {READY_S:g} s")
