"""A real HTTP server on loopback that speaks OpenAI's Chat Completions and Responses, and can be told to misbehave.

In a test::

    with OpenAiServer(script=lambda body: Told(body, "hello")) as server:
        ... OpenAi(preset="vllm", model="any", base_url=server.url) ...
        assert server.requests[0]["messages"]

It refuses what OpenAI's own refuses: calls without results, results without calls, blank messages.
As a process: ``python -m tests.support.openai_server --port 9000``.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.messages_server import Behaviour, MessagesServer, Outgoing, Plain
from tests.support.messages_wire import WireCall, words

Json = dict[str, Any]
USAGE = {"prompt_tokens": 26, "completion_tokens": 7, "total_tokens": 33}


def sse(events: Iterable[Json], *, ends: bool = True) -> bytes:
    """Server-sent events as OpenAI sends them: those of Responses are named; the others end with ``[DONE]``."""
    lines = [
        (f"event: {event['type']}\n" if "type" in event else "") + f"data: {json.dumps(event)}\n\n" for event in events
    ]
    return "".join([*lines, *(["data: [DONE]\n\n"] if ends else [])]).encode()


def chunk(delta: Json | None = None, finish: str | None = None, **fields: Any) -> Json:
    """One piece of Chat Completions' stream; without a delta it has no choices."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "served", "choices": choices, **fields}


def call_chunks(index: int, call: WireCall) -> Iterator[Json]:
    """A call, its arguments in two pieces."""
    text = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
    opening = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
    yield chunk({"tool_calls": [opening]})
    for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
        yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})


def chat(
    text: str = "",
    calls: Sequence[WireCall] = (),
    *,
    thinking: str = "",
    finish: str | None = None,
    usage: Json | None = USAGE,
) -> list[Json]:
    """All pieces of a reply, its usage last, as OpenAI has it."""
    pieces = [chunk({"role": "assistant", "content": ""})]
    pieces += [chunk({"reasoning": thinking})] if thinking else []
    pieces += [chunk({"content": piece}) for piece in (words(text) if text else [])]
    pieces += [piece for n, call in enumerate(calls) for piece in call_chunks(n, call)]
    pieces.append(chunk({}, finish or ("tool_calls" if calls else "stop")))
    return [*pieces, chunk(usage=usage)] if usage else pieces


def responses(
    text: str = "",
    calls: Sequence[WireCall] = (),
    *,
    thinking: str = "",
    incomplete: str = "",
    usage: Json | None = None,
) -> list[Json]:
    """All events of a reply of Responses."""
    events: list[Json] = [{"type": "response.created", "response": {"model": "served"}}]
    output: list[Json] = []
    if thinking:
        summary = [{"type": "summary_text", "text": thinking}]
        output.append(
            {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": f"sealed {thinking}"}
        )
        events.append({"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": thinking})
        events[-1] |= {"output_index": 0}
        events.append({"type": "response.output_item.done", "output_index": 0, "item": output[-1]})
    if text:
        place, part = len(output), {"type": "output_text", "text": text, "annotations": []}
        for piece in words(text):
            events.append({"type": "response.output_text.delta", "output_index": place, "delta": piece})
        output.append({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]})
        events.append({"type": "response.output_item.done", "output_index": place, "item": output[-1]})
    for call in calls:
        arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
        item = {"type": "function_call", "id": "fc_1", "call_id": call.id, "name": call.name, "arguments": arguments}
        output.append(item | {"status": "incomplete" if incomplete else "completed"})
        events.append({"type": "response.output_item.done", "output_index": len(output) - 1, "item": output[-1]})
    kind = "incomplete" if incomplete else "completed"
    response = {"object": "response", "status": kind, "model": "served", "output": output, "error": None}
    response |= {"usage": usage or {"input_tokens": 26, "output_tokens": 7, "total_tokens": 33}}
    response |= {"incomplete_details": {"reason": incomplete} if incomplete else None}
    return [*events, {"type": f"response.{kind}", "response": response}]


@dataclass(frozen=True)
class Told:
    """A complete reply in the format of the request, streamed a word at a time."""

    body: Json
    text: str = ""
    calls: Sequence[WireCall] = ()

    def send(self, out: Outgoing) -> None:
        is_response = "input" in self.body
        out.stream([sse((responses if is_response else chat)(self.text, self.calls), ends=not is_response)])


def refusal(status: int, message: str, code: str | None = None, **headers: str) -> Plain:
    """An error in OpenAI's shape."""
    kind = "invalid_request_error" if 400 <= status < 429 else code
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return Plain(
        status, json.dumps(body).encode(), headers={name.replace("_", "-"): text for name, text in headers.items()}
    )


def echo(body: Json) -> Behaviour:
    """The default: ``echo: `` and the last text of the user."""
    said = [each["content"] for each in body.get("messages") or body["input"] if each.get("role") == "user"]
    return Told(body, f"echo: {said[-1] if said else ''}")


def complaint(body: Json) -> str:
    """Why OpenAI would refuse a request; empty if it would not."""
    open_calls: list[str] = []
    for n, message in enumerate(body.get("messages") or body["input"]):
        kind = message.get("type")
        if kind == "function_call_output" or message.get("role") == "tool":
            call = message.get("tool_call_id") or message.get("call_id")
            if call not in open_calls:
                return f"messages[{n}]: no tool call with the id {call!r}"
            open_calls.remove(call)
            continue
        if kind == "function_call":
            open_calls.append(message["call_id"])
            continue
        if open_calls:
            return f"messages[{n}]: calls without a result: {open_calls}"
        calls = message.get("tool_calls") or []
        open_calls = [call["id"] for call in calls]
        if any(len(call["id"]) > 40 or len(call["function"]["name"]) > 64 for call in calls):
            return f"messages[{n}].tool_calls: string too long"
        if kind != "reasoning" and not message.get("content") and not calls:
            return f"messages[{n}].content: blank"
    return f"calls without a result: {open_calls}" if open_calls else ""


class OpenAiServer(MessagesServer):
    """The server, for ``with``, used as MessagesServer is."""

    def __init__(
        self, behaviours: Iterable[Behaviour] = (), *, script: Callable[[Json], Behaviour] = echo, port: int = 0
    ) -> None:
        super().__init__(behaviours, script=script, port=port, is_strict=False)
        self.paths: list[str] = []

    @property
    def url(self) -> str:
        return f"{super().url}/v1"

    def answer(self, path: str, body: Json, headers: dict[str, str], out: Outgoing) -> None:
        self.paths.append(path)
        behaviour = self._behave(body, headers)
        why = complaint(body) if path.endswith(("/chat/completions", "/responses")) else "no such path"
        (refusal(400, why) if why else behaviour).send(out)


def main() -> None:
    """Serve the echo until interrupted."""
    parser = argparse.ArgumentParser(description="OpenAI's formats on loopback; echoes the last user text.")
    parser.add_argument("--port", type=int, default=0)
    server = OpenAiServer(port=parser.parse_args().port)
    print(server.url, flush=True)  # noqa: T201  # the caller reads the URL
    server.serve()


if __name__ == "__main__":
    main()
