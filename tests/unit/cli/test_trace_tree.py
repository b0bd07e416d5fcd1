"""A trace as text."""

from dataclasses import replace

import pytest
from hypothesis import given

from loom_worker.cli.show import duration
from loom_worker.cli.trace import lines as lines_of_spans
from loom_worker.core.values.json import Json
from loom_worker.store.turn_records import TurnRecord
from loom_worker.trace.turn_spans import spans_of
from tests.unit.trace import generated
from tests.unit.trace.made import ACCEPTED, AT_US, between, call, record, reply, run, times, tried, turn


def lines_of(made: TurnRecord) -> list[str]:
    return list(lines_of_spans([span.as_json() for span in spans_of(made)]))


def test_a_trace_is_a_tree_with_times_tokens_cost_and_what_failed() -> None:
    steps = (reply(0, times(tried(10, 30))),)
    failed = call(status="timeout", error_id="err_1")
    ended = replace(ACCEPTED, runs=(run(),), stored=between(890, 900))
    lines = lines_of(record(ended, turn=turn(calls=(failed,)), steps=steps))
    assert [line.split("  +")[0].rstrip() for line in lines] == [
        "http.request",
        "  agent.chat",
        "    lane.wait",
        "    turn.run",
        "      llm.completion",
        "      store.finish",
        "    tool.execute",
    ]
    asked = next(line for line in lines if "llm.completion" in line)
    assert [part.strip() for part in asked.split("  ") if part.strip()][1:] == [
        *("+ 10.0 ms", "20.0 ms", "OK", "150 tokens", "$0.5000", "claude-test"),
    ]
    assert next(line for line in lines if "tool.execute" in line).endswith("look  worker-9  (timeout)")


def test_what_goes_on_says_so() -> None:
    running = turn(status="in_progress", completed_ms=None, held_by="worker-1")
    lines = lines_of(record(turn=running, claimed_us=AT_US + 5000))
    assert ["goes on" in line for line in lines] == [False, True, False, True]


def test_a_page_of_a_trace_is_shown_though_the_parents_are_on_another() -> None:
    spans = [span.as_json() for span in spans_of(record(replace(ACCEPTED, runs=(run(),))))]
    (line,) = lines_of_spans(spans[-1:])
    assert line.startswith("turn.run")


def test_no_spans_are_no_lines() -> None:
    assert list(lines_of_spans([])) == []


@given(generated.records())
def test_every_span_has_one_line(record: TurnRecord) -> None:
    spans: list[Json] = [span.as_json() for span in spans_of(record)]
    lines = list(lines_of_spans(spans))
    assert sorted(line.split()[0] for line in lines) == sorted(str(span["name"]) for span in spans)


@pytest.mark.cases(
    ("seconds", "text"),
    [
        (0, "0 us"),
        (0.00034, "340 us"),
        (0.0124, "12.4 ms"),
        (0.9999, "999.9 ms"),
        (0.99996, "1.00 s"),
        (0.0009999, "1.0 ms"),
        (0.0009994, "999 us"),
        (3.2, "3.20 s"),
        (99.999, "1 min 40 s"),
        (245.4, "4 min 5 s"),
        (119.9, "2 min 0 s"),
    ],
)
def test_a_time_is_shown_in_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text
