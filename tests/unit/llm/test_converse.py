"""Requests in the form of Converse, checked against AWS' own description of it."""

import json

import pytest

from loom_worker.core.values.chat import (
    ChatMessage,
    Request,
    Sampling,
    Shape,
    Thinking,
    ToolOutcome,
    ToolSpec,
    ToolUse,
    object_schema,
)
from loom_worker.llm.anthropic_request import POSITION_KEY
from loom_worker.llm.bedrock import ConverseServer
from loom_worker.llm.converse import converse_body
from loom_worker.llm.shaped import ANY_TOOL
from tests.support.bedrock_wire import converse_complaint

pytest.importorskip("boto3", reason="the extra packages of bedrock are not installed")

NOVA, LLAMA, QWEN = "us.amazon.nova-lite-v1:0", "us.meta.llama3-3-70b-instruct-v1:0", "qwen.qwen3-32b-v1:0"
MISTRAL, GPT = "mistral.mistral-large-2407-v1:0", "openai.gpt-oss-120b-1:0"
FIND, SAY = ToolSpec("find", "Finds.", {"type": "object"}), ToolSpec("say", " ", {"type": "object"})
SHAPE = Shape("verdict", object_schema("ok", ok={"type": "boolean"}))
POINT = {"cachePoint": {"type": "default"}}
CALLED = ChatMessage("assistant", "I look.", tool_uses=(ToolUse("c1", "find", {"q": 1}),))
FOUND = ChatMessage("tool", outcomes=(ToolOutcome("c1", "find", "none", is_error=True),))


def built(*messages, model=NOVA, **fields):
    body = converse_body(Request("You help.", messages or (ChatMessage("user", "hello"),), **fields), model)
    assert converse_complaint(body) == ""
    return body


def shown(body):
    """The kinds of blocks of each message."""
    return [[next(iter(block)) for block in each["content"]] for each in body["messages"]]


def test_the_whole_request_is_what_aws_documents():
    asked = ChatMessage("user", "hello", context="today")
    assert built(asked, tools=(FIND, SAY), max_tokens=7, stop_sequences=("END",)) == {
        "system": [{"text": "You help."}, POINT],
        "messages": [{"role": "user", "content": [{"text": "today"}, {"text": "hello"}, POINT]}],
        "inferenceConfig": {"maxTokens": 7, "stopSequences": ["END"]},
        "toolConfig": {
            "tools": [
                {"toolSpec": {"name": "find", "description": "Finds.", "inputSchema": {"json": {"type": "object"}}}},
                {"toolSpec": {"name": "say", "inputSchema": {"json": {"type": "object"}}}},
            ]
        },
    }


def test_calls_and_their_results_are_blocks_and_a_failure_is_marked_where_the_model_takes_that():
    said = (ChatMessage("user", "1"), CALLED, FOUND)
    nova, llama = (built(*said, model=model, tools=(FIND,), cache_marks=False) for model in (NOVA, LLAMA))
    assert shown(nova) == shown(llama) == [["text"], ["text", "toolUse"], ["toolResult"]]
    use, result = nova["messages"][1]["content"][1]["toolUse"], nova["messages"][2]["content"][0]["toolResult"]
    assert use == {"toolUseId": "c1", "name": "find", "input": {"q": 1}}
    assert result == {"toolUseId": "c1", "content": [{"text": "none"}], "status": "error"}
    assert "status" not in llama["messages"][2]["content"][0]["toolResult"]


@pytest.mark.parametrize("fields", [{}, {"tools": (FIND,), "may_call_tools": False}])
def test_without_tools_that_may_be_called_former_calls_are_told_in_words(fields):
    body = built(ChatMessage("user", "1"), CALLED, FOUND, cache_marks=False, **fields)
    assert shown(body) == [["text"], ["text"], ["text"]]
    assert "toolConfig" not in body
    assert "none" in body["messages"][2]["content"][0]["text"]


def test_only_models_with_a_prompt_cache_are_sent_marks():
    said = (ChatMessage("user", "1"), CALLED, FOUND, ChatMessage("user", "2"))
    assert json.dumps(built(*said, tools=(FIND,), memory="Ann.")).count("cachePoint") == 4
    assert "cachePoint" not in json.dumps(built(*said, tools=(FIND,), model=QWEN))


