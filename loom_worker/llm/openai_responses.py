"""OpenAI's Responses: a Request in this format, and the reply that comes of its stream, or in one piece. Pure.

Nothing is stored there: what the model thought comes encrypted, and goes back unchanged.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from loom_worker.core.errors import StreamBroken
from loom_worker.core.text import storable
from loom_worker.core.values.chat import ChatMessage, Reply, Request, ToolUse, Usage
from loom_worker.core.values.json import Json
from loom_worker.llm.anthropic_request import POSITION_KEY
from loom_worker.llm.assembly import (
    INCOMPLETE,
    MAX_BLOCKS,
    MAX_REPLY_BYTES,
    Assembly,
    Delta,
    ErrorEvent,
    ended,
    read_tool_use,
    well_formed,
)
from loom_worker.llm.media import response_part
from loom_worker.llm.openai_chat import (
    arguments,
    common,
    function,
    long_name,
    offered,
    outcome_text,
    own_thinking,
    parts_of,
    shape_format,
    short,
    tool_choice,
    turns,
    usage_of,
    user_content,
)
from loom_worker.llm.presets import Preset
from loom_worker.llm.sanitize import json_error

LEAST_TOKENS = 16
"""Tokens of ``max_output_tokens``, which refuses fewer."""
ENCRYPTED = "reasoning.encrypted_content"
ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
TEXTS = frozenset({"response.output_text.delta", "response.refusal.delta"})
THOUGHTS = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})


def fits(request: Request) -> bool:
    """False for what this format lacks: then the server's other one is used."""
    return not request.stop_sequences and request.sampling.seed is None


def responses_body(request: Request, name: str, preset: Preset) -> Json:
    """The JSON body of ``POST /responses``, streaming asked for; name as chat_body."""
    model = name.partition("/")[2]
    body: Json = {"model": model, "input": list(_items(request, name)), "stream": True, "store": False}
    body["max_output_tokens"] = max(request.max_tokens, LEAST_TOKENS)
    if request.system.strip():
        body["instructions"] = storable(request.system)
    if tools := offered(request, preset):
        body["tools"] = [{"type": "function", **function(spec), "strict": False} for spec in tools]
    if choice := tool_choice(request, preset):
        body["tool_choice"] = choice if isinstance(choice, str) else {"type": "function", **choice}
    if request.shape:
        body["text"] = {"format": {"type": "json_schema", **shape_format(request.shape)}}
    if preset.reasons(model) or request.thinking:
        body["include"] = [ENCRYPTED]
    if request.thinking:
        body["reasoning"] = {"effort": request.thinking.nearest_effort, "summary": "auto"}
    return body | common(request, preset)


def _items(request: Request, name: str) -> Iterator[Json]:
    for message in turns(request):
        if message.role == "assistant":
            yield from _assistant(message, name)
        elif message.role == "tool":
            for each in message.outcomes:
                yield {
                    "type": "function_call_output",
                    "call_id": each.tool_use_id,
                    "output": parts_of(each.content, each.media, request, response_part)
                    if each.media
                    else outcome_text(each.content),
                }
        else:
            yield {"role": "user", "content": user_content(message, request, response_part)}


def _assistant(message: ChatMessage, name: str) -> Iterator[Json]:
    text_length, calls = 0, 0
    for block in own_thinking(message, name):
        at = block[POSITION_KEY]
        if not block.get("encrypted_content") or (at["text"], at["calls"]) >= (
            len(message.text),
            len(message.tool_uses),
        ):
            continue  # without its text it is looked for in their store, and what it belongs to must follow it
        yield from _said(message.text[text_length : at["text"]], message.tool_uses[calls : at["calls"]])
        yield {each: part for each, part in block.items() if each not in (POSITION_KEY, "thinking")}
        text_length, calls = at["text"], at["calls"]
    yield from _said(message.text[text_length:], message.tool_uses[calls:])


def _said(text: str, uses: Sequence[ToolUse]) -> Iterator[Json]:
    if text.strip():
        yield {"role": "assistant", "content": storable(text)}
    for use in uses:
        yield {"type": "function_call", "call_id": use.id, "name": short(use.name), "arguments": arguments(use)}


