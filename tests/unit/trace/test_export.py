"""The outbox is emptied into a collector; what it does not take is counted, and never in the way of what follows."""

import json
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from loom_worker.core.errors import Unavailable
from loom_worker.store.trace_outbox import TraceOutbox
from loom_worker.trace.export import ENTRIES, HOLD_MS, MOST_REST_S, RENEW_MS, Held, Moment, rest_s, used_so_far
from tests.support.until import AT_ONCE_S
from tests.support.webhook_receiver import Answer, Received, unused_port
from tests.unit.trace.conftest import Bench
from tests.unit.trace.made_spans import span


def resource_of(request: Received) -> Any:
    """What a request holds, which is one resource."""
    (resource,) = ExportTraceServiceRequest.FromString(request.body).resource_spans
    return resource


def names(bench: Bench) -> list[list[str]]:
    """Of all spans received, by request."""
    scopes = [resource_of(request).scope_spans for request in bench.receiver.received]
    return [[each.name for each in scope[0].spans] for scope in scopes]


def test_what_waits_is_sent_and_forgotten(bench: Bench) -> None:
    first, second = bench.ended(spans=2), bench.ended(spans=1, first=10)
    bench.exporter().serve()
    assert names(bench) == [[f"{first} 0", f"{first} 1", f"{second} 0"]]
    assert bench.outbox.waiting() == 0
    assert bench.totals() == {"exported": 3}
    (named,) = resource_of(bench.receiver.received[0]).resource.attributes
    assert (named.key, named.value.string_value) == ("service.name", "loom")


def test_a_repeated_message_does_nothing(bench: Bench) -> None:
    bench.ended()
    exporter = bench.exporter()
    exporter.serve()
    exporter.serve()
    assert len(bench.receiver.received) == 1


def test_more_than_one_request_holds_is_sent_in_several(bench: Bench) -> None:
    for n in range(ENTRIES + 5):
        bench.ended(spans=10, first=n * 100)
    bench.exporter().serve()
    assert [len(each) for each in names(bench)] == [100, 100, 100, 20, 50]
    assert bench.totals() == {"exported": 370}
    assert bench.outbox.waiting() == 0


def test_in_json_the_same_spans_are_sent(bench: Bench) -> None:
    turn_id = bench.ended()
    bench.exporter(protocol="json").serve()
    (request,) = bench.receiver.received
    (scope,) = json.loads(request.body)["resourceSpans"][0]["scopeSpans"]
    assert [each["name"] for each in scope["spans"]] == [f"{turn_id} {n}" for n in range(3)]
    assert bench.totals() == {"exported": 3}


def test_it_is_tried_four_times_with_the_same_body(bench: Bench) -> None:
    bench.receiver.answer_with(Answer(503), Answer(raw=b""), Answer(429, {"Retry-After": "0"}), Answer(200))
    bench.ended()
    bench.exporter().serve()
    assert len({request.body for request in bench.receiver.received}) == 1
    assert len(bench.receiver.received) == 4
    assert bench.totals() == {"exported": 3}


@pytest.mark.parametrize(
    ("answer", "loss", "tries"),
    [(Answer(503), "unavailable", 4), (Answer(raw=b""), "unreachable", 4), (Answer(400), "refused", 1)],
    ids=["503", "closed", "400"],
)
def test_a_batch_that_is_not_taken_is_lost_and_counted_and_the_rest_waits(
    bench: Bench, answer: Answer, loss: str, tries: int
) -> None:
    bench.receiver.answer_with(answer)
    for n in range(3):
        bench.ended(spans=60, first=n * 100)
    exporter = bench.exporter()
    exporter.serve()
    assert len(bench.receiver.received) == tries
    # The second turn's rest is lost with the part of it that was in the batch.
    assert bench.totals() == {loss: 120}
    assert bench.outbox.waiting() == 1
    bench.receiver.answer_with(Answer(200))
    exporter.serve()
    assert bench.totals() == {loss: 120, "exported": 60}
    assert bench.outbox.waiting() == 0


def test_nobody_at_the_port_costs_four_tries_and_one_batch(bench: Bench) -> None:
    bench.ended()
    bench.exporter(endpoint=f"http://127.0.0.1:{unused_port()}").serve()
    assert bench.totals() == {"unreachable": 3}


def test_what_a_collector_rejects_of_a_batch_is_counted(bench: Bench) -> None:
    bench.receiver.answer_with(Answer(200, body=b'{"partialSuccess":{"rejectedSpans":"2"}}'))
    bench.ended()
    bench.exporter().serve()
    assert bench.totals() == {"rejected": 2, "exported": 1}


def test_no_more_is_rejected_than_was_sent(bench: Bench) -> None:
    bench.receiver.answer_with(Answer(200, body=b'{"partialSuccess":{"rejectedSpans":"99999"}}'))
    bench.ended()
    bench.exporter().serve()
    assert bench.totals() == {"rejected": 3}


