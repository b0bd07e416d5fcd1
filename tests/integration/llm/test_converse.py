"""Bedrock's other models, the real SDK and AWS' own packages against a server that speaks Converse."""

import json
from dataclasses import replace

import pytest

from loom_worker.core.errors import Overloaded, PromptTooLong, ProviderFailed, StreamBroken
from loom_worker.core.values.chat import (
    ChatMessage,
    Request,
    Sampling,
    Shape,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolSpec,
    object_schema,
)
from loom_worker.llm.bedrock import Bedrock
from tests.support.bedrock_wire import (
    BedrockServer,
    Frames,
    converse_frames,
    conversed,
    delta,
    frames,
    give_credentials,
    refusal,
)
from tests.support.messages_server import Plain
from tests.support.messages_wire import WireCall, answer

pytest.importorskip("boto3", reason="the extra packages of bedrock are not installed")
pytestmark = [pytest.mark.heavy, pytest.mark.integration]

NOVA, QWEN, LLAMA = "us.amazon.nova-lite-v1:0", "qwen.qwen3-32b-v1:0", "meta.llama3-3-70b-instruct-v1:0"
TOOL = ToolSpec("find", "Finds.", {"type": "object"})
REQUEST = Request("You help.", (ChatMessage("user", "hello", context="today"),), tools=(TOOL,))
SHAPE = Shape("verdict", object_schema("ok", ok={"type": "boolean"}))
SHAPED = replace(REQUEST, tools=(), shape=SHAPE)


@pytest.fixture(autouse=True)
def aws(monkeypatch, tmp_path):
    give_credentials(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def only_server():
    with BedrockServer() as running:
        yield running


@pytest.fixture
def server(only_server):
    only_server.forget()
    return only_server


def played(*events):
    return Frames(converse_frames(events))


def reply_of(server, *behaviours, model=NOVA, request=REQUEST):
    server.then(*behaviours)
    return list(Bedrock(model=model, base_url=server.url).reply(request))[-1]


def test_an_answer_streams_with_its_thinking_which_is_kept_with_its_signature(server):
    server.then(played(*conversed("one two", thinking="hm")))
    *deltas, reply = Bedrock(model=NOVA, base_url=server.url).reply(REQUEST)
    assert deltas == [ThinkingDelta("hm"), TextDelta("one"), TextDelta(" two")]
    assert (reply.text, reply.stop_reason, reply.model) == ("one two", "end_turn", NOVA)
    assert [(block["thinking"], block["signature"]) for block in reply.opaque] == [("hm", "signed")]
    assert server.paths == [f"/model/{NOVA}/converse-stream"]
    assert "/us-west-2/bedrock/aws4_request" in server.headers[0]["authorization"]


def test_thinking_that_is_sealed_is_kept_as_it_came(server):
    start, *rest = conversed("x")
    reply = reply_of(server, played(start, delta(0, reasoningContent={"redactedContent": "c2Vh"}), *rest))
    assert [(block["type"], block["data"]) for block in reply.opaque] == [("redacted_thinking", "c2Vh")]


@pytest.mark.cases(
    ("stop", "reason"),
    [
        ("end_turn", "end_turn"),
        ("max_tokens", "max_tokens"),
        ("guardrail_intervened", "refusal"),
        ("content_filtered", "refusal"),
        ("novel", "end_turn"),
    ],
)
def test_why_a_reply_ended_is_told_in_looms_words(server, stop, reason):
    assert reply_of(server, played(*conversed("x", stop=stop))).stop_reason == reason


def test_output_that_bedrock_could_not_read_is_asked_for_again(server):
    with pytest.raises(StreamBroken, match="malformed_tool_use"):
        reply_of(server, played(*conversed("x", stop="malformed_tool_use")))


def test_tokens_of_the_cache_are_apart_from_the_input(server):
    counts = {"inputTokens": 5, "outputTokens": 7, "totalTokens": 42, "cacheReadInputTokens": 20}
    usage = reply_of(server, played(*conversed("x", usage=counts | {"cacheWriteInputTokens": 10}))).usage
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (
        5,
        7,
        20,
        10,
    )


def test_events_and_pieces_of_other_kinds_are_passed_over(server):
    novel = [{"novelEvent": {"x": 1}}, delta(7, citation={"title": "x"}), delta(8, image={"source": {}})]
    novel.append({"contentBlockStart": {"contentBlockIndex": 9, "start": {"image": {"format": "png"}}}})
    assert reply_of(server, played(*novel, *conversed("x"))).text == "x"


@pytest.mark.parametrize(
    "body",
    [
        converse_frames([{"contentBlockDelta": {"contentBlockIndex": 0}}]),
        converse_frames([{"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": {"name": "x"}}}}]),
        converse_frames([{"messageStop": {}}]),
        b'{"output": {}, "stopReason": "end_turn"}',
        b'{"output": {"message": {"content": [',
    ],
)
def test_what_is_no_reply_is_a_broken_stream(server, body):
    with pytest.raises(StreamBroken):
        reply_of(server, Frames(body))


@pytest.mark.parametrize(("name", "kind"), [("throttling", Overloaded), ("validation", ProviderFailed)])
def test_an_exception_within_the_stream_is_what_it_is_outside_of_it(server, name, kind):
    with pytest.raises(kind):
        reply_of(server, played(*conversed("one two")[:2], {f"{name}Exception": {"message": "no"}}))


