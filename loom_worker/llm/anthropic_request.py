"""A Request in the Messages API's own format. Pure.

The API refuses blank text blocks, two messages of one role in a row, a final thinking block, an error result without
content, a mark on a thinking block and more than four marks, so none of these is ever built.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from loom_worker.core.text import storable
from loom_worker.core.values.chat import ChatMessage, Request, Shape, ToolUse
from loom_worker.core.values.json import Json
from loom_worker.core.values.media import Media
from loom_worker.llm.conversation import fit_to_send
from loom_worker.llm.media import anthropic_block, blocks
from loom_worker.llm.prices import plain_name
from loom_worker.llm.sanitize import json_error, sendable
from loom_worker.llm.shaped import ANY_TOOL

CACHE_MARK = {"type": "ephemeral"}
THINKING = frozenset({"thinking", "redacted_thinking"})
POSITION_KEY = "loom_place"
"""Key that Loom adds to an opaque block: the model it came from, and its position in the reply.

Only that model accepts the block, and only in its original position: after ``text`` characters and ``calls`` tool uses
of the reply. A block without the key goes first.
"""
NO_CONTENT = "(no output)"
EARLIER = "(The conversation began earlier.)"
MOST_IMAGE_BYTES = 5 * 1024 * 1024 * 3 // 4
"""The API takes 5 MB of base64."""
GO_ON = "(Go on.)"
"""Follows a reply that is to be continued: newer models take no conversation that ends with a reply."""
THINKS: tuple[tuple[str, str], ...] = (
    (r"claude-(?:3-7|(?:opus|sonnet|haiku)-4(?:-[0-5])?(?:[-@](?:\d{8}|latest))?$)", "budget"),
    (r"claude-(?:opus|sonnet)-4-6", "both"),
    (r"claude-(?:[1-3]\b|instant)", "never"),
    (r"claude-", "adaptive"),
    (r"", "budget"),
)
"""Model-name prefix to the form in which thinking is asked for; the first match applies, other makers copy the oldest.
Models that take nothing but adaptive thinking refuse ``temperature``, ``top_p`` and ``top_k`` as well.
https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking, and recordings."""
SHAPES = re.compile(r"claude-[a-z]+-(?:4-[5-9]|[5-9]|[1-9]\d)\b")
"""Models with a mode for shapes: https://platform.claude.com/docs/en/build-with-claude/structured-outputs."""
LEAST_THINKING = 1024
"""Tokens; the API takes no smaller budget."""
ANSWER_TOKENS = 1024
"""Tokens out of ``max_tokens`` that are kept for the answer."""


def request_body(request: Request, model: str, *, needs_signature: bool = True) -> Json:
    """Return the JSON body of ``POST /v1/messages``, streaming asked for.

    Args:
        needs_signature: the provider refuses thinking that it has not signed, so it is left out.
    """
    body: Json = {
        "model": model,
        "max_tokens": request.max_tokens,
        "messages": _messages(request, model, needs_signature),
        "stream": True,
    }
    if system := [block | _mark(request) for block in _texts(request.system)]:
        body["system"] = system
    if request.tools:
        body["tools"] = [
            {"name": spec.name, "description": spec.description, "input_schema": dict(spec.input_schema)}
            for spec in request.tools
        ]
    if request.tools and not request.may_call_tools:
        body["tool_choice"] = {"type": "none"}
    if request.must_call == ANY_TOOL:
        body["tool_choice"] = {"type": "any"}
    elif request.must_call:
        body["tool_choice"] = {"type": "tool", "name": request.must_call, "disable_parallel_tool_use": True}
    if request.stop_sequences:
        body["stop_sequences"] = list(request.stop_sequences)
    form = next(form for prefix, form in THINKS if re.match(prefix, plain_name(model)))
    body |= _thinking(request, form)
    if "thinking" not in body and form != "adaptive":  # the API refuses other values than its own there
        given = {name: getattr(request.sampling, name) for name in ("temperature", "top_p", "top_k")}
        body |= {name: value for name, value in given.items() if value is not None}
    if (schema := native_schema(request.shape)) is not None:
        body = merged(body, {"output_config": {"format": {"type": "json_schema", "schema": schema}}})
    return merged(body, request.sampling.extra)


def merged(body: Json, more: Mapping[str, Any]) -> Json:
    """A body with further members; of objects that both have, the members of both."""
    both = {name: {**body[name], **value} for name, value in more.items() if isinstance(value, dict) and name in body}
    return {**body, **more, **both}


def _thinking(request: Request, form: str) -> Json:
    """How much the model is to think; nothing where it must call a tool, which excludes thinking."""
    asked = request.thinking
    if asked is None or request.must_call or form == "never":
        return {}
    if form == "adaptive" or (form == "both" and asked.effort):
        # Newer models show nothing of their thinking unless a summary is asked for.
        thinking = {"type": "adaptive", "display": "summarized"}
        return {"thinking": thinking, "output_config": {"effort": asked.nearest_effort}}
    # max_tokens is what the budget and the window leave, so the thinking and the answer share it.
    budget = min(max(asked.tokens, LEAST_THINKING), request.max_tokens - ANSWER_TOKENS)
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= LEAST_THINKING else {}


