import threading
from collections.abc import Iterator

import pytest

from loom_worker.core import log_context
from loom_worker.core.values.spans import span_id_of
from loom_worker.core.values.tools import Caller
from loom_worker.core.values.turns import Turn
from tests.support.log_lines import logging_as_it_was

TURN = Turn("turn_1", "lane_1", "s1", "acme", "default", 1, "queued", "hello", 0, trace_id="a" * 32, request_id="req_1")


@pytest.fixture(autouse=True)
def _no_ids_stay() -> Iterator[None]:
    with logging_as_it_was():
        log_context.begin({})
        yield


def test_what_began_later_replaces_what_was_before() -> None:
    log_context.begin({"request": "r1", "turn": "turn_1"})
    log_context.begin({"request": "r2"})
    assert log_context.ids() == {"request": "r2"}


def test_ids_can_be_added_for_good_or_for_a_block() -> None:
    log_context.begin({"task": "t"})
    log_context.add({"turn": "turn_1"})
    with log_context.about({"turn": "turn_2", "call": "c"}):
        assert log_context.ids() == {"task": "t", "turn": "turn_2", "call": "c"}
    assert log_context.ids() == {"task": "t", "turn": "turn_1"}


def test_a_block_ends_with_an_error_too() -> None:
    with pytest.raises(ValueError, match="why"), log_context.about({"turn": "turn_1"}):
        raise ValueError("why")
    assert log_context.ids() == {}


def test_a_line_about_a_turn_leads_to_its_span() -> None:
    ids = log_context.turn_ids(TURN)
    root = {"session": "s1", "turn": "turn_1", "lane": "lane_1", "trace_id": "a" * 32, "span_id": span_id_of("turn_1")}
    assert ids == root
    assert log_context.turn_ids(TURN, "tool", "c1")["span_id"] == span_id_of("turn_1", "tool", "c1")


def test_a_line_about_a_call_leads_to_the_span_of_the_call() -> None:
    caller = Caller("lane_1", "s1", "acme", "turn_1", "c1", trace_id="a" * 32)
    of_call = log_context.caller_ids(caller, "tool", "c1")
    assert (of_call["call"], of_call["span_id"]) == ("c1", span_id_of("turn_1", "tool", "c1"))
    of_judge = log_context.caller_ids(caller, "judge", "3", "0")
    assert of_judge["span_id"] == span_id_of("turn_1", "judge", "3", "0")
    assert "call" not in of_judge


def test_a_thread_has_the_ids_of_the_one_that_gave_it_its_work_and_no_others() -> None:
    told = []
    with log_context.about({"turn": "turn_1"}):
        given = log_context.inherited(lambda: told.append(dict(log_context.ids())))
        threads = [
            threading.Thread(target=given),
            threading.Thread(target=lambda: told.append(dict(log_context.ids()))),
        ]
    for thread in threads:
        thread.start()
        thread.join()
    assert told == [{"turn": "turn_1"}, {}]
