"""The request's JSON, checked against the rules of the real API as well."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from loom_worker.llm.anthropic import AnthropicServer
from loom_worker.llm.anthropic_request import POSITION_KEY, request_body
from tests.support.messages_rules import complaint, signature_of

MARK = {"cache_control": {"type": "ephemeral"}}
SPEC = ToolSpec("find", "Finds things.", {"type": "object", "properties": {}})
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": signature_of("hm")}


def asked(text="hello", **fields):
    return ChatMessage("user", text, **fields)


def called(*ids, text="", opaque=()):
    return ChatMessage("assistant", text, tool_uses=tuple(ToolUse(i, "find", {"q": i}) for i in ids), opaque=opaque)


def answered(*ids, content="found", is_error=False):
    return ChatMessage("tool", outcomes=tuple(ToolOutcome(i, "find", content, is_error) for i in ids))


def built(*messages, system="You help.", model="m", **fields):
    return request_body(Request(system=system, messages=messages, **fields), model)


def contents(*messages, **fields):
    return [message["content"] for message in built(*messages, cache_marks=False, **fields)["messages"]]


def test_the_whole_request_is_what_the_api_documents():
    body = built(asked("hello", context="today"), tools=(SPEC,), max_tokens=7, stop_sequences=("END",))
    assert body == {
        "model": "m",
        "max_tokens": 7,
        "stream": True,
        "stop_sequences": ["END"],
        "system": [{"type": "text", "text": "You help.", **MARK}],
        "tools": [{"name": "find", "description": "Finds things.", "input_schema": SPEC.input_schema}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "today"}, {"type": "text", "text": "hello", **MARK}]}
        ],
    }


def test_tools_stay_listed_when_they_may_not_be_called():
    body = built(asked(), tools=(SPEC,), may_call_tools=False)
    assert body["tool_choice"] == {"type": "none"}
    assert [tool["name"] for tool in body["tools"]] == ["find"]


def test_a_request_without_tools_says_nothing_of_tools():
    assert not {"tools", "tool_choice"} & built(asked(), may_call_tools=False).keys()


def test_without_cache_marks_nothing_is_marked():
    assert "cache_control" not in json.dumps(built(asked(), tools=(SPEC,), cache_marks=False))


def marked(body):
    """Each block of each message: True where it bears a mark."""
    return [["cache_control" in block for block in message["content"]] for message in body["messages"]]


def test_the_first_call_marks_its_last_block_alone():
    assert marked(built(asked("hello", context="today"))) == [[False, True]]


def test_the_end_of_the_former_call_and_of_this_one_are_marked_and_no_other_message():
    body = built(asked("1"), called("a", "b"), answered("a", "b"), ChatMessage("assistant", "so"), asked("2"))
    assert marked(body) == [[False], [False, False], [False, True], [False], [True]]


def test_every_call_marks_where_the_one_before_it_had_its_last_mark():
    said = [
        asked("1"),
        called("a", text="look"),
        answered("a"),
        called("b"),
        answered("b"),
        ChatMessage("assistant", "x"),
    ]
    said.append(asked("2"))
    calls = [marked(built(*said[:end])) for end in (1, 3, 5, 7)]
    for former, latter in itertools.pairwise(calls):
        assert latter[len(former) - 1][-1]


def test_a_reply_to_go_on_with_is_followed_by_a_user():
    body = built(asked("1"), ChatMessage("assistant", "so far"))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert marked(body) == [[True], [False], [True]]


def test_memory_is_a_block_of_its_own_at_the_head_of_the_messages_and_not_in_the_system_text():
    body = built(asked("1", context="Today."), ChatMessage("assistant", "2"), asked("3"), memory="Known: Ann.")
    assert body["system"] == [{"type": "text", "text": "You help.", **MARK}]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert [block["text"] for block in body["messages"][0]["content"]] == ["Known: Ann.", "Today.", "1"]
    assert body["messages"][0]["content"][0] == {"type": "text", "text": "Known: Ann.", **MARK}
    assert complaint(body) is None


def test_memory_costs_no_mark_more_than_the_api_allows():
    body = built(asked("1"), called("a"), answered("a"), asked("2"), memory="Known: Ann.")
    assert json.dumps(body).count("cache_control") == 4
    assert complaint(body) is None


def test_a_blank_memory_is_left_out():
    assert [block["text"] for block in built(asked("x"), memory="\n")["messages"][0]["content"]] == ["x"]


def test_a_blank_system_text_is_left_out_beside_a_memory():
    assert "system" not in built(asked(), system=" ", memory="known")


def test_results_follow_in_order_and_errors_are_told_apart():
    outcomes = (ToolOutcome("a", "find", "1"), ToolOutcome("b", "find", "no", is_error=True))
    content = contents(asked(), called("a", "b"), ChatMessage("tool", outcomes=outcomes))[2]
    assert content == [
        {"type": "tool_result", "tool_use_id": "a", "content": "1"},
        {"type": "tool_result", "tool_use_id": "b", "content": "no", "is_error": True},
    ]


def test_messages_of_one_role_in_a_row_become_one():
    body = built(asked("one"), asked("two"), called("a"), answered("a"), asked("three"))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert [block["type"] for block in body["messages"][2]["content"]] == ["tool_result", "text"]


@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
def test_blank_texts_are_never_sent(blank):
    body = built(asked("x", context=blank), ChatMessage("assistant", blank), asked(blank), asked("y"), system=blank)
    assert "system" not in body
    assert [block["text"] for block in body["messages"][0]["content"]] == ["x", "y"]


def test_an_error_without_output_still_has_content():
    body = built(asked(), called("a"), answered("a", content="", is_error=True))
    assert body["messages"][2]["content"][0]["content"]
    assert complaint(body) is None


def shown_calls(*messages):
    """Names and ids of the calls, and ids of the results, message by message."""
    return [
        [
            (block.get("id") or block.get("tool_use_id"), block.get("name"))
            for block in content
            if block["type"] != "text"
        ]
        for content in contents(*messages)
    ]


def test_a_result_is_with_its_call_wherever_it_was_stored():
    lost, late = called("a", "b"), answered("b", "a", "of nobody")
    assert shown_calls(asked(), lost, asked("more"), late) == [
        [],
        [("a", "find"), ("b", "find")],
        [("a", None), ("b", None)],
    ]


def test_a_call_without_a_result_gets_one_that_is_an_error():
    assert contents(asked(), called("a"), asked("more"))[2][0]["is_error"]


def test_an_id_of_an_earlier_turn_is_made_another_one_with_its_result():
    turns = (asked("1"), called("call_0"), answered("call_0"), asked("2"), called("call_0"), answered("call_0"))
    assert [calls for calls in shown_calls(*turns) if calls] == [
        [("call_0", "find")],
        [("call_0", None)],
        [("call_0_2", "find")],
        [("call_0_2", None)],
    ]


def test_a_conversation_that_lost_its_beginning_begins_with_a_user():
    assert built(ChatMessage("assistant", "so"), asked("2"))["messages"][0]["role"] == "user"


def test_thinking_goes_back_unchanged_before_text_and_calls():
    content = contents(asked(), called("a", text="Let me see.", opaque=(THOUGHT,)), answered("a"))[1]
    assert content[0] == THOUGHT
    assert [block["type"] for block in content] == ["thinking", "text", "tool_use"]


def test_thinking_goes_back_to_where_it_stood():
    later = {"type": "redacted_thinking", "data": "xyz", POSITION_KEY: {"model": "m", "text": 3, "calls": 1}}
    content = contents(asked(), called("a", "b", text="one two", opaque=(THOUGHT, later)), answered("a", "b"))[1]
    shown = [block.get("text") or block.get("id") or block["type"] for block in content]
    assert shown == ["thinking", "one", "a", "redacted_thinking", " two", "b"]
    assert POSITION_KEY not in json.dumps(content)


def test_thinking_of_another_model_or_provider_is_left_out():
    foreign = ({**THOUGHT, POSITION_KEY: {"model": "other", "text": 0, "calls": 0}}, {"type": "scratch"})
    content = contents(asked(), called("a", opaque=foreign), answered("a"))[1]
    assert [block["type"] for block in content] == ["tool_use"]


def test_a_message_that_is_all_thinking_is_left_out():
    body = built(asked("x"), ChatMessage("assistant", opaque=(THOUGHT,)), asked("y"))
    assert [message["role"] for message in body["messages"]] == ["user"]


ENABLED = {"type": "enabled", "budget_tokens": 2000}
ADAPTIVE = {"type": "adaptive", "display": "summarized"}


@pytest.mark.cases(
    ("model", "asked_for", "thinking", "effort"),
    [
        ("claude-3-7-sonnet-20250219", Thinking(budget_tokens=2000), ENABLED, None),
        ("us.anthropic.claude-sonnet-4-20250514-v1:0", Thinking(budget_tokens=2000), ENABLED, None),
        ("claude-opus-4-6", Thinking("low"), ADAPTIVE, "low"),
        ("claude-opus-4-7", Thinking(budget_tokens=2000), ADAPTIVE, "low"),
        ("claude-sonnet-5-5", Thinking(budget_tokens=20_000), ADAPTIVE, "high"),
        ("global.anthropic.claude-opus-5", Thinking("medium"), ADAPTIVE, "medium"),
        ("claude-haiku-4-5", Thinking("low"), {"type": "enabled", "budget_tokens": 2048}, None),
        ("claude-haiku-4-5", Thinking(budget_tokens=50_000), {"type": "enabled", "budget_tokens": 8976}, None),
        ("kimi-k2", Thinking(budget_tokens=2000), ENABLED, None),
        ("claude-3-5-haiku-latest", Thinking("high"), None, None),
    ],
)
def test_thinking_is_asked_for_in_the_form_of_the_family_and_leaves_room_for_the_answer(
    model, asked_for, thinking, effort
):
    body = built(asked(), model=model, thinking=asked_for, max_tokens=10_000)
    assert (body.get("thinking"), body.get("output_config", {}).get("effort")) == (thinking, effort)


@pytest.mark.parametrize("fields", [{"must_call": "find"}, {"max_tokens": 2047}])
def test_thinking_is_left_out_beside_a_demanded_call_and_where_nothing_would_be_left_for_the_answer(fields):
    body = built(asked(), tools=(SPEC,), model="claude-haiku-4-5", thinking=Thinking("low"), **fields)
    assert "thinking" not in body


def test_a_way_of_choosing_words_is_passed_on_unless_the_model_thinks_or_always_may():
    sampling = Sampling(temperature=0.0, top_p=0.5, top_k=3, seed=1, extra={"service_tier": "auto"})
    body = built(asked(), model="claude-haiku-4-5", sampling=sampling)
    assert [body.get(name) for name in ("temperature", "top_p", "top_k", "seed")] == [0.0, 0.5, 3, None]
    thinks = built(asked(), model="claude-haiku-4-5", sampling=sampling, thinking=Thinking("low"))
    new = built(asked(), model="claude-opus-4-7", sampling=sampling)
    assert not {"temperature", "top_p", "top_k"} & (thinks.keys() | new.keys())
    assert body["service_tier"] == thinks["service_tier"] == "auto"


def test_further_members_come_last_and_join_objects_that_are_there():
    extra = Sampling(extra={"output_config": {"effort": "max"}, "max_tokens": 9})
    body = built(asked(), model="claude-opus-5", thinking=Thinking("low"), sampling=extra, shape=VERDICT)
    assert (body["output_config"]["effort"], body["max_tokens"]) == ("max", 9)
    assert body["output_config"]["format"]["type"] == "json_schema"


VERDICT = Shape("verdict", object_schema("n", n={"type": "integer", "minimum": 1}))
OPEN = Shape("counts", {"type": "object", "additionalProperties": {"type": "integer"}})


@pytest.mark.cases(
    ("model", "shape", "is_native"),
    [
        ("claude-sonnet-4-5", VERDICT, True),
        ("eu.anthropic.claude-opus-4-5-20251101-v1:0", VERDICT, True),
        ("claude-sonnet-4-20250514", VERDICT, False),
        ("claude-sonnet-4-5", OPEN, False),
        ("claude-sonnet-4-5", Shape("x", object_schema(x={"type": ["string", "null"]})), False),
        ("claude-sonnet-4-5", Shape("x", object_schema(x={"type": "array", "items": {"type": "object"}})), False),
    ],
)
def test_a_shape_is_had_natively_where_the_model_and_the_schema_allow_that_and_else_by_a_tool(model, shape, is_native):
    body = built_by_server(Request("", (asked(),), shape=shape), model)
    assert ("output_config" in body, "tools" in body, "tool_choice" in body) == (
        is_native,
        not is_native,
        not is_native,
    )


def built_by_server(request, model):
    server = AnthropicServer("k", None)
    return server.body(server.formed(request, model), model)


texts = st.text(max_size=5)


ids = st.sampled_from(["a", "b", "call.1", "", "x" * 300])
names = st.one_of(st.sampled_from(["find", "", "functions.find<|channel|>", "f" * 276]), texts)
opaque = st.sampled_from(
    [THOUGHT, {**THOUGHT, "signature": ""}, {"type": "thinking", "thinking": "hm"}, {"type": "scratch"}]
)
uses = st.builds(ToolUse, ids, names, st.dictionaries(texts, texts, max_size=2))
any_message = st.one_of(
    st.builds(asked, texts, context=texts),
    st.builds(
        ChatMessage,
        st.just("assistant"),
        texts,
        tool_uses=st.lists(uses, max_size=3).map(tuple),
        opaque=st.tuples(opaque),
    ),
    st.builds(
        lambda outcomes: ChatMessage("tool", outcomes=tuple(outcomes)),
        st.lists(st.builds(ToolOutcome, ids, names, texts, st.booleans()), max_size=3),
    ),
)
conversations = st.lists(any_message, max_size=8).map(lambda messages: (asked("x"), *messages, asked("y")))


@settings(deadline=None)
@given(conversations, texts, texts, st.booleans())
def test_no_conversation_becomes_a_request_that_the_api_refuses(messages, system, memory, cache_marks):
    body = built(*messages, system=system, memory=memory, cache_marks=cache_marks, tools=(SPEC,))
    assert complaint(body) is None
    json.dumps(body, ensure_ascii=False).encode()


def test_a_lone_surrogate_in_a_tool_result_does_not_reach_the_encoder():
    content = contents(asked("\ud800"), called("a"), answered("a", content="x\udfff\0"))
    assert content[0][0]["text"] == "�"
    assert content[2][0]["content"] == "x��"
