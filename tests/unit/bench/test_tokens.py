import json

import pytest

from bench.tokens import Sample, after_a_reply, count_request, sample, skipped
from loom_worker.llm.tokens import cl100k_tokens

MODEL = "claude-sonnet-4-5"
USAGE = {"input_tokens": 5, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 300, "output_tokens": 1}
PLAIN = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
STREAM = f"event: message_start\ndata: {json.dumps({'type': 'message_start', 'message': {'usage': USAGE}})}\n\n"


def recorded(body=STREAM, status=200, **fields):
    return {"id": "talk#1", "status": status, "request": {**PLAIN, **fields}, "body": body}


@pytest.mark.parametrize("body", [STREAM, json.dumps({"usage": USAGE})])
def test_what_came_from_the_providers_cache_or_went_into_it_is_input_too(body) -> None:
    found = sample(recorded(body))
    assert (found.actual, found.conversation, found.kind) == (325, "talk", "short text")
    assert found.usual < found.counted


@pytest.mark.parametrize(
    "fields",
    [
        {"output_format": {"type": "json_schema"}},
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
    ],
)
def test_what_loom_never_sends_is_left_out_and_named(fields) -> None:
    assert skipped(recorded()) is None
    assert skipped(recorded(**fields))
    assert skipped(recorded(status=404)) == "refused: there is no usage"


PART = "Nineteen green lamps were sold in Lisbon. "


@pytest.mark.cases(
    "fields",
    [
        {"system": PART},
        {"system": [{"type": "text", "text": PART}]},
        {"tools": [{"name": "find", "description": PART, "input_schema": {}}]},
        {"messages": [{"role": "user", "content": "hello" + PART}]},
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": PART, "input": {}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": PART}]}]},
        {"messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": PART, "signature": "s"}]}]},
        {"messages": [{"role": "assistant", "content": [{"type": "compaction", "content": PART}]}]},
    ],
)
def test_every_part_of_a_request_is_counted(fields) -> None:
    without = {**PLAIN, **json.loads(json.dumps(fields).replace(PART, ""))}
    for more, less in zip(count_request({**PLAIN, **fields}, MODEL), count_request(without, MODEL), strict=True):
        assert more >= less + cl100k_tokens(PART)


def test_the_reply_before_corrects_later_calls_of_the_same_conversation_alone() -> None:
    calls = [
        Sample("a#0", "a", "x", counted=5000, usual=4500, actual=2000),
        Sample("a#1", "a", "x", counted=200, usual=180, actual=120),
        Sample("b#0", "b", "x", counted=300, usual=270, actual=300),
        Sample("a#2", "b", "x", counted=400, usual=360, actual=400),
    ]
    assert [(call.id, round(shown)) for call, shown in after_a_reply(calls)] == [("a#1", 90), ("a#2", 394)]
