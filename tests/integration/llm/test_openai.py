"""The adapter for OpenAI's formats and the real SDK, where makers differ: keys, addresses, refusals, Ollama."""

import json
import logging

import pytest

from loom_worker.core.errors import Overloaded, PromptTooLong, ProviderFailed, StreamBroken, Unreached
from loom_worker.core.values.chat import (
    ChatMessage,
    Request,
    Sampling,
    Shape,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolSpec,
)
from loom_worker.llm.http_model import HttpModel
from loom_worker.llm.openai import OpenAi, OpenAiServer
from loom_worker.llm.presets import preset
from loom_worker.llm.provider_errors import is_rate_limit
from tests.support.messages_server import Plain, Stream
from tests.support.messages_wire import WireCall
from tests.support.openai_server import OpenAiServer as Stub
from tests.support.openai_server import chat, chunk, refusal, responses, sse

pytestmark = pytest.mark.integration

TOOL = ToolSpec("find", "Finds.", {"type": "object", "properties": {}})
REQUEST = Request("You help.", (ChatMessage("user", "hello", context="today"),), tools=(TOOL,))
SHAPE = Shape("city", {"type": "object", "properties": {"name": {"type": "string"}}})
ANSWER = Stream(sse(chat("one two")))


@pytest.fixture(scope="module")
def only_stub():
    """One for all tests: a new address would mean a new client of the SDK's."""
    with Stub() as running:
        yield running


@pytest.fixture
def stub(only_stub):
    """Its requests are counted from here on."""
    only_stub.forget()
    only_stub.before = len(only_stub.requests)
    return only_stub


def asked(stub):
    return stub.requests[stub.before :]


def model_of(stub, name="vllm", **fields):
    return OpenAi(**{"preset": name, "model": "qwen3-coder", "base_url": stub.url, "api_key": "sk-own", **fields})


def reply_of(stub, *behaviours, request=REQUEST, **fields):
    stub.then(*behaviours)
    return list(model_of(stub, **fields).reply(request))[-1]


def test_a_question_is_answered_and_streamed_at_another_makers_price(stub):
    stub.then(Stream(sse(chat("one two", thinking="hm"))))
    *deltas, reply = model_of(stub, "groq").reply(REQUEST)
    assert deltas == [ThinkingDelta("hm"), TextDelta("one"), TextDelta(" two")]
    assert (reply.text, reply.stop_reason, reply.model) == ("one two", "end_turn", "groq/qwen3-coder")
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cost_usd) == (26, 7, None)


def test_openais_own_address_is_asked_by_responses_and_another_by_chat(stub):
    own = HttpModel(OpenAiServer(preset("openai"), stub.url, "sk-own", "openai"), model="gpt-5.2")
    stub.then(Stream(sse(responses("one"), ends=False)), ANSWER)
    assert [list(each.reply(REQUEST))[-1].text for each in (own, model_of(stub, "openai"))] == ["one", "one two"]
    assert stub.paths[-2:] == ["/v1/responses", "/v1/chat/completions"]


def test_nothing_of_the_environment_is_sent_but_the_models_own_key(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "a-secret")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/secret")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer a-secret\nX-Tenant: a-secret")
    with Stub([ANSWER, ANSWER]) as fresh:
        reply_of(fresh, api_key="sk-own")
        reply_of(fresh, "ollama", api_key=None, model="other")
        assert "secret" not in str(fresh.headers)
        assert fresh.headers[0]["authorization"] == "Bearer sk-own"


@pytest.mark.cases(
    ("name", "variable"), [("groq", "GROQ_API_KEY"), ("openai", "OPENAI_API_KEY"), ("xai", "XAI_API_KEY")]
)
def test_a_missing_key_is_named_before_anything_is_sent(monkeypatch, name, variable):
    monkeypatch.setenv("OPENAI_API_KEY", "a-secret")
    with pytest.raises(ProviderFailed, match=variable):
        list(OpenAi(preset=name, model="m").reply(REQUEST))


