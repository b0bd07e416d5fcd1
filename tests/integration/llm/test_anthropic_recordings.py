"""Real exchanges with the real API, replayed byte for byte through a real server and the real SDK."""

import json
import os
import re
from pathlib import Path

import pytest

from loom_worker.errors import ProviderFailed
from loom_worker.llm.anthropic import Anthropic
from loom_worker.llm.tokens import count, overhead_tokens
from loom_worker.values.chat import ChatMessage, Request
from tests.support.messages_server import MessagesServer, Plain, Stream

pytestmark = pytest.mark.integration

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


def call(*behaviours):
    with MessagesServer(behaviours) as server:
        return list(Anthropic(model="claude-test", base_url=server.url).reply(REQUEST))


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
    *deltas, reply = call(Stream(recording["body"].encode()))
    assert reply.model == model
    assert reply.stop_reason == stop_reason
    assert reply.text == "".join(block["text"] for block in blocks if block["type"] == "text")
    assert reply.text == "".join(delta.text for delta in deltas)
    assert [(use.id, use.name, use.arguments, use.flaw) for use in reply.tool_uses] == [
        (block["id"], block["name"], json.loads(block["json"] or "{}"), None)
        for block in blocks
        if block["type"] == "tool_use"
    ]
    thoughts = [block for block in blocks if block["type"] == "thinking"]
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


UNCOUNTED = {"structured", "server_tool"}
"""Loom asks for neither: the provider adds schemas and search results of its own."""
TEXTUAL = [
    each
    for each in STREAMS
    if not UNCOUNTED & set(each["features"])
    and not re.search("image|document|output_config|output_format|thinking", json.dumps(each["request"]))
]


@pytest.mark.parametrize("recording", each_of(TEXTUAL))
def test_the_provider_never_counted_more_tokens_than_loom(recording):
    request, usage = recording["request"], read_independently(recording["body"])[3]
    actual = usage["input_tokens"] + usage.get("cache_read_input_tokens", 0)
    actual += usage.get("cache_creation_input_tokens", 0)
    parts = [*texts(request["messages"]), *texts(request.get("system", [])), *map(json.dumps, request.get("tools", []))]
    calls = json.dumps(request["messages"]).count('"tool_use"')
    frame = overhead_tokens(
        request["model"], messages=len(request["messages"]), calls=calls, has_tools="tools" in request
    )
    assert actual <= sum(count(part, request["model"]) for part in parts) + frame


def texts(value):
    """Every text a message holds: of text blocks, of results, and a call's input as JSON."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for each in value for text in texts(each)]
    inner = [value[name] for name in ("text", "content") if name in value]
    return [text for each in inner for text in texts(each)] + [json.dumps(value[n]) for n in ("input",) if n in value]
