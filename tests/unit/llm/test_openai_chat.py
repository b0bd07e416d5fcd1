"""Requests and replies of Chat Completions, in the forms that servers of this format differ in."""

import json
from decimal import Decimal

import pytest

from loom_worker.core.errors import StreamBroken
from loom_worker.core.values.chat import ChatMessage, Request, Sampling, Shape, Thinking, ToolOutcome, ToolSpec, ToolUse
from loom_worker.llm.assembly import ErrorEvent
from loom_worker.llm.openai_chat import ChatAssembly, Tagged, chat_body, usage_of
from loom_worker.llm.presets import preset
from tests.support.openai_server import chunk, complaint

TOOL = ToolSpec("find", "Finds.", {"type": "object", "properties": {}})
LONG = ToolSpec("find_" * 20, "Finds.", {"type": "object"})
CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
CONVERSATION = (
    ChatMessage("user", "Which one?", context="Today is Monday."),
    ChatMessage(
        "assistant", "I look.", tool_uses=(ToolUse("toolu_1", "find", {"q": "x"}), ToolUse("toolu_2", "find", {}))
    ),
    ChatMessage("tool", outcomes=(ToolOutcome("toolu_2", "find", " "), ToolOutcome("toolu_1", "find", "seven"))),
    ChatMessage("user", "And now?"),
)


def body_of(request, name="vllm", model="m"):
    return chat_body(request, f"{name}/{model}", preset(name))


def test_a_conversation_is_written_in_order_with_its_memory_first():
    body = body_of(Request("You help.", CONVERSATION, memory="The user is Ann.", tools=(TOOL,), max_tokens=9))
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert body["messages"][1]["content"] == "The user is Ann.\n\nToday is Monday.\n\nWhich one?"
    assert [(each["tool_call_id"], each["content"]) for each in body["messages"][3:5]] == [
        ("toolu_1", "seven"),
        ("toolu_2", "(no output)"),
    ]
    assert (body["max_tokens"], body["stream_options"]) == (9, {"include_usage": True})
    assert "tool_choice" not in body


def test_no_message_is_blank_and_none_is_lost_at_either_end():
    assistant = ChatMessage("assistant", " ", tool_uses=(ToolUse("c", "find", {}),))
    body = body_of(Request("", (ChatMessage("assistant", "Hi."), ChatMessage("user", " "), assistant)))
    assert complaint(body) == ""
    assert body["messages"][0]["role"] == "user"
    called = next(message for message in body["messages"] if message.get("tool_calls"))
    assert called["content"] in (None, "Hi.")


def test_a_reply_that_is_to_be_continued_is_followed_by_the_user():
    said = (ChatMessage("user", "Hi."), ChatMessage("assistant", "One"), ChatMessage("assistant", "two"))
    roles = [(message["role"], message["content"]) for message in body_of(Request("", said))["messages"]]
    assert roles == [("user", "Hi."), ("assistant", "One\n\ntwo"), ("user", "(Go on.)")]


@pytest.mark.cases("name", ["openai", "mistral", "gemini", "deepseek", "ollama", "groq"])
def test_calls_of_another_makers_history_fit_every_preset(name):
    made = ToolUse("toolu_" + "x" * 50, "find", {"q": "\ud800", "n": float("inf")})
    outcome = ToolOutcome(made.id, "find", "seven")
    thought = {
        "type": "thinking",
        "thinking": "hm",
        "signature": "s",
        "loom_place": {"model": "claude", "text": 0, "calls": 0},
    }
    said = ChatMessage("assistant", "", tool_uses=(made,), opaque=(thought,))
    asked = (ChatMessage("user", "a"), said, ChatMessage("tool", outcomes=(outcome,)), ChatMessage("user", "b"))
    body = body_of(Request("", asked, tools=(TOOL,)), name)
    json.dumps(body, allow_nan=False).encode()
    assert complaint(body) == ""
    assert "hm" not in json.dumps(body)


def test_mistral_is_told_results_before_the_user_speaks():
    body = body_of(Request("", CONVERSATION), "mistral")
    assert [message["role"] for message in body["messages"][-3:]] == ["tool", "assistant", "user"]
    assert "stream_options" not in body
    assert all(len(message["tool_call_id"]) == 9 for message in body["messages"] if message["role"] == "tool")


