import json

from loom_worker.store.trace_outbox import TraceEntry
from loom_worker.trace.batch import MOST_BYTES, MOST_SPANS, EncodedSpan, batches
from loom_worker.trace.limits import TRUNCATED
from loom_worker.trace.otlp import request_body
from tests.unit.trace.made_spans import span


def entry(n: int) -> TraceEntry:
    return TraceEntry(n, f"turn_{n}")


def test_a_turns_spans_are_split_where_a_request_is_full() -> None:
    made = {f"turn_{n}": tuple(span(1000 * n + k) for k in range(60)) for n in range(3)}
    found = list(batches([entry(n) for n in range(3)], made))
    assert [len(batch.spans) for batch in found] == [100, 80]
    assert [batch.done for batch in found] == [[0], [1, 2]]
    assert [(batch.partial, batch.following) for batch in found] == [(1, 20), (None, 0)]


def test_no_request_is_larger_than_a_megabyte() -> None:
    made = {"turn_1": tuple(span(n, attributes={f"a{k}": "x" * 900 for k in range(10)}) for n in range(400))}
    found = list(batches([entry(1)], made))
    assert sum(len(batch.spans) for batch in found) == 400
    for batch in found:
        body = request_body([each.encoded for each in batch.spans], {"service.name": "loom"})
        assert len(body) <= MOST_BYTES
        assert len(batch.spans) <= MOST_SPANS
        json.loads(body)


def test_a_batch_ends_between_turns_without_a_torn_one() -> None:
    made = {f"turn_{n}": tuple(span(1000 * n + k) for k in range(50)) for n in range(3)}
    found = list(batches([entry(n) for n in range(3)], made))
    assert [(batch.done, batch.partial) for batch in found] == [([0, 1], None), ([2], None)]


def test_a_span_is_sent_once_and_one_that_goes_on_not_yet() -> None:
    later = span(1)
    made = {"turn_1": (span(0), later, span(2, end_us=None), later)}
    (batch,) = batches([entry(1), TraceEntry(2, "turn_1", later), TraceEntry(3, "turn_1", span(4))], made)
    assert [each.span for each in batch.spans] == [span(0), later, span(4)]
    assert batch.done == [1, 2, 3]


def test_a_turn_that_is_gone_is_done() -> None:
    (batch,) = batches([entry(1)], {})
    assert (batch.spans, batch.done) == ([], [1])


def test_a_span_is_redacted_before_it_is_cut() -> None:
    prepared = EncodedSpan.of(span(attributes={"text": "ann@example.com " * 2_000, "password": "hunter2"}))
    assert b"ann@" not in prepared.encoded
    assert b"hunter2" not in prepared.encoded
    assert prepared.span.attributes[TRUNCATED] is True
