"""Building the Messages API's server-sent events."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.messages_rules import signature_of

Json = dict[str, Any]


@dataclass(frozen=True)
class WireCall:
    """A tool call as the server sends it; ``arguments`` as text goes out as it is, broken or not."""

    id: str
    name: str
    arguments: Json | str = field(default_factory=dict)


def sse(events: Iterable[Json]) -> bytes:
    """Server-sent events, named by their type as the real server does."""
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


def error_event(kind: str, message: str = "Overloaded") -> Json:
    """The event with which a stream that began with status 200 fails."""
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_test"}


def start(*, model: str = "claude-test", usage: Json | None = None) -> Json:
    """The first event of every stream."""
    message = {"id": "msg_test", "type": "message", "role": "assistant", "model": model, "content": []}
    counts = usage or {"input_tokens": 1, "output_tokens": 1}
    return {"type": "message_start", "message": {**message, "stop_reason": None, "usage": counts}}


def finish(stop_reason: str | None, *, usage: Json | None = None) -> list[Json]:
    """The last two events of every complete stream."""
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": delta, "usage": usage or {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


def block(index: int, opening: Json, deltas: Iterable[Json]) -> list[Json]:
    """One content block: its start, its deltas, its stop."""
    return [
        {"type": "content_block_start", "index": index, "content_block": opening},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text_block(index: int, pieces: Iterable[str]) -> list[Json]:
    """A text block, one delta for each piece."""
    return block(index, {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces])


def thinking_block(index: int, thinking: str, signature: str | None = None) -> list[Json]:
    """A thinking block with its signature; None: the server's own."""
    opening = {"type": "thinking", "thinking": "", "signature": ""}
    deltas = [
        {"type": "thinking_delta", "thinking": thinking},
        {"type": "signature_delta", "signature": signature_of(thinking) if signature is None else signature},
    ]
    return block(index, opening, deltas)


def call_block(index: int, call: WireCall) -> list[Json]:
    """A tool_use block; no arguments stream as one empty piece, as the real server has it."""
    text = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
    pieces = [""] if text in {"", "{}"} else ["", text[: len(text) // 2], text[len(text) // 2 :]]
    opening = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
    return block(index, opening, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces])


def words(text: str) -> list[str]:
    """The text in pieces of a word each; joined they are the text again."""
    return [word if n == 0 else " " + word for n, word in enumerate(text.split(" "))]


def answer(
    text: str,
    calls: Sequence[WireCall] = (),
    *,
    stop_reason: str | None = None,
    model: str = "claude-test",
    usage: Json | None = None,
) -> list[Json]:
    """All events of a complete reply."""
    counts = usage or {"input_tokens": 1, "output_tokens": 1}
    blocks = [text_block(0, words(text))] if text else []
    blocks += [call_block(len(blocks) + n, call) for n, call in enumerate(calls)]
    ending = finish(stop_reason or ("tool_use" if calls else "end_turn"), usage=counts)
    return [start(model=model, usage=counts), {"type": "ping"}, *(event for each in blocks for event in each), *ending]
