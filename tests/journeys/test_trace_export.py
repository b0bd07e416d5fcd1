"""Traces reach a collector, whatever happens to processes and collector, and nothing piles up meanwhile."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from loom_worker.lanes import keys
from tests.support.agents import written
from tests.support.messages_server import MessagesServer
from tests.support.system import Json, System
from tests.support.until import until
from tests.support.webhook_receiver import Answer, WebhookReceiver

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(45)]

EXPORT_S = 60.0
"""Ten seconds until it is sent for, and a busy machine."""
KEY = "k3y of the collector"
QUESTION = "Write to ann@example.com, password=hunter2pw"


@pytest.fixture(scope="module")
def collector() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory, collector: WebhookReceiver) -> Iterator[System]:
    place: Path = tmp_path_factory.mktemp("traced")
    with MessagesServer() as server:
        environ = {
            "ANTHROPIC_BASE_URL": server.url,
            "LOOM_AGENTS_DIR": written(place / "agents", {"default": {"backend": False}}),
            "LOOM_TRACE_ENDPOINT": f"http://127.0.0.1:{collector.port}",
            "LOOM_TRACE_HEADERS": f"x-key={KEY}",
        }
        with System(place / "home", **environ) as started:
            yield started


def spans_of(collector: WebhookReceiver, trace_id: str) -> dict[str, Any]:
    """The spans of a trace that the collector was sent so far, by id."""
    requests = (ExportTraceServiceRequest.FromString(request.body) for request in collector.received)
    scopes = (scope for request in requests for resource in request.resource_spans for scope in resource.scope_spans)
    spans = (span for scope in scopes for span in scope.spans)
    return {span.span_id.hex(): span for span in spans if span.trace_id.hex() == trace_id}


def arrived(collector: WebhookReceiver, turn: Json) -> dict[str, Any]:
    """The spans of an ended turn, once the collector has them."""
    until(lambda: spans_of(collector, turn["trace_id"]), EXPORT_S, "the trace arrives")
    return spans_of(collector, turn["trace_id"])


def test_a_turns_trace_arrives_as_the_api_shows_it_and_without_what_is_secret(
    system: System, collector: WebhookReceiver
) -> None:
    turn = system.ended(system.submit("first", QUESTION))
    shown = system.get(f"/v1/turns/{turn['id']}/trace").json["data"]
    sent = arrived(collector, turn)
    assert {each["span_id"] for each in shown} == sent.keys()
    assert {each["name"] for each in shown} == {each.name for each in sent.values()}
    for each in shown:
        assert sent[each["span_id"]].parent_span_id.hex() == (each["parent_id"] or "")
    request = collector.received[-1]
    assert request.headers["x-key"] == KEY
    assert [word for word in ("ann@", "hunter2pw") if word in str(sent)] == []


def test_on_request_traces_are_exported_at_once(system: System, collector: WebhookReceiver) -> None:
    turn = system.ended(system.submit("asked", "hello"))
    done = system.run("trace", "--flush", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["waiting"] >= 0
    assert arrived(collector, turn)


def test_the_key_of_the_collector_is_known_to_the_exporter_alone(system: System) -> None:
    for name, pid in system.children.items():
        environ = Path(f"/proc/{pid}/environ").read_bytes()
        assert KEY.encode() not in environ, name
    assert KEY not in system.output


@pytest.mark.heavy
def test_the_trace_of_a_turn_whose_worker_was_killed_right_after_it_arrives(
    system: System, collector: WebhookReceiver
) -> None:
    turn = system.ended(system.submit("killed", "hello"))
    for name in ("worker-1", "worker-2"):
        system.kill(name)
    assert arrived(collector, turn)
    system.settle()


@pytest.mark.heavy
def test_turns_go_on_while_the_collector_is_dead_and_traces_arrive_when_it_is_back(
    system: System, collector: WebhookReceiver
) -> None:
    collector.answer_with(Answer(raw=b""))
    turns = [system.ended(system.submit(f"dead-{n}", "hello")) for n in range(3)]
    assert [turn["status"] for turn in turns] == ["completed"] * 3
    before = len(collector.received)
    until(lambda: len(collector.received) > before, EXPORT_S, "it is tried")
    with system.redis() as client:
        assert client.llen(keys.TRACES) <= 2
    collector.answer_with(Answer())
    later = system.ended(system.submit("alive", "hello"))
    assert arrived(collector, later)
    until(lambda: system.rows("SELECT count(*) FROM trace_outbox") == [(0,)], EXPORT_S, "nothing waits")
