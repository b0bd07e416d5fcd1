"""A Request in the Messages API's own format; pure.

The API refuses blank text blocks, two messages of one role in a row, a final thinking block, an error result without
content, a mark on a thinking block and more than four marks, so none of these is ever built.
"""

from collections.abc import Iterator
from itertools import groupby

from loom_worker.core.values.chat import ChatMessage, Request, ToolOutcome, ToolSpec, ToolUse
from loom_worker.core.values.json import Json
from loom_worker.llm.arguments import flaw_of, sendable
from loom_worker.llm.clean import clean

CACHE_MARK = {"type": "ephemeral"}
THINKING = frozenset({"thinking", "redacted_thinking"})
PLACE_KEY = "loom_place"
"""Key that Loom adds to an opaque block: the model it came from, and where in the reply it stood.

Only that model takes the block back, and only if it stands where it stood: ``text`` characters and ``calls`` tool
uses of the reply came before it. A block without the key goes first.
"""
NO_CONTENT = "(no output)"


def request_body(request: Request, model: str) -> Json:
    """Return the JSON body of ``POST /v1/messages``, streaming asked for."""
    body: Json = {
        "model": model,
        "max_tokens": request.max_tokens,
        "messages": _messages(request, model),
        "stream": True,
    }
    if system := [block | _mark(request) for block in _texts(request.system)]:
        body["system"] = system
    if request.tools:
        body["tools"] = [_tool(spec) for spec in request.tools]
    if request.tools and not request.may_call_tools:
        body["tool_choice"] = {"type": "none"}
    if request.stop_sequences:
        body["stop_sequences"] = list(request.stop_sequences)
    return body


def _messages(request: Request, model: str) -> list[Json]:
    # What is remembered was said by users and tools: it has their rights, not those of the system text.
    flat = [("user", block | _mark(request)) for block in _texts(request.memory)]
    flat += [(_role(message), block) for message in request.messages for block in _blocks(message, model)]
    messages: list[Json] = [
        {"role": role, "content": [block for _, block in group]}
        for role, group in groupby(flat, key=lambda pair: pair[0])
    ]
    if messages:
        last = messages[-1]["content"]
        last[-1] = _without_tail(messages[-1]["role"], last[-1])
    for n in _ends(messages):
        messages[n]["content"][-1] |= _mark(request)
    return messages


def _ends(messages: list[Json]) -> set[int]:
    """Where the messages of this call end, and where those of the call before ended: the user's before the last reply.

    The call before left a cache entry there. The provider looks for entries at marks and at the 20 blocks before each,
    and a reply with ten calls and their results is as many: without a mark of its own the entry would not be found.
    """
    replies = [n for n, message in enumerate(messages) if message["role"] == "assistant"]
    ends = {len(messages) - 1, replies[-1] - 1} if replies else {len(messages) - 1}
    return {n for n in ends if n >= 0}


def _role(message: ChatMessage) -> str:
    return "assistant" if message.role == "assistant" else "user"


def _mark(request: Request) -> Json:
    return {"cache_control": CACHE_MARK} if request.cache_marks else {}


def _without_tail(role: str, block: Json) -> Json:
    # A reply that the model is to go on with (pause_turn) must not end in white space.
    is_prefill = role == "assistant" and block["type"] == "text"
    return block | {"text": block["text"].rstrip()} if is_prefill else block


def _blocks(message: ChatMessage, model: str) -> Iterator[Json]:
    if message.role == "user":
        yield from _texts(message.context, message.text)
    elif message.role == "tool":
        yield from (_tool_result(outcome) for outcome in message.outcomes)
    else:
        yield from _without_last_thoughts(list(_assistant(message, model)))


def _assistant(message: ChatMessage, model: str) -> Iterator[Json]:
    text_length = calls = 0
    for block in message.opaque:
        place = block.get(PLACE_KEY, {})
        if block.get("type") not in THINKING or place.get("model", model) != model or flaw_of(block):
            continue
        yield from _texts(message.text[text_length : place.get("text", 0)])
        yield from map(_tool_use, message.tool_uses[calls : place.get("calls", 0)])
        yield {key: part for key, part in block.items() if key != PLACE_KEY}
        text_length, calls = place.get("text", 0), place.get("calls", 0)
    yield from _texts(message.text[text_length:])
    yield from map(_tool_use, message.tool_uses[calls:])


def _without_last_thoughts(blocks: list[Json]) -> list[Json]:
    while blocks and blocks[-1]["type"] in THINKING:
        blocks.pop()
    return blocks


def _texts(*parts: str) -> Iterator[Json]:
    return (_text(part) for part in parts if part.strip())


def _text(text: str) -> Json:
    return {"type": "text", "text": clean(text)}


def _tool_use(use: ToolUse) -> Json:
    return {"type": "tool_use", "id": use.id, "name": clean(use.name), "input": sendable(use.arguments)}


def _tool_result(outcome: ToolOutcome) -> Json:
    content = outcome.content if outcome.content.strip() else NO_CONTENT
    block: Json = {"type": "tool_result", "tool_use_id": outcome.tool_use_id, "content": clean(content)}
    return block | {"is_error": True} if outcome.is_error else block


def _tool(spec: ToolSpec) -> Json:
    return {"name": spec.name, "description": spec.description, "input_schema": dict(spec.input_schema)}