def test_one_thread_exports_and_others_return_at_once(bench: Bench) -> None:
    hold = threading.Event()
    bench.receiver.answer_with(Answer(hold=hold))
    bench.ended()
    exporter = bench.exporter()
    first = threading.Thread(target=exporter.serve)
    first.start()
    bench.receiver.wait_for(1, timeout_s=AT_ONCE_S)
    bench.ended(first=10)
    exporter.serve()  # would wait for the collector
    assert first.is_alive()
    hold.set()
    first.join()
    assert bench.totals() == {"exported": 6}
    assert bench.outbox.waiting() == 0


def test_a_process_that_is_to_stop_gives_back_what_it_could_not_send(bench: Bench) -> None:
    bench.receiver.answer_with(Answer(503))
    bench.ended()
    exporter = bench.exporter(pauses_s=(600.0,))
    thread = threading.Thread(target=exporter.serve)
    thread.start()
    bench.receiver.wait_for(1, timeout_s=AT_ONCE_S)
    bench.stopping.ask()
    thread.join(AT_ONCE_S)
    assert not thread.is_alive()
    assert bench.totals() == {}
    assert len(bench.outbox.take(most=9, now_ms=0, hold_ms=1)) == 1


def test_a_trace_that_cannot_be_made_is_in_nobodys_way(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.ended()
    broken = bench.ended()
    bench.spans.by_turn[broken] = (span(trace_id="not hexadecimal", attributes=None),)
    bench.ended(first=10)
    bench.exporter().serve()
    (told,) = [record for record in caplog.records if record.getMessage() == "a trace is lost"]
    assert vars(told)["turn"] == broken
    assert bench.totals() == {"internal": 1, "exported": 6}
    assert bench.outbox.waiting() == 0


def test_a_mistake_while_traces_are_sent_loses_none_of_them(bench: Bench) -> None:
    class Failing(TraceOutbox):
        def remove(self, ns: Sequence[int]) -> None:
            raise OSError("not of the traces")

    for n in range(20):
        bench.ended(spans=10, first=n * 100)
    with pytest.raises(OSError, match="not of the traces"):
        replace(bench.exporter(), outbox=Failing(bench.database)).serve()
    assert bench.totals() == {"exported": 100}
    bench.exporter().serve()  # takes all of them at once: nobody holds them
    assert {name for request in names(bench) for name in request} == {
        each.name for spans in bench.spans.by_turn.values() for each in spans
    }
    assert bench.outbox.waiting() == 0


def test_entries_are_held_for_longer_while_a_collector_is_slow(bench: Bench) -> None:
    bench.ended()
    (entry,) = bench.outbox.take(most=9, now_ms=0, hold_ms=HOLD_MS)
    held = Held(bench.outbox, {entry.n}, 0)
    held.keep(RENEW_MS - 1)
    held.keep(RENEW_MS)
    assert bench.outbox.take(most=9, now_ms=RENEW_MS + HOLD_MS - 1, hold_ms=HOLD_MS) == ()
    assert len(bench.outbox.take(most=9, now_ms=RENEW_MS + HOLD_MS, hold_ms=HOLD_MS)) == 1


def test_it_begins_nothing_once_it_is_to_stop(bench: Bench) -> None:
    bench.ended()
    bench.stopping.ask()
    bench.exporter().serve()
    assert bench.receiver.received == ()
    assert bench.outbox.waiting() == 1


def test_without_a_collector_nothing_is_taken(bench: Bench) -> None:
    bench.ended()
    bench.exporter(endpoint=None).serve()
    assert len(bench.outbox.take(most=9, now_ms=0, hold_ms=1)) == 1


def test_a_database_that_does_not_answer_ends_the_task_and_loses_nothing(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.ended()

    class Away:
        def spans(self, turn_ids: object) -> dict[str, Any]:
            raise Unavailable("the database is busy")

    replace(bench.exporter(), spans=Away()).serve()
    assert "the sweep will ask again: the database is busy" in caplog.text
    assert len(bench.outbox.take(most=9, now_ms=0, hold_ms=1)) == 1


@pytest.mark.parametrize(
    ("idle_s", "own_s", "pause"),
    [
        (1.0, 0.1, 0.0),  # half of two processors is idle
        (0.2, 0.8, 0.0),  # or would be without us
        (0.7, 0.1, 0.1 * (1 / 0.08 - 1)),  # of 40 % of two processors a tenth
        (0.0, 0.01, 0.01 * (1 / 0.03 - 1)),
        (0.0, 0.0, 0.0),
        (0.0, 0.2, MOST_REST_S),
    ],
)
def test_it_rests_only_where_others_want_the_processor(idle_s: float, own_s: float, pause: float) -> None:
    before, after = Moment(5.0, 100.0, 1.0), Moment(6.0, 100.0 + idle_s, 1.0 + own_s)
    assert rest_s(before, after, processors=2) == pytest.approx(pause)


def test_where_nothing_is_known_it_does_not_rest() -> None:
    moment = Moment(5.0, 100.0, 1.0)
    assert [rest_s(*pair, processors=1) for pair in ((None, moment), (moment, None), (moment, moment))] == [0.0] * 3


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc/stat")
def test_the_clocks_of_this_machine_are_read() -> None:
    first, second = used_so_far(), used_so_far()
    assert first is not None
    assert second is not None
    assert second.at_s >= first.at_s
    assert second.idle_s >= first.idle_s > 0
    assert second.own_s >= first.own_s > 0