def native_schema(shape: Shape | None) -> Json | None:
    """A shape's schema with what the API enforces, the rest as words in its descriptions; None: it is of another kind.

    Objects of any members, for one, cannot be had: every object is closed.
    """
    if shape is None:
        return None
    import anthropic

    try:
        return anthropic.transform_schema(shape.schema) if _is_closed(shape.schema) else None
    except (ValueError, TypeError, AttributeError, AssertionError, RecursionError):
        return None  # the SDK's way to say that it is no schema that the API takes


def _is_closed(schema: object) -> bool:
    """True if each object in a schema names all of its members."""
    if isinstance(schema, list):
        return all(map(_is_closed, schema))
    if not isinstance(schema, dict):
        return True
    is_open = schema.get("type") == "object" and "properties" not in schema
    is_open = is_open or schema.get("additionalProperties", False) is not False or "patternProperties" in schema
    return not is_open and all(map(_is_closed, schema.values()))


def _messages(request: Request, model: str, needs_signature: bool) -> list[Json]:
    # Remembered text comes from users and tools: it has their rights, not those of the system text.
    flat = [("user", block | _mark(request)) for block in _texts(request.memory)]
    for message in fit_to_send(request.messages):
        role = "assistant" if message.role == "assistant" else "user"
        flat += [(role, block) for block in _blocks(message, request, model, needs_signature)]
    messages: list[Json] = [
        {"role": role, "content": [block for _, block in group]}
        for role, group in groupby(flat, key=lambda pair: pair[0])
    ]
    if messages and messages[0]["role"] != "user":
        messages.insert(0, {"role": "user", "content": list(_texts(EARLIER))})
    if messages and messages[-1]["role"] != "user":
        messages.append({"role": "user", "content": list(_texts(GO_ON))})
    for n in _ends(messages):
        messages[n]["content"][-1] |= _mark(request)
    return messages


def _ends(messages: list[Json]) -> set[int]:
    """Where the messages of this call end, and where those of the previous call ended, before the last reply.

    The previous call left a cache entry there. The provider looks for entries at marks and at the 20 blocks before
    each, and a reply with ten calls and their results is as many: without its own mark the entry would not be found.
    """
    replies = [n for n, message in enumerate(messages) if message["role"] == "assistant"]
    ends = {len(messages) - 1, replies[-1] - 1} if replies else {len(messages) - 1}
    return {n for n in ends if n >= 0}


def _mark(request: Request) -> Json:
    return {"cache_control": CACHE_MARK} if request.cache_marks else {}


def _blocks(message: ChatMessage, request: Request, model: str, needs_signature: bool) -> Iterator[Json]:
    if message.role == "user":
        yield from _texts(message.context)
        yield from _shown(message.text, message.media, request)
    elif message.role == "tool":
        for outcome in message.outcomes:
            content: str | list[Json] = storable(outcome.content if outcome.content.strip() else NO_CONTENT)
            content = _shown(outcome.content, outcome.media, request) if outcome.media else content
            block: Json = {"type": "tool_result", "tool_use_id": outcome.tool_use_id, "content": content}
            yield block | {"is_error": True} if outcome.is_error else block
    else:
        blocks = list(_assistant(message, model, needs_signature))
        while blocks and blocks[-1]["type"] in THINKING:
            blocks.pop()
        yield from blocks


def _assistant(message: ChatMessage, model: str, needs_signature: bool) -> Iterator[Json]:
    text_length = calls = 0
    for block in message.opaque:
        position = block.get(POSITION_KEY, {})
        is_signed = not needs_signature or block.get("type") != "thinking" or block.get("signature")
        is_known = block.get("type") in THINKING and position.get("model", model) == model
        if not is_signed or not is_known or json_error(block):
            continue
        yield from _texts(message.text[text_length : position.get("text", 0)])
        yield from map(_tool_use, message.tool_uses[calls : position.get("calls", 0)])
        yield {key: part for key, part in block.items() if key != POSITION_KEY}
        text_length, calls = position.get("text", 0), position.get("calls", 0)
    yield from _texts(message.text[text_length:])
    yield from map(_tool_use, message.tool_uses[calls:])


def _shown(text: str, media: Sequence[Media], request: Request) -> list[Json]:
    """A text with its media; an image that the API would refuse for its size stays a line."""
    fit = [each for each in media if each.pages or each.size_bytes <= MOST_IMAGE_BYTES]
    if not fit:
        return list(_texts(text))
    return blocks(text, fit, request.read_file, say=lambda each: tuple(_texts(each)), form=anthropic_block)


def _texts(*parts: str) -> Iterator[Json]:
    return ({"type": "text", "text": storable(part)} for part in parts if part.strip())


def _tool_use(use: ToolUse) -> Json:
    return {"type": "tool_use", "id": use.id, "name": use.name, "input": sendable(use.arguments)}