@pytest.mark.cases(
    ("name", "status", "advice"),
    [
        ("groq", 401, "set GROQ_API_KEY"),
        ("deepseek", 402, "billing or credit"),
        ("xai", 404, "does not know the model 'qwen3-coder'"),
        ("ollama", 404, "ollama pull qwen3-coder"),
        ("ollama", 401, "ollama signin"),
    ],
)
def test_an_error_says_what_to_do_with_the_preset_it_is_of(stub, name, status, advice):
    with pytest.raises(ProviderFailed, match=advice) as caught:
        reply_of(stub, refusal(status, "no good: sk-own"), name=name)
    assert "sk-own" not in str(caught.value)


@pytest.mark.cases(("status", "setting"), [(401, "llm.api_key"), (403, "llm.api_key"), (404, "llm in")])
def test_an_error_at_an_address_of_an_agents_file_names_the_files_settings(stub, status, setting):
    with pytest.raises(ProviderFailed, match=f"{setting}.*agent's file"):
        reply_of(stub, refusal(status, "no good"), in_file=True)


def test_a_server_that_is_not_there_says_how_to_start_it():
    with Stub() as gone:
        pass
    with pytest.raises(Unreached, match=r"ollama does not answer at .*: start it with `ollama serve`"):
        reply_of(gone, name="ollama")


@pytest.mark.cases(
    ("status", "message", "code", "headers", "wait_s"),
    [
        (429, "Rate limit reached. Please try again in 7.66s.", "rate_limit_exceeded", {}, 7.66),
        (429, "Please retry in 1m2.5s", None, {}, 62.5),
        (429, "slow", None, {"x_ratelimit_remaining_tokens": "0", "x_ratelimit_reset_tokens": "6m0s"}, 360),
        (429, "slow", None, {"x_ratelimit_remaining_requests": "9", "x_ratelimit_reset_requests": "23h"}, None),
        (429, "slow, try again in 9s", None, {"retry_after": "2"}, 2),
        (503, "overloaded", None, {}, None),
    ],
)
def test_a_limit_is_waited_for_as_long_as_its_maker_says(stub, status, message, code, headers, wait_s):
    with pytest.raises(Overloaded) as caught:
        reply_of(stub, refusal(status, message, code, **headers))
    assert caught.value.retry_after_s == (None if wait_s is None else pytest.approx(wait_s))
    assert is_rate_limit(caught.value) is (status == 429)


def test_a_used_up_quota_is_not_waited_for(stub):
    with pytest.raises(ProviderFailed, match="402"):
        reply_of(stub, refusal(429, "You exceeded your current quota", "insufficient_quota"))


def test_a_prompt_that_the_content_filter_stops_is_refused_once(stub):
    said = "The response was filtered due to the prompt triggering content management policy"
    with pytest.raises(ProviderFailed, match="content management policy"):
        reply_of(stub, refusal(400, said, "content_filter"))
    assert len(asked(stub)) == 1


def test_a_prompt_that_is_too_long_is_told_as_such(stub):
    said = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
    with pytest.raises(PromptTooLong):
        reply_of(stub, refusal(400, said, "context_length_exceeded"))


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_call_that_the_server_itself_finds_wrong_is_tried_again_and_not_blamed_on_the_request(stub, is_stream):
    error = {
        "error": {
            "message": "Tool call validation failed: x",
            "code": "tool_use_failed",
            "type": "invalid_request_error",
        }
    }
    answer = Stream(sse([chunk({"content": "a"}), error])) if is_stream else Plain(400, json.dumps(error).encode())
    with pytest.raises(StreamBroken, match="Tool call validation failed"):
        reply_of(stub, answer, name="groq")
    assert len(asked(stub)) == 1


@pytest.mark.cases(
    ("fields", "complaint", "without"),
    [
        (
            {"sampling": Sampling(temperature=0.5)},
            "Unsupported value: 'temperature' does not support 0.5",
            "temperature",
        ),
        ({"sampling": Sampling(top_k=5)}, "top_k: Extra inputs are not permitted", "top_k"),
        ({"stop_sequences": ("END",)}, "Unsupported parameter: 'stop' is not supported with this model.", "stop"),
        ({"thinking": Thinking(effort="low")}, '"qwen3-coder" does not support thinking', "reasoning_effort"),
        ({"thinking": Thinking(effort="low")}, "Unrecognized request argument: reasoning_effort", "reasoning_effort"),
        ({"may_call_tools": False}, "tool_choice is not supported", "tool_choice"),
    ],
)
def test_an_option_that_a_model_refuses_is_left_out_and_nothing_else(stub, fields, complaint, without):
    request = Request("", REQUEST.messages, tools=REQUEST.tools, **fields)
    assert reply_of(stub, refusal(400, complaint), ANSWER, request=request).text == "one two"
    first, second = asked(stub)[-2:]
    assert without in first
    assert set(first) - set(second) >= {without}
    assert second["messages"] == first["messages"]