@pytest.mark.cases(
    ("words", "tokens", "limit"),
    [
        ("Too many input tokens. Max input tokens: 128000, request input token count: 130000", 130_000, 128_000),
        ("Input Tokens Exceeded: Number of input tokens exceeds maximum length.", None, None),
        ("This model's maximum context length is 8192 tokens. Please reduce the length of the prompt", None, 8192),
    ],
)
def test_a_prompt_that_is_too_long_is_told_apart(server, words, tokens, limit):
    with pytest.raises(PromptTooLong) as caught:
        reply_of(server, refusal(400, "ValidationException", words))
    assert caught.value.args[1:] == (tokens, limit)


CALLED = {"toolUse": {"toolUseId": "c1", "name": "find", "input": {"q": 1}}}
THOUGHT = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}
WHOLE = {
    "output": {"message": {"role": "assistant", "content": [THOUGHT, {"text": "look"}, CALLED, {"novel": {}}]}},
    "stopReason": "tool_use",
    "usage": {"inputTokens": 5, "outputTokens": 7, "totalTokens": 12},
}


def test_a_family_that_does_not_stream_calls_answers_in_one_piece_when_it_has_tools(server):
    reply = reply_of(server, Plain(200, json.dumps(WHOLE).encode()), model=LLAMA)
    assert (reply.text, [use.arguments for use in reply.tool_uses]) == ("look", [{"q": 1}])
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.stop_reason) == (5, 7, "tool_use")
    reply_of(server, played(*conversed("x")), model=LLAMA, request=replace(REQUEST, tools=()))
    assert [path.rpartition("/")[2] for path in server.paths] == ["converse", "converse-stream"]


def test_a_model_that_turns_out_not_to_stream_calls_is_not_asked_to_again(server):
    refused = refusal(400, "ValidationException", "This model doesn't support tool use in streaming mode.")
    whole = Plain(200, json.dumps(WHOLE).encode())
    server.then(refused, whole, whole)
    model = Bedrock(model="ai21.jamba-9-v1:0", base_url=server.url)
    assert [list(model.reply(REQUEST))[-1].text for _ in range(2)] == ["look", "look"]
    assert [path.rpartition("/")[2] for path in server.paths] == ["converse-stream", "converse", "converse"]


ACCOUNT = "arn:aws:bedrock:us-west-2:123456789012"


@pytest.mark.cases(
    ("model", "is_claude"),
    [
        ("anthropic.claude-3-haiku-20240307-v1:0", True),
        ("claude-haiku-5-5", True),
        (f"{ACCOUNT}:inference-profile/us.anthropic.claude-sonnet-4-6", True),
        (NOVA, False),
        ("deepseek.v3.1", False),
        ("arn:aws:bedrock:us-west-2::foundation-model/meta.llama3-1-8b-instruct-v1:0", False),
        (f"{ACCOUNT}:inference-profile/us.amazon.nova-lite-v1:0", False),
    ],
)
def test_claude_is_asked_by_the_messages_api_and_every_other_model_by_converse(server, model, is_claude):
    with pytest.raises(Overloaded):
        reply_of(
            server,
            refusal(503, "ServiceUnavailableException", "later"),
            model=model,
            request=replace(REQUEST, tools=()),
        )
    assert server.paths[-1].endswith("/invoke-with-response-stream" if is_claude else "/converse-stream")


PROFILE = f"{ACCOUNT}:application-inference-profile/abc"
FOREIGN = "Malformed input request: #: extraneous key [anthropic_version] is not permitted, please reformat your input"


def test_a_profile_that_names_no_model_is_claudes_until_bedrock_says_otherwise(server):
    server.then(refusal(400, "ValidationException", FOREIGN), *[played(*conversed("x"))] * 2)
    model = Bedrock(model=PROFILE, base_url=server.url)
    assert [list(model.reply(REQUEST))[-1].text for _ in range(2)] == ["x", "x"]
    operations = [path.rpartition("/")[2] for path in server.paths]
    assert operations == ["invoke-with-response-stream", "converse-stream", "converse-stream"]


def test_a_shape_is_demanded_natively_and_after_a_refusal_by_a_tool(server):
    no_mode = refusal(400, "ValidationException", "outputConfig: structured output is not supported by this model")
    given = played(*conversed("", [WireCall("c1", "verdict", {"ok": True})]))
    assert json.loads(reply_of(server, no_mode, given, model=QWEN, request=SHAPED).text) == {"ok": True}
    assert ["outputConfig" in body for body in server.requests] == [True, False]
    reply = reply_of(server, played(*conversed('{"ok": false}')), model=QWEN, request=SHAPED)
    assert (json.loads(reply.text), reply.stop_reason) == ({"ok": False}, "end_turn")


def test_settings_that_a_model_refuses_are_left_out_one_by_one(server):
    both = refusal(400, "ValidationException", "`temperature` and `top_p` cannot both be specified for this model.")
    effort = refusal(400, "ValidationException", "reasoning_effort: extraneous key")
    request = replace(REQUEST, sampling=Sampling(temperature=0.2, top_p=0.9), thinking=Thinking("low"))
    assert reply_of(server, both, effort, played(*conversed("x")), model="openai.gpt-oss-20b-1:0", request=request)
    assert ["topP" in body["inferenceConfig"] for body in server.requests] == [True, False, False]
    assert ["additionalModelRequestFields" in body for body in server.requests] == [True, True, False]


def test_claude_on_bedrock_thinks_and_shapes_its_answer_as_elsewhere(server):
    request = replace(SHAPED, thinking=Thinking("high"), max_tokens=9000)
    reply_of(server, Frames(frames(answer("{}"))), model="us.anthropic.claude-haiku-4-5-20251001-v1:0", request=request)
    assert server.requests[0]["thinking"] == {"type": "enabled", "budget_tokens": 7976}
    assert server.requests[0]["output_config"]["format"]["schema"]["required"] == ["ok"]