class ResponseAssembly(Assembly):
    """A reply of Responses as it arrives."""

    def __init__(self, model: str, *, max_bytes: int = MAX_REPLY_BYTES) -> None:
        super().__init__(model, max_bytes=max_bytes)
        self._told: Json = {}
        self._items: dict[int, Json] = {}
        """Complete items, by their place in the output."""
        self._lengths: dict[int, int] = {}
        """Characters of text before each item."""
        self._streamed: dict[int, int] = {}
        """Characters of thinking and text of each item that came in pieces, or were counted for another reason."""
        self._part: object = None
        self._ending: Json = {}

    @property
    def usage(self) -> Usage:
        """What the provider has told so far; its cost only if the provider told that, too."""
        return usage_of(self._told)

    def feed(self, event: Json) -> Sequence[Delta]:
        with well_formed():
            kind = event.get("type")
            if kind == "error" or event.get("error") or (not kind and event.keys() & {"detail", "msg"}):
                raise ErrorEvent(event)
            if event.get("object") == "response":
                return list(self._end(event))
            if kind in ENDS:
                return list(self._end(event["response"]))
            return list(self._event(str(kind), event))

    def _event(self, kind: str, event: Json) -> Iterator[Delta]:
        place = event.get("output_index", 0)
        if kind == "response.created":
            self._served = str(event["response"].get("model") or "")
        elif kind == "response.output_item.added":
            self._begin(place)
        elif kind in TEXTS or kind in THOUGHTS:
            self._begin(place)
            self._streamed[place] = self._streamed.get(place, 0) + len(event["delta"])
            if kind in TEXTS:
                yield from self._said(event["delta"])
            else:
                part = (place, event.get("summary_index", event.get("content_index")))
                gap = "\n\n" if self._part not in (None, part) else ""
                self._part = part
                yield from self._thought(self._room_for(gap + event["delta"]))
        elif kind == "response.output_item.done":
            yield from self._add(place, event["item"])

    def _begin(self, place: int) -> None:
        self._lengths.setdefault(place, sum(map(len, self._texts)))

    def _add(self, place: int, item: Json) -> Iterator[Delta]:
        """Take in a complete item, and of its text what did not stream."""
        if place in self._items:
            return
        if len(self._items) >= MAX_BLOCKS:
            self.is_too_large = True
            return
        self._begin(place)
        self._items[place] = item
        if item["type"] == "function_call":
            self._room_for(item.get("arguments") or "")
        if place in self._streamed:
            return
        if item["type"] == "message":
            for part in item["content"]:
                yield from self._said(part.get("text") or part.get("refusal") or "")
        elif item["type"] == "reasoning":
            yield from self._thought(self._room_for(_thinking(item)))

    def _end(self, response: Json) -> Iterator[Delta]:
        if response.get("error"):
            raise ErrorEvent({"error": response["error"]})
        for place, item in enumerate(response.get("output") or ()):
            yield from self._add(place, item)
        self._told, self.has_usage_news = response.get("usage") or {}, True
        self._served = str(response.get("model") or self._served)
        self._ending, self.is_complete = response, True

    def _whole(self) -> Reply:
        status = self._ending.get("status") or "completed"
        if not self.is_complete or status not in ("completed", "complete", "incomplete"):
            raise StreamBroken(INCOMPLETE)
        ordered = [self._items[place] | {"at": self._lengths[place]} for place in sorted(self._items)]
        called = [item for item in ordered if item["type"] == "function_call"]
        why = ""
        if status == "incomplete":
            why = (self._ending.get("incomplete_details") or {}).get("reason") or "max_output_tokens"
        uses = tuple(self._use(item, was_cut=bool(why) and item is ordered[-1]) for item in called)
        reason = ended({"max_output_tokens": "max_tokens"}.get(why, why or "stop"), has_calls=bool(uses))
        if any(part.get("refusal") for item in ordered if item["type"] == "message" for part in item["content"]):
            reason = "refusal"
        opaque = tuple(self._opaque(ordered))
        return Reply("".join(self._texts), reason, self.usage, self._asked, uses, opaque, served=self._served)

    def _use(self, item: Json, *, was_cut: bool) -> ToolUse:
        opening = {"id": item.get("call_id") or item.get("id"), "name": item["name"]}
        return long_name(read_tool_use(opening, item.get("arguments") or "", was_cut=was_cut))

    def _opaque(self, ordered: list[Json]) -> Iterator[Json]:
        calls = 0
        for item in ordered:
            calls += item["type"] == "function_call"
            own = {name: value for name, value in item.items() if name not in ("at", "status")}
            if item["type"] == "reasoning" and json_error(own) is None:
                place = {"model": self._asked, "text": item["at"], "calls": calls}
                yield own | {"thinking": _thinking(item), POSITION_KEY: place}


def _thinking(item: Json) -> str:
    parts: list[Any] = item.get("summary") or item.get("content") or []
    return "\n\n".join(str(part.get("text") or "") for part in parts)
