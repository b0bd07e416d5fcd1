"""The Chat Completions side of the model server: its requests as the Messages API's, and the replies back.

The log, and with it every check, knows requests in the Messages API's form alone. What one form has and the other lacks
is put right here: the model bears its name in Loom, a schema stands where the Messages API has it, and the text of a
user's message, of which Chat Completions has one, is parted again into what stands beside a question and the question.
"""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from tests.chaos.marks import MARK
from tests.chaos.panels import CORRECTS, is_judging
from tests.chaos.summaries import is_summary

Json = dict[str, Any]
MAKER = "openai/"
"""How Loom's names of the models begin that are asked in this form."""
STOPS = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}
BLOCK = re.compile(rf"\n\n(?={MARK.pattern}|Today is |{re.escape(CORRECTS)})")
"""Where another block begins in a user's text: a question, what stands beside it, or a correction."""


def as_messages(body: Json) -> Json:
    """A body of ``/chat/completions`` as one of ``/v1/messages`` that means the same."""
    told = [message for message in body["messages"] if message["role"] in ("system", "developer")]
    rest = [_turned(message) for message in body["messages"] if message not in told]
    messages = [
        {"role": role, "content": [block for _, blocks in group for block in blocks]}
        for role, group in groupby(rest, key=lambda pair: pair[0])
    ]
    choice = body.get("tool_choice", "auto")
    made: Json = {
        "model": MAKER + body["model"],
        "max_tokens": body.get("max_completion_tokens") or body.get("max_tokens", 4096),
        "system": [block for message in told for block in _texts(message["content"])],
        "messages": messages,
        "stream": body.get("stream", False),
    }
    if tools := body.get("tools"):
        functions = [tool["function"] for tool in tools]
        made["tools"] = [
            {"name": each["name"], "description": each.get("description", ""), "input_schema": each["parameters"]}
            for each in functions
        ]
    if choice != "auto":
        kinds = {"none": {"type": "none"}, "required": {"type": "any"}}
        made["tool_choice"] = kinds.get(str(choice)) or {"type": "tool", "name": choice["function"]["name"]}
    if shape := body.get("response_format"):
        made["output_config"] = {"format": {"type": "json_schema", "schema": shape["json_schema"]["schema"]}}
    if not is_summary(made) and not is_judging(made):  # those quote conversations
        for message in messages:
            message["content"] = [part for block in message["content"] for part in _parted(block, message["role"])]
    return made


def _parted(block: Json, role: str) -> list[Json]:
    is_whole = role != "user" or block["type"] != "text"
    return [block] if is_whole else [{"type": "text", "text": text} for text in BLOCK.split(block["text"])]


def _turned(message: Json) -> tuple[str, list[Json]]:
    if message["role"] == "tool":
        result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
        return "user", [result]
    calls = [
        {"type": "tool_use", "id": call["id"], "name": name, "input": json.loads(arguments or "{}")}
        for call in message.get("tool_calls", ())
        for name, arguments in [(call["function"]["name"], call["function"]["arguments"])]
    ]
    return message["role"], [*_texts(message.get("content")), *calls]


def _texts(content: Any) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [{"type": "text", "text": part["text"]} for part in content or () if part["type"] == "text"]


def chat_sse(events: Iterable[Json]) -> bytes:
    """The events of a stream of the Messages API as the chunks of one of Chat Completions."""
    return b"".join(b"data: " + piece + b"\n\n" for piece in _pieces(events))


def _pieces(events: Iterable[Json]) -> Iterator[bytes]:
    calls = -1
    sent_tokens = 0
    for event in events:
        match event["type"]:
            case "message_start":
                sent_tokens = event["message"]["usage"]["input_tokens"]
                yield _chunk({"role": "assistant", "content": ""})
            case "content_block_start" if event["content_block"]["type"] == "tool_use":
                calls += 1
                block = event["content_block"]
                begun = {"index": calls, "id": block["id"], "type": "function"}
                yield _chunk({"tool_calls": [{**begun, "function": {"name": block["name"], "arguments": ""}}]})
            case "content_block_delta" if event["delta"]["type"] == "text_delta":
                yield _chunk({"content": event["delta"]["text"]})
            case "content_block_delta" if event["delta"]["type"] == "input_json_delta":
                function = {"arguments": event["delta"]["partial_json"]}
                yield _chunk({"tool_calls": [{"index": calls, "function": function}]})
            case "message_delta":
                yield _chunk({}, STOPS[event["delta"]["stop_reason"]])
                usage = {"prompt_tokens": sent_tokens, "completion_tokens": event["usage"]["output_tokens"]}
                yield json.dumps({"id": "chatcmpl-chaos", "choices": [], "usage": usage}).encode()
            case "message_stop":
                yield b"[DONE]"
            case "error":
                yield json.dumps({"error": event["error"]}).encode()


def _chunk(delta: Json, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return json.dumps({"id": "chatcmpl-chaos", "object": "chat.completion.chunk", "choices": [choice]}).encode()