def test_gemini_and_deepseek_get_what_they_demand_beside_calls_of_others():
    gemini, deepseek = (body_of(Request("", CONVERSATION), name)["messages"][1] for name in ("gemini", "deepseek"))
    signatures = [call.get("extra_content") for call in gemini["tool_calls"]]
    assert signatures == [{"google": {"thought_signature": "skip_thought_signature_validator"}}, None]
    assert deepseek["reasoning_content"] == ""


@pytest.mark.cases(
    ("fields", "choice"),
    [
        ({}, None),
        ({"may_call_tools": False}, "none"),
        ({"must_call": "*"}, "required"),
        ({"must_call": "find"}, {"type": "function", "function": {"name": "find"}}),
    ],
)
def test_a_choice_of_tools_is_passed_on_where_it_is_obeyed(fields, choice):
    request = Request("", CONVERSATION[:1], tools=(TOOL, LONG), **fields)
    assert body_of(request).get("tool_choice") == choice
    ollama = body_of(request, "ollama")
    assert "tool_choice" not in ollama
    offered = [tool["function"]["name"] for tool in ollama.get("tools", [])]
    assert len(offered) == (0 if choice == "none" else 1 if isinstance(choice, dict) else 2)


def test_a_long_name_of_a_tool_is_shortened_and_found_again():
    body = body_of(Request("", CONVERSATION[:1], tools=(LONG,), must_call=LONG.name))
    name = body["tools"][0]["function"]["name"]
    assert len(name) == 64
    assert body["tool_choice"]["function"]["name"] == name
    (use,) = reply_of(
        chunk({"tool_calls": [{"id": "c", "function": {"name": name, "arguments": "{}"}}]}, "stop")
    ).tool_uses
    assert use.name == LONG.name


@pytest.mark.cases(
    ("schema", "is_strict"),
    [
        (CLOSED, True),
        ({**CLOSED, "required": []}, False),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, False),
        ({**CLOSED, "properties": {"a": {"type": "object"}}}, False),
        ({**CLOSED, "properties": {"a": {"type": "array", "items": {"oneOf": []}}}}, False),
        ({**CLOSED, "properties": {"a": {"anyOf": [CLOSED, {"type": "null"}]}}}, True),
    ],
)
def test_a_shape_is_strict_only_where_its_schema_allows_that(schema, is_strict):
    body = body_of(Request("", CONVERSATION[:1], shape=Shape("city", schema)))
    wanted = {"name": "city", "schema": schema, "strict": is_strict}
    assert body["response_format"] == {"type": "json_schema", "json_schema": wanted}


def test_sampling_is_passed_on_where_it_is_known_and_what_is_extra_comes_last():
    chosen = Sampling(temperature=0.5, top_p=0.9, top_k=5, seed=3, extra={"max_tokens": 7, "min_p": 0.1})
    request = Request("", CONVERSATION[:1], sampling=chosen, stop_sequences=("END",))
    body = body_of(request)
    assert {name: body[name] for name in ("temperature", "top_p", "top_k", "seed", "max_tokens", "min_p", "stop")} == {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "seed": 3,
        "max_tokens": 7,
        "min_p": 0.1,
        "stop": ["END"],
    }
    mistral = body_of(request, "mistral")
    assert (mistral["random_seed"], "top_k" in mistral) == (3, False)


def test_the_cache_key_is_the_same_for_a_session_and_no_name_of_it():
    first, second = (body_of(Request("", CONVERSATION[:1], source=f"ses_{n}"), "openai") for n in (1, 2))
    assert first["prompt_cache_key"] != second["prompt_cache_key"]
    assert "ses_1" not in first["prompt_cache_key"]
    assert "prompt_cache_key" not in body_of(Request("", CONVERSATION[:1], source="ses_1"))


def reply_of(*events, name="vllm/m"):
    assembly = ChatAssembly(name)
    for event in (*events, {"type": "done"}):
        assembly.feed(event)
    return assembly.reply()


def told(*calls, finish="tool_calls"):
    """A reply whose calls come in these pieces."""
    return reply_of(*(chunk({"tool_calls": [call]}) for call in calls), chunk({}, finish)).tool_uses


def fn(name=None, arguments=None, **fields):
    return {**fields, "function": {"name": name, "arguments": arguments}}