def test_a_shape_is_enforced_by_the_server_and_by_a_tool_where_that_is_refused(stub):
    request = Request("", REQUEST.messages, shape=SHAPE)
    given = Stream(sse(chat("", [WireCall("c1", "city", {"name": "Rome"})])))
    native, by_tool = (
        reply_of(stub, *behaviours, request=request)
        for behaviours in (
            [Stream(sse(chat('{"name": "Rome"}')))],
            [refusal(400, "This model does not support response format `json_schema`."), given],
        )
    )
    assert (native.text, by_tool.text, by_tool.tool_uses) == ('{"name": "Rome"}', '{"name": "Rome"}', ())
    assert asked(stub)[0]["response_format"]["json_schema"]["name"] == "city"
    assert "response_format" not in asked(stub)[2]
    assert asked(stub)[2]["tool_choice"]["function"]["name"] == "city"


@pytest.mark.cases(
    ("name", "tools", "is_native"),
    [("azure", (TOOL,), True), ("vllm", (TOOL,), False), ("vllm", (), True), ("deepseek", (), False)],
)
def test_a_shape_beside_tools_is_native_only_where_servers_take_both(stub, name, tools, is_native):
    reply_of(stub, ANSWER, request=Request("", REQUEST.messages, tools=tools, shape=SHAPE), name=name)
    body = asked(stub)[-1]
    assert ("response_format" in body) is is_native
    assert ("city" in [tool["function"]["name"] for tool in body.get("tools", [])]) is not is_native


def test_a_cost_that_the_server_tells_wins_over_the_table(stub):
    reply = reply_of(stub, Stream(sse(chat("one", usage={"prompt_tokens": 3, "cost": 0.0000113}))), name="openrouter")
    assert str(reply.usage.cost_usd) == "0.0000113"


def test_a_whole_answer_in_place_of_a_stream_is_read(stub):
    body = {
        "choices": [{"message": {"content": "one two", "tool_calls": None}, "finish_reason": "stop"}],
        "usage": None,
    }
    assert reply_of(stub, Plain(200, json.dumps(body).encode())).text == "one two"


def test_a_model_that_does_not_fit_the_memory_is_not_waited_for(stub):
    said = "model requires more system memory (41.2 GiB) than is available (14.8 GiB)"
    with pytest.raises(ProviderFailed, match=r"smaller model .*41\.2 GiB"):
        reply_of(stub, refusal(500, said), name="ollama")


def test_a_prompt_that_was_cut_is_told_in_the_log(stub, caplog):
    long = Request("x " * 30_000, REQUEST.messages)
    with caplog.at_level(logging.WARNING):
        for tokens in (20_000, 4_096):
            assert caplog.records == []
            usage = {"prompt_tokens": tokens, "completion_tokens": 1}
            reply = reply_of(stub, Stream(sse(chat("one", usage=usage))), request=long, name="ollama", api_key=None)
    assert "OLLAMA_CONTEXT_LENGTH" in caplog.text
    assert reply.usage.cost_usd == 0


def test_a_small_model_that_is_stuck_in_blanks_is_not_heard_out_and_a_paid_one_is(stub):
    endless = [chunk({"content": "Done."}), *(chunk({"content": " \n\n"}) for _ in range(1_000))]
    stuck = Stream(sse([*endless, chunk({}, "length"), chunk(usage={"prompt_tokens": 5, "completion_tokens": 2_001})]))
    reply = reply_of(stub, stuck)
    assert (reply.text.strip(), reply.stop_reason, len(reply.text) < 500) == ("Done.", "end_turn", True)
    paid = reply_of(stub, stuck, name="groq")
    assert (paid.stop_reason, paid.usage.output_tokens) == ("max_tokens", 2_001)


def test_a_stream_that_ends_with_done_and_no_reason_is_whole(stub):
    reply = reply_of(stub, Stream(sse([chunk({"content": "Done."})])))
    assert (reply.text, reply.stop_reason) == ("Done.", "end_turn")
