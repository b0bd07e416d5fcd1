"""Answers of a form through a tool, where the server has no mode for them."""

import pytest

from loom_worker.core.values.chat import (
    ChatMessage,
    Reply,
    Request,
    Restarted,
    Shape,
    TextDelta,
    ToolSpec,
    ToolUse,
    Usage,
    object_schema,
)
from loom_worker.llm.shaped import ANY_TOOL, as_tool, from_tool_events

SHAPE = Shape("answer", object_schema("n", n={"type": "integer"}))
FIND = ToolSpec("find", "Finds.", {"type": "object"})
GIVEN = ToolUse("c2", "answer", {"n": 7})
FOUND = ToolUse("c1", "find", {})


def asked(**more):
    return Request("", (ChatMessage("user", "How many?"),), shape=SHAPE, **more)


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


def test_a_request_without_a_form_and_its_reply_stay_as_they_are():
    request, reply = Request("", ()), Reply("", "tool_use", Usage(), "m", (GIVEN,))
    assert as_tool(request) is request
    assert [*from_tool_events(iter([reply]), request)] == [reply]
