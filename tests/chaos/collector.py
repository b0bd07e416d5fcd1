"""A collector of traces on loopback, as a process: it logs what it takes, and misbehaves when it is told to.

    python -m tests.chaos.collector --port 9200 --log traces.jsonl

Its first line on standard output is its URL (``--port 0``: a free port); SIGTERM ends it. ``read(path)`` gives the log
as Exports, also while it is being written.

``POST /mode/<name>`` changes all answers until ``POST /mode/`` ends it: ``down`` closes each connection, ``hang`` says
nothing for HANG_S, ``error`` answers 503, ``drip`` sends a byte now and then. ``--mode`` begins with one.
"""

import argparse
import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.chaos.asyncio_http import Asked, Connection, Log, announce, head, read_log, serve

HANG_S = 60.0
DRIP_S = 0.2
MODES = ("down", "hang", "error", "drip")


@dataclass(frozen=True)
class Export:
    """A request that was taken."""

    at_s: float
    spans: tuple[tuple[str, str, str], ...]
    """Trace id, span id and name of each."""
    size_bytes: int
    """Of the request, before it was compressed."""


class Collector:
    """Takes OTLP in protobuf."""

    def __init__(self, log: Log, mode: str = "") -> None:
        self._log = log
        self._mode = mode

    async def answer(self, asked: Asked, connection: Connection) -> None:
        """Serve one request; what is taken is logged before it is answered."""
        first, _, rest = asked.path.lstrip("/").partition("/")
        if first == "mode":
            self._mode = rest
            connection.whole(200, b"")
        elif self._mode == "down":
            connection.close()
        elif self._mode == "error":
            connection.whole(503, b"")
        elif self._mode in {"hang", "drip"}:
            await self._stall(connection)
        else:
            self._log.write(_told(asked))
            connection.whole(200, b"{}")

    async def _stall(self, connection: Connection) -> None:
        if self._mode == "hang":
            await asyncio.sleep(HANG_S)
            return
        connection.send(head(200, {"content-length": "1000000"}).split(b"\r\n", 1)[0] + b"\r\nx-slow: ")
        for _ in range(int(HANG_S / DRIP_S)):
            connection.send(b".")
            await asyncio.sleep(DRIP_S)


def _told(asked: Asked) -> dict[str, Any]:
    request = ExportTraceServiceRequest.FromString(asked.body)
    scopes = [scope for resource in request.resource_spans for scope in resource.scope_spans]
    spans = [[each.trace_id.hex(), each.span_id.hex(), each.name] for scope in scopes for each in scope.spans]
    return {"at_s": asked.at_s, "bytes": len(asked.body), "spans": spans}


def read(path: Path) -> Iterator[Export]:
    """All requests that were taken, in their order."""
    for line in read_log(path):
        yield Export(line["at_s"], tuple((each[0], each[1], each[2]) for each in line["spans"]), line["bytes"])


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description="A collector of traces on loopback that logs and misbehaves.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--mode", choices=MODES, default="")
    given = parser.parse_args()
    asyncio.run(serve(Collector(Log(given.log), given.mode).answer, port=given.port, is_listening=announce))


if __name__ == "__main__":
    main()
