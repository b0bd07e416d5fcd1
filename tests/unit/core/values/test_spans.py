"""Ids of spans."""

import re

from loom_worker.core.values.spans import span_id_of


def test_a_span_has_one_id_wherever_it_is_named() -> None:
    assert span_id_of("turn_1", "tool", "call_1") == span_id_of("turn_1", "tool", "call_1") == "0775ef2bd668b5d5"


def test_spans_of_other_parts_and_turns_have_other_ids() -> None:
    named = [(), ("tool", "c1"), ("tool", "c2"), ("llm", "c1"), ("tool", "c", "1"), ("toolc1",)]
    ids = {span_id_of(turn, *part) for turn in ("turn_1", "turn_2") for part in named}
    assert len(ids) == 12
    assert all(re.fullmatch("[0-9a-f]{16}", each) for each in ids)
