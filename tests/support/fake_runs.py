"""A server that speaks as much of Loom's HTTP API as commands need to start a run and to follow it."""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from loom_worker.core.values.budgets import usd
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Event
from loom_worker.core.values.runs import Run, RunStage
from tests.support.http_server import Exchange

RUN = "run_1"
START_MS = 1_800_000_000_000
SPENT = Usage(input_tokens=1000, output_tokens=234, cost_usd=usd(0.5), llm_calls=1)


def stage(key: str, status: Any = "queued", **fields: Any) -> RunStage:
    """A stage of the agent ``default``; one that has ended took two seconds and was paid."""
    is_approval, is_open = ".approval" in key, status in ("queued", "requires_action")
    known: Json = {"role": "approval" if is_approval else "stage", "agent_id": "default", "created_ms": START_MS}
    known |= {} if is_open else {"completed_ms": START_MS + 2000, "usage": Usage() if is_approval else SPENT}
    return RunStage(key, status=status, **{**known, **fields})


def run(*stages: RunStage, status: Any = "in_progress", **fields: Any) -> Json:
    """A run as the API shows it; one that has ended took five seconds."""
    ended: Json = {} if status == "in_progress" else {"completed_ms": START_MS + 5000}
    known: Json = {"status": status, "stages": stages, "created_ms": START_MS, **ended}
    return Run(RUN, "default", "flow", "pipeline", **{**known, **fields}).as_json()


def events(*told: tuple[str, Json]) -> list[Event]:
    """The log of a run."""
    return [Event(number, kind, data) for number, (kind, data) in enumerate(told, start=1)]


def log_of(*stages: RunStage, end: Json) -> list[Event]:
    """The log of a run whose stages began and ended one after another."""
    told: list[tuple[str, Json]] = [("run.started", {"run_id": RUN})]
    for each in stages:
        is_approval = each.role == "approval"
        begun = stage(each.key, "requires_action" if is_approval else "queued", prompt=each.prompt)
        told.append(("approval.required" if is_approval else "stage.started", begun.as_json()))
        if not each.is_open:
            told.append(("approval.decided" if is_approval else f"stage.{each.status}", each.as_json()))
    return events(*told, (f"run.{end['status']}", end))


@dataclass
class FakeRuns:
    """Answers with the run it was given, and keeps what it was asked."""

    log: Sequence[Event]
    begun: Json = field(default_factory=run)
    """The run before the first event."""
    waits_before: int = 0
    """The event before which the stream waits for ``go_on``; 0: none."""
    lost: int = 0
    """How many requests to start a run get no answer."""
    go_on: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[str, str, str | None, Any]] = field(default_factory=list)
    """Method, path, Idempotency-Key and body of each request."""

    def __call__(self, exchange: Exchange) -> None:
        body = json.loads(exchange.body() or b"null")
        self.asked.append((exchange.command, exchange.path, exchange.headers.get("Idempotency-Key"), body))
        if exchange.path.endswith("/events"):
            self._stream(exchange)
        elif exchange.command == "POST" and self.lost:
            self.lost -= 1
            exchange.cut()
        else:
            exchange.answer(202 if exchange.command == "POST" else 200, json.dumps(self.begun).encode())

    def _stream(self, exchange: Exchange) -> None:
        exchange.begin_chunked()
        for event in self.log:
            if event.id == self.waits_before:
                self.go_on.wait(60)
            exchange.chunk(f"id: {event.id}\nevent: {event.type}\ndata: {json.dumps(event.data)}\n\n".encode())
        exchange.chunk(b"")
