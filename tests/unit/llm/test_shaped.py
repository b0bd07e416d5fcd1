"""Answers of a form through a tool, where the server has no mode for them."""

from dataclasses import replace

import pytest

from loom_worker.core.values.chat import Reply, Request, Restarted, Shape, TextDelta, ToolSpec, ToolUse, Usage
from loom_worker.core.values.chat import object_schema as objects
from loom_worker.llm.shaped import ANY_TOOL, as_tool, from_tool_events

SHAPE = Shape("answer", objects("n", n={"type": "integer"}))
FIND = ToolSpec("find", "Finds.", {"type": "object"})
GIVEN = ToolUse("c2", "answer", {"n": 7})
FOUND = ToolUse("c1", "find", {})


def asked(**more):
    return Request("", (), shape=SHAPE, **more)


@pytest.mark.cases(
    ("more", "demanded", "offered"),
    [
        ({}, "answer", ["answer"]),
        ({"tools": (FIND,)}, ANY_TOOL, ["find", "answer"]),
        ({"tools": (FIND,), "may_call_tools": False}, "answer", ["find", "answer"]),
    ],
)
def test_the_tool_of_the_answer_is_demanded_unless_others_may_be_called_first(more, demanded, offered):
    form = as_tool(asked(**more))
    assert (form.must_call, [tool.name for tool in form.tools]) == (demanded, offered)
    assert (form.shape, form.may_call_tools, form.tools[-1].input_schema) == (None, True, SHAPE.schema)


@pytest.mark.cases(
    ("text", "uses", "left"),
    [
        ("", (GIVEN,), '{"n": 7}'),
        ("I think it is: ", (GIVEN,), '{"n": 7}'),
        ('{"n": 8}', (), '{"n": 8}'),
        ("I look.", (FOUND, GIVEN), "I look."),
        ("Hm", (ToolUse("c2", "answer", {}, flaw="cut"),), "Hm"),
    ],
)
def test_the_text_of_the_reply_is_the_answer_and_what_streamed_of_it(text, uses, left):
    given = Reply(text, "tool_use" if uses else "end_turn", Usage(), "m", uses)
    events = [*from_tool_events(iter([*([TextDelta(text)] if text else []), given]), asked())]
    last = max((n for n, event in enumerate(events) if isinstance(event, Restarted)), default=-1)
    streamed = "".join(event.text for event in events[last + 1 :] if isinstance(event, TextDelta))
    assert (events[-1].text, streamed) == (left, left)
    assert events[-1].tool_uses == ((FOUND,) if FOUND in uses else ())
    assert events[-1].stop_reason == ("tool_use" if FOUND in uses else "end_turn")


def test_names_that_providers_refuse_in_tools_are_the_clients_own_in_the_answer():
    shape = Shape("answer", {**objects("für wen", **{"für wen": {}}), "anyOf": [{"required": ["für wen"]}]})
    request = replace(asked(), shape=shape)
    [tool] = as_tool(request).tools
    [name] = tool.input_schema["properties"]
    assert (name.isascii(), "anyOf" in tool.input_schema, "anyOf" in tool.description) == (True, False, True)
    given = Reply("", "tool_use", Usage(), "m", (ToolUse("c1", "answer", {name: "Ann"}),))
    assert [*from_tool_events(iter([given]), request)][-1].text == '{"für wen": "Ann"}'