@pytest.mark.cases(
    ("calls", "wanted"),
    [
        ([fn("a", "{}", id="1"), fn("b", "{}", id="2")], [("1", "a", {}), ("2", "b", {})]),
        ([fn("a", "{}", index=0, id="1"), fn("b", "{}", index=0, id="2")], [("1", "a", {}), ("2", "b", {})]),
        ([fn("a", "{}", index=0, id=""), fn("b", "{}", index=0, id="")], [("", "a", {}), ("", "b", {})]),
        ([fn("a", "", index=0), fn("b", "", index=0)], [("", "a", {}), ("", "b", {})]),
        ([fn("", "", index=0), fn("a", "{}", index=0)], [("", "a", {})]),
        ([fn("fi", "", index=0, id="1"), fn("nd", "", index=0), fn(None, "{}", index=0)], [("1", "find", {})]),
        ([fn("a", '{"q"', index=0, id="1"), fn("a", ":1}", index=0, id="1")], [("1", "a", {"q": 1})]),
        ([fn("a", {"q": 1}, id="1"), fn("b", {"q": 2})], [("1", "a", {"q": 1}), ("", "b", {"q": 2})]),
        (
            [fn("a", '{"q"', index=1, id="1"), fn("b", "{}", index=2, id="2"), fn(None, ":1}", index=1)],
            [("1", "a", {"q": 1}), ("2", "b", {})],
        ),
        ([fn("functions.a", None, id="1")], [("1", "a", {})]),
    ],
)
def test_calls_are_told_apart_however_they_are_numbered(calls, wanted):
    assert [(use.id, use.name, use.arguments) for use in told(*calls)] == wanted


def test_a_function_call_of_the_older_format_is_a_call():
    whole = chunk() | {"choices": [{"message": {"function_call": {"name": "f", "arguments": '{"a":1}'}}}]}
    reply = reply_of(whole)
    assert [(use.name, use.arguments) for use in reply.tool_uses] == [("f", {"a": 1})]
    assert reply.stop_reason == "tool_use"


def test_a_second_choice_is_nobodys():
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "length"}]}
    assert reply_of(chunk({"content": "yes"}), other, chunk({}, "stop")).text == "yes"


@pytest.mark.cases("pieces", [["<think>hm</think>\n\nyes"], ["\n", "<th", "ink>h", "m</", "think>", "\n", "yes"]])
def test_a_leading_tag_is_thinking_and_goes_back_only_to_its_model(pieces):
    reply = reply_of(*(chunk({"content": piece}) for piece in pieces), chunk({}, "stop"))
    assert (reply.text, [block["thinking"] for block in reply.opaque]) == ("yes", ["hm"])
    said = ChatMessage("assistant", reply.text, opaque=reply.opaque)
    asked = Request("", (ChatMessage("user", "a"), said, ChatMessage("user", "b")))
    assert [body_of(asked, model=model)["messages"][1].get("reasoning") for model in ("m", "n")] == ["hm", None]


@pytest.mark.cases("text", ["<thin", "a <think>b</think>", " x", "<b>bold</b>", ""])
def test_a_text_that_only_looks_like_a_tag_stays_text(text):
    tagged = Tagged()
    pieces = [*(piece for each in text for piece in tagged.feed(each)), *tagged.feed("", is_last=True)]
    assert "".join(piece for is_thinking, piece in pieces if not is_thinking) == text


DETAILS = [
    {"type": "reasoning.text", "text": "h", "index": 0, "signature": None},
    {"type": "reasoning.text", "text": "m", "index": 0, "signature": "s"},
    {"type": "reasoning.encrypted", "data": "x", "index": 1},
]


