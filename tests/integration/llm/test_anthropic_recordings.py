"""Real exchanges with the real API, replayed byte for byte through a real server and the real SDK."""

import json
import os
import re
from pathlib import Path

import pytest

from bench.tokens import after_a_reply, sample, skipped
from loom_worker.core.errors import ProviderFailed
from loom_worker.core.values.chat import ChatMessage, Request, TextDelta, ThinkingDelta
from loom_worker.llm.anthropic import Anthropic
from tests.support.messages_server import MessagesServer, Plain, Stream

pytestmark = [pytest.mark.integration, pytest.mark.takes(6)]

FOLDER = os.environ.get("LOOM_TEST_DATA")
FILE = Path(FOLDER or "", "anthropic_recordings", "recordings.jsonl")
HAS_FILE = bool(FOLDER) and FILE.exists()
RECORDINGS = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()] if HAS_FILE else []
STREAMS = [each for each in RECORDINGS if each["sse"] and each["status"] == 200]
FAILURES = [each for each in RECORDINGS if each["status"] >= 300]
REQUEST = Request("", (ChatMessage("user", "hello"),))
NONE = pytest.param(None, marks=pytest.mark.skip(reason="LOOM_TEST_DATA is not set: no recordings"))


def each_of(recordings):
    return [pytest.param(each, id=each["id"]) for each in recordings] or [NONE]


def call(*behaviours, model="claude-test"):
    with MessagesServer(behaviours) as server:
        return list(Anthropic(model=model, base_url=server.url).reply(REQUEST))


def read_independently(body):
    """The reply as the stream's text says it, by regular expressions and a running message: no code of Loom's."""
    events = [json.loads(found) for found in re.findall(r"^data: ?(.*)$", body, re.M)]
    message = next(event["message"] for event in events if event["type"] == "message_start")
    usage, blocks, stop_reason = dict(message["usage"]), {}, None
    for event in events:
        if event["type"] == "content_block_start":
            blocks[event["index"]] = {**event["content_block"], "json": ""}
        elif event["type"] == "content_block_delta":
            grow(blocks[event["index"]], event["delta"])
        elif event["type"] == "message_delta":
            stop_reason = event["delta"]["stop_reason"]
            usage.update(event["usage"])
    return message["model"], list(blocks.values()), stop_reason, usage


def grow(block, delta):
    pairs = {"text_delta": ("text", "text"), "input_json_delta": ("json", "partial_json")}
    pairs |= {"thinking_delta": ("thinking", "thinking"), "signature_delta": ("signature", "signature")}
    if delta["type"] in pairs:
        target, source = pairs[delta["type"]]
        block[target] = block.get(target, "") + delta[source]


@pytest.mark.skipif(not HAS_FILE, reason="LOOM_TEST_DATA is not set: no recordings")
def test_there_are_recordings_of_every_kind():
    features = {feature for each in STREAMS for feature in each["features"]}
    assert {"tool_use", "parallel_tool_use", "thinking", "cache"} <= features
    assert FAILURES


@pytest.mark.parametrize("recording", each_of(STREAMS))
def test_a_recorded_stream_is_read_as_it_was_sent(recording):
    model, blocks, stop_reason, usage = read_independently(recording["body"])
    *deltas, reply = call(Stream(recording["body"].encode()), model=model)
    assert reply.stop_reason == stop_reason
    assert reply.text == "".join(block["text"] for block in blocks if block["type"] == "text")
    assert reply.text == "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert [(use.id, use.name, use.arguments, use.flaw) for use in reply.tool_uses] == [
        (block["id"], block["name"], json.loads(block["json"] or "{}"), None)
        for block in blocks
        if block["type"] == "tool_use"
    ]
    thoughts = [block for block in blocks if block["type"] == "thinking"]
    thought = "".join(delta.text for delta in deltas if isinstance(delta, ThinkingDelta))
    assert thought == "".join(block["thinking"] for block in thoughts)
    assert [(each["thinking"], each["signature"]) for each in reply.opaque] == [
        (block["thinking"], block["signature"]) for block in thoughts
    ]
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (usage["input_tokens"], usage["output_tokens"])
    assert reply.usage.cache_read_tokens == usage.get("cache_read_input_tokens", 0)
    assert reply.usage.cache_write_tokens == usage.get("cache_creation_input_tokens", 0)
    assert reply.usage.cost_usd > 0


@pytest.mark.parametrize("recording", each_of(FAILURES))
def test_a_recorded_refusal_is_a_refusal_with_the_providers_words(recording):
    with pytest.raises(ProviderFailed) as caught:
        call(Plain(recording["status"], recording["body"].encode(), headers={"x-recorded": "1"}))
    assert str(recording["status"]) in str(caught.value)
    assert json.loads(recording["body"])["error"]["message"][:100] in str(caught.value)


COUNTED = [each for each in RECORDINGS if skipped(each) is None]


@pytest.mark.parametrize("recording", each_of(COUNTED))
def test_the_provider_never_counted_more_tokens_than_loom(recording):
    counted = sample(recording)
    assert counted.actual <= counted.counted


@pytest.mark.skipif(not HAS_FILE, reason="LOOM_TEST_DATA is not set: no recordings")
def test_of_long_text_the_usual_estimate_is_within_5_percent():
    long = [each for each in map(sample, COUNTED) if each.kind == "long text"]
    assert long
    assert all(each.usual == pytest.approx(each.actual, rel=0.05) for each in long)


@pytest.mark.skipif(not HAS_FILE, reason="LOOM_TEST_DATA is not set: no recordings")
def test_after_a_reply_the_estimate_of_a_call_with_tools_is_within_5_percent():
    later = [(call, shown) for call, shown in after_a_reply([*map(sample, COUNTED)]) if call.kind.startswith("tools")]
    assert later
    assert all(shown == pytest.approx(call.actual, rel=0.05) for call, shown in later)
