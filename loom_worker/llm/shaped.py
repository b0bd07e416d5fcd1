"""An answer of a given form from a server that can only be made to call a tool: the tool's arguments are the answer.

An adapter sends ``as_tool(request)``, and passes what comes through ``from_tool_events``. Pure.
"""

import json
from collections.abc import Iterator
from dataclasses import replace

from loom_worker.core.values.chat import Reply, ReplyEvent, Request, Restarted, Shape, TextDelta, ToolSpec

ANY_TOOL = "*"
"""``Request.must_call`` of a reply that must call a tool, whichever it likes."""
_DESCRIPTION = "Gives the final answer. Call it once, instead of writing the answer, as soon as all is known."


def as_tool(request: Request) -> Request:
    """The request with a tool in place of its shape, for a server that has no mode for shapes.

    Where other tools may be called, too, any of them must be. The caller of ``Model.reply`` sees to it that none of
    them has the shape's name.
    """
    if (shape := request.shape) is None:
        return request
    is_alone = not (request.tools and request.may_call_tools)
    return replace(
        request,
        shape=None,
        tools=(*request.tools, ToolSpec(shape.name, _DESCRIPTION, shape.schema)),
        may_call_tools=True,
        must_call=shape.name if is_alone else ANY_TOOL,
    )


def from_tool(reply: Reply, shape: Shape) -> Reply:
    """The reply with the arguments of the shape's tool as its text.

    Calls of other tools go before: their results are still to come, so an answer beside them is dropped.
    """
    others = tuple(use for use in reply.tool_uses if use.name != shape.name)
    if len(others) == len(reply.tool_uses):
        return reply
    if others:
        return replace(reply, tool_uses=others)
    given = next((use for use in reply.tool_uses if use.flaw is None), None)
    text = reply.text if given is None else json.dumps(given.arguments, ensure_ascii=False)
    stop = "end_turn" if reply.stop_reason == "tool_use" else reply.stop_reason
    return replace(reply, text=text, stop_reason=stop, tool_uses=())


def from_tool_events(events: Iterator[ReplyEvent], request: Request) -> Iterator[ReplyEvent]:
    """A reply to ``as_tool(request)`` as one to the request itself; what was said before the call is taken back."""
    has_text = False
    for event in events:
        if request.shape is None or not isinstance(event, Reply):
            has_text = isinstance(event, TextDelta) or (has_text and not isinstance(event, Restarted))
            yield event
            continue
        reply = from_tool(event, request.shape)
        if reply.text != event.text:
            if has_text:
                yield Restarted("the model gives its answer by a tool")
            yield TextDelta(reply.text)
        yield reply