@pytest.mark.cases(
    ("name", "deltas", "member", "value"),
    [
        ("deepseek", [{"reasoning_content": "h"}, {"reasoning_content": "m"}], "reasoning_content", "hm"),
        ("ollama", [{"reasoning": "hm"}], "reasoning", "hm"),
        ("groq", [{"reasoning": "hm"}], "reasoning", None),
        (
            "openrouter",
            [{"reasoning": each.get("text"), "reasoning_details": [each]} for each in DETAILS],
            "reasoning_details",
            [{"type": "reasoning.text", "text": "hm", "index": 0, "signature": "s"}, DETAILS[2]],
        ),
        (
            "mistral",
            [{"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}],
            "content",
            [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "yes"}],
        ),
    ],
)
def test_thinking_goes_back_in_the_makers_own_member(name, deltas, member, value):
    reply = reply_of(*map(chunk, deltas), chunk({"content": "yes"}, "stop"), name=f"{name}/m")
    assert (reply.text, reply.opaque[0]["thinking"]) == ("yes", "hm")
    said = ChatMessage("assistant", reply.text, opaque=reply.opaque)
    back = body_of(Request("", (ChatMessage("user", "a"), said, ChatMessage("user", "b"))), name)["messages"][1]
    assert back.get(member) == value


def test_the_signature_of_a_gemini_call_goes_back_with_it():
    signed = {"google": {"thought_signature": "sig"}}
    reply = reply_of(
        chunk({"tool_calls": [fn("find", "{}", id="c1", extra_content=signed), fn("find", "{}", id="c2")]}, "stop"),
        name="gemini/m",
    )
    said = ChatMessage("assistant", reply.text, tool_uses=reply.tool_uses, opaque=reply.opaque)
    calls = body_of(Request("", (ChatMessage("user", "a"), said)), "gemini")["messages"][1]["tool_calls"]
    assert [call.get("extra_content") for call in calls] == [signed, None]


@pytest.mark.cases(
    ("usage", "counts", "cost"),
    [
        (
            {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}},
            (6, 2, 4, 0),
            None,
        ),
        ({"prompt_tokens": 10, "completion_tokens": 2, "prompt_cache_hit_tokens": 4}, (6, 2, 4, 0), None),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 3}},
            (4, 0, 2, 3),
            None,
        ),
        ({"prompt_tokens": 10120, "completion_tokens": 1499, "total_tokens": 14428}, (10120, 4308, 0, 0), None),
        ({"input_tokens": 5, "output_tokens": 2, "input_tokens_details": None}, (5, 2, 0, 0), None),
        ({"prompt_tokens": None, "completion_tokens": "x", "cost": "free"}, (0, 0, 0, 0), None),
        ({"prompt_tokens": 1, "cost": 4.1400000000000003e-05}, (1, 0, 0, 0), "0.000041400000000000003"),
        ({"prompt_tokens": 1, "cost": 0}, (1, 0, 0, 0), "0"),
        ({"prompt_tokens": 1, "cost_in_usd_ticks": 2709000}, (1, 0, 0, 0), "0.0002709"),
    ],
)
def test_usage_is_counted_once_and_its_cost_is_exact(usage, counts, cost):
    found = usage_of(usage)
    assert (found.input_tokens, found.output_tokens, found.cache_read_tokens, found.cache_write_tokens) == counts
    assert found.cost_usd == (None if cost is None else Decimal(cost))


def test_usage_may_come_in_each_chunk_and_anywhere():
    every = [chunk({"content": "a"}, usage={"prompt_tokens": 9, "completion_tokens": n}) for n in (1, 2)]
    groq = chunk({}, "stop", x_groq={"usage": {"completion_tokens": 3}})
    assert (reply_of(*every, groq).usage.input_tokens, reply_of(*every, groq).usage.output_tokens) == (9, 3)


def test_a_refusal_in_its_own_member_is_the_text():
    reply = reply_of(chunk({"refusal": "I "}), chunk({"refusal": "cannot."}), chunk({}, "stop"))
    assert (reply.text, reply.stop_reason) == ("I cannot.", "refusal")


@pytest.mark.cases("reason", ["error", "insufficient_system_resource", "function_call_filter: MALFORMED_FUNCTION_CALL"])
def test_a_reply_that_the_server_broke_off_is_none(reason):
    with pytest.raises(StreamBroken):
        reply_of(chunk({"content": "a"}), chunk({}, reason))


@pytest.mark.cases(
    "event",
    [
        {"error": {"message": "m", "code": 500}},
        {"object": "error", "message": "m"},
        {"detail": "m"},
        chunk() | {"choices": [{"error": {"message": "m"}, "delta": {}}]},
    ],
)
def test_an_error_is_read_wherever_it_stands(event):
    with pytest.raises(ErrorEvent):
        ChatAssembly("vllm/m").feed(event)


@pytest.mark.cases("event", [chunk() | {"choices": [1]}, chunk({"tool_calls": 3}), chunk({"content": [1]})])
def test_what_has_not_the_formats_shape_is_a_broken_stream(event):
    with pytest.raises(StreamBroken):
        ChatAssembly("vllm/m").feed(event)


def test_thinking_is_asked_for_where_it_was_wanted():
    body = body_of(Request("", CONVERSATION[:1], thinking=Thinking(effort="low")), "xai")
    assert body["reasoning_effort"] == "low"