@pytest.mark.cases(
    ("model", "must_call", "choice", "offered", "is_told"),
    [
        (NOVA, "find", {"tool": {"name": "find"}}, 2, False),
        (NOVA, ANY_TOOL, {"any": {}}, 2, False),
        (MISTRAL, "find", {"any": {}}, 1, False),
        (MISTRAL, ANY_TOOL, {"any": {}}, 2, False),
        (LLAMA, "find", None, 1, True),
        (LLAMA, ANY_TOOL, None, 2, True),
    ],
)
def test_a_call_is_demanded_as_the_family_understands_it(model, must_call, choice, offered, is_told):
    body = built(model=model, tools=(FIND, SAY), must_call=must_call)
    assert body["toolConfig"].get("toolChoice") == choice
    assert len(body["toolConfig"]["tools"]) == offered
    assert ("Answer with a call" in json.dumps(body["messages"])) is is_told


SIGNED = {"type": "thinking", "thinking": "hm", "signature": "s", POSITION_KEY: {"model": NOVA, "text": 0, "calls": 0}}
SEALED = {"type": "redacted_thinking", "data": "eA==", POSITION_KEY: {"model": NOVA, "text": 0, "calls": 0}}


@pytest.mark.cases(
    ("model", "opaque", "kept"),
    [
        (NOVA, SIGNED, [{"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}]),
        (NOVA, SEALED, [{"reasoningContent": {"redactedContent": "eA=="}}]),
        (NOVA, {**SIGNED, "signature": ""}, []),
        (GPT, SIGNED, []),
    ],
)
def test_signed_thinking_goes_back_to_its_model_alone(model, opaque, kept):
    said = (ChatMessage("user", "1"), ChatMessage("assistant", "so", opaque=(opaque,)), ChatMessage("user", "2"))
    assert built(*said, model=model)["messages"][1]["content"] == [*kept, {"text": "so"}]


@pytest.mark.cases(
    ("model", "fields", "own"),
    [
        (GPT, {"thinking": Thinking("high")}, {"reasoning_effort": "high"}),
        (GPT, {"thinking": Thinking(budget_tokens=5000)}, {"reasoning_effort": "medium"}),
        ("amazon.nova-2-lite-v1:0", {"thinking": Thinking("low")}, {"reasoningConfig": {"type": "enabled"}}),
        (NOVA, {"thinking": Thinking("high")}, {}),
        (NOVA, {"sampling": Sampling(top_k=5)}, {"inferenceConfig": {"topK": 5}}),
        (QWEN, {"sampling": Sampling(top_k=5, extra={"min_p": 0.1})}, {"top_k": 5, "min_p": 0.1}),
    ],
)
def test_what_only_some_models_take_is_among_the_models_own_fields(model, fields, own):
    given = built(model=model, **fields).get("additionalModelRequestFields", {})
    given.get("reasoningConfig", {}).pop("maxReasoningEffort", None)
    assert given == own


def test_sampling_is_passed_on_and_further_members_of_the_body_come_last():
    sampling = Sampling(temperature=0.0, top_p=0.5, extra={"performanceConfig": {"latency": "optimized"}})
    body = built(sampling=sampling)
    assert body["inferenceConfig"] == {"maxTokens": 4096, "temperature": 0.0, "topP": 0.5}
    assert body["performanceConfig"] == {"latency": "optimized"}


@pytest.mark.cases(
    ("model", "schema", "is_native"),
    [
        (QWEN, SHAPE.schema, True),
        (GPT, SHAPE.schema, True),
        (QWEN, {"type": "object", "additionalProperties": {"type": "number"}}, False),
        (NOVA, SHAPE.schema, False),
    ],
)
def test_a_shape_is_had_by_the_models_own_mode_or_by_a_tool(model, schema, is_native):
    asked = Request("", (ChatMessage("user", "ok?"),), shape=Shape("verdict", schema))
    body = converse_body(ConverseServer(None, None, model, True).formed(asked, model), model)
    assert converse_complaint(body) == ""
    if is_native:
        assert json.loads(body["outputConfig"]["textFormat"]["structure"]["jsonSchema"]["schema"])["required"] == ["ok"]
    assert ("toolConfig" in body, "outputConfig" in body) == (not is_native, is_native)
