"""What Ollama sends and reads where it speaks the Messages API, as its converter does it (anthropic/anthropic.go)."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tests.support.messages_server import Plain
from tests.support.messages_wire import WireCall, block, sse

Json = dict[str, Any]


def stream(
    text: str = "",
    calls: Sequence[WireCall] = (),
    *,
    thinking: str = "",
    stop_reason: str | None = "end_turn",
    input_tokens: int = 26,
) -> bytes:
    """A whole reply: no pings, no signatures, a call's arguments in one piece, a guess of the input tokens first."""
    blocks = [*_thinking(thinking), *_text(text)]
    events = [_start()]
    for n, (opening, deltas) in enumerate([*blocks, *map(_call, calls)]):
        events += block(n, opening, deltas)
    delta = {"stop_reason": "tool_use" if calls else stop_reason} if stop_reason else {}
    usage = {"input_tokens": input_tokens, "output_tokens": 7}
    return sse([*events, {"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}])


def _start() -> Json:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "qwen3-coder", "content": []}
    return {"type": "message_start", "message": {**message, "usage": {"input_tokens": 11, "output_tokens": 0}}}


def _thinking(thinking: str) -> Iterator[tuple[Json, list[Json]]]:
    if thinking:
        yield {"type": "thinking", "thinking": ""}, [{"type": "thinking_delta", "thinking": thinking}]


def _text(text: str) -> Iterator[tuple[Json, list[Json]]]:
    if text:
        yield {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in text.split("|")]


def _call(call: WireCall) -> tuple[Json, list[Json]]:
    opening = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
    return opening, [{"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}]


def refusal(status: int, kind: str, message: str) -> Plain:
    """An error as Ollama answers it."""
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return Plain(status, json.dumps(body).encode())


def as_read(body: Json) -> list[Json]:
    """The conversation as Ollama's own chat format has it: texts joined as they are, results before texts."""
    system = "".join(each["text"] for each in body.get("system", []))
    read = [{"role": "system", "content": system}] if system else []
    for message in body["messages"]:
        content = message["content"]
        read += [{"role": "tool", "content": each["content"]} for each in content if each["type"] == "tool_result"]
        text = "".join(each["text"] for each in content if each["type"] == "text")
        calls = [each["name"] for each in content if each["type"] == "tool_use"]
        thinking = [each["thinking"] for each in content if each["type"] == "thinking"]
        if text or calls or thinking:
            read.append({"role": message["role"], "content": text, "calls": calls, "thinking": "".join(thinking[-1:])})
    return read
