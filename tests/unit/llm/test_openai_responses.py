"""Requests and replies of Responses."""

import pytest

from loom_worker.core.errors import StreamBroken
from loom_worker.core.values.chat import ChatMessage, Request, Sampling, Shape, Thinking, ToolOutcome, ToolSpec, ToolUse
from loom_worker.llm.assembly import ErrorEvent
from loom_worker.llm.openai_responses import ResponseAssembly, fits, responses_body
from loom_worker.llm.presets import preset
from tests.support.messages_wire import WireCall
from tests.support.openai_server import complaint, responses

TOOL = ToolSpec("find", "Finds.", {"type": "object", "properties": {}})
ASKED = (ChatMessage("user", "Which one?", context="Today is Monday."),)
CALLED = ChatMessage("assistant", "I look.", tool_uses=(ToolUse("call_1", "find", {"q": "x"}),))
RESULT = ChatMessage("tool", outcomes=(ToolOutcome("call_1", "find", "seven"),))


def body_of(request, model="gpt-5.2"):
    return responses_body(request, f"openai/{model}", preset("openai"))


def reply_of(*events, model="openai/gpt-5.2"):
    assembly = ResponseAssembly(model)
    for event in events:
        assembly.feed(event)
    return assembly.reply()


def test_a_conversation_is_written_as_items_and_nothing_is_stored():
    body = body_of(
        Request("You help.", (*ASKED, CALLED, RESULT), memory="The user is Ann.", tools=(TOOL,), max_tokens=9)
    )
    assert [item.get("type", item.get("role")) for item in body["input"]] == [
        *("user", "assistant", "function_call", "function_call_output")
    ]
    assert body["input"][0]["content"] == "The user is Ann.\n\nToday is Monday.\n\nWhich one?"
    assert (body["instructions"], body["store"], body["max_output_tokens"]) == ("You help.", False, 16)
    assert body["tools"][0] | {"parameters": None} == {
        "type": "function",
        "name": "find",
        "description": "Finds.",
        "parameters": None,
        "strict": False,
    }
    assert complaint(body) == ""


@pytest.mark.cases(
    ("fields", "choice"),
    [
        ({}, None),
        ({"may_call_tools": False}, "none"),
        ({"must_call": "*"}, "required"),
        ({"must_call": "find"}, {"type": "function", "name": "find"}),
    ],
)
def test_a_choice_of_tools_is_passed_on(fields, choice):
    assert body_of(Request("", ASKED, tools=(TOOL,), **fields)).get("tool_choice") == choice


def test_thinking_is_asked_for_with_its_summary_and_its_sealed_form():
    body = body_of(Request("", ASKED, thinking=Thinking(budget_tokens=3_000)))
    assert body["reasoning"] == {"effort": "medium", "summary": "auto"}
    assert body["include"] == ["reasoning.encrypted_content"]


@pytest.mark.cases(
    ("model", "reasons"),
    [("gpt-5.2", True), ("o4-mini", True), ("gpt-4.1", False), ("gpt-4o", False), ("gpt-5-chat-latest", False)],
)
def test_the_sealed_form_is_asked_for_only_of_models_that_have_one(model, reasons):
    assert ("include" in body_of(Request("", ASKED), model)) is reasons


def test_a_shape_is_a_format_of_the_text():
    schema = {"type": "object", "properties": {}}
    found = body_of(Request("", ASKED, shape=Shape("city", schema)))["text"]["format"]
    assert found == {"type": "json_schema", "name": "city", "schema": schema, "strict": False}


def test_what_this_format_lacks_is_asked_in_the_other():
    lacks = [Request("", ASKED, stop_sequences=("END",)), Request("", ASKED, sampling=Sampling(seed=1))]
    assert [*map(fits, [*lacks, Request("", ASKED)])] == [False, False, True]


def test_thinking_goes_back_unchanged_before_what_it_led_to_and_only_to_its_model():
    reply = reply_of(*responses("I look.", [WireCall("call_1", "find", {"q": "x"})], thinking="hm"))
    assert [block["thinking"] for block in reply.opaque] == ["hm"]
    said = ChatMessage("assistant", reply.text, tool_uses=reply.tool_uses, opaque=reply.opaque)
    items = body_of(Request("", (*ASKED, said, RESULT)))["input"]
    assert [item.get("type", item.get("role")) for item in items[1:]] == [
        *("reasoning", "assistant", "function_call", "function_call_output")
    ]
    summary = [{"type": "summary_text", "text": "hm"}]
    assert items[1] == {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "sealed hm"}
    other = body_of(Request("", (*ASKED, said, RESULT)), "gpt-5.1")["input"]
    assert "reasoning" not in [item.get("type") for item in other]


def test_thinking_that_nothing_follows_is_left_out():
    events = responses("", thinking="hm", incomplete="max_output_tokens")
    said = ChatMessage("assistant", reply_of(*events).text, opaque=reply_of(*events).opaque)
    assert "sealed" not in str(body_of(Request("", (*ASKED, said)))["input"])


def test_a_text_that_did_not_stream_is_read_from_its_item():
    *_, ending = responses("one two", [WireCall("c1", "find", {"q": 1})], thinking="hm")
    for event in (ending, ending["response"]):
        assembly = ResponseAssembly("openai/m")
        deltas = [type(delta).__name__ + delta.text for delta in assembly.feed(event)]
        reply = assembly.reply()
        assert (reply.text, [use.arguments for use in reply.tool_uses]) == ("one two", [{"q": 1}])
        assert deltas == ["ThinkingDeltahm", "TextDeltaone two"]


def test_a_refusal_is_the_text_and_the_reason():
    part = {"type": "refusal", "refusal": "I cannot."}
    item = {"type": "message", "content": [part]}
    events = [{"type": "response.refusal.delta", "output_index": 0, "delta": "I cannot."}]
    events.append({"type": "response.completed", "response": {"status": "completed", "output": [item]}})
    assert (reply_of(*events).text, reply_of(*events).stop_reason) == ("I cannot.", "refusal")


@pytest.mark.cases(
    "event",
    [
        {"type": "error", "code": "server_error", "message": "m"},
        {
            "type": "response.failed",
            "response": {"status": "failed", "error": {"code": "server_error", "message": "m"}},
        },
        {"object": "response", "status": "failed", "error": {"message": "m"}, "output": []},
        {"error": {"message": "m"}},
    ],
)
def test_a_failure_is_an_error(event):
    with pytest.raises(ErrorEvent):
        reply_of(event)


@pytest.mark.cases("status", ["queued", "in_progress", "cancelled"])
def test_a_response_that_has_not_ended_is_no_reply(status):
    with pytest.raises(StreamBroken):
        reply_of({"object": "response", "status": status, "error": None, "output": []})
