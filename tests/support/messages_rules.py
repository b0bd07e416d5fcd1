"""What the Messages API refuses: the rules that a client breaks most easily, with the real texts' gist."""

import hashlib
import re
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


def complaint(body: Json) -> str | None:
    """Return why the real server would answer this request with 400, or None."""
    missing = [name for name in ("model", "max_tokens", "messages") if name not in body]
    if missing:
        return f"{missing[0]}: Field required"
    removed = [name for name in ("temperature", "top_p", "top_k") if name in body]
    if removed:
        return f"{removed[0]}: Extra inputs are not permitted"
    if not body["messages"]:
        return "messages: at least one message is required"
    if body["messages"][0]["role"] != "user":
        return "messages: first message must use the user role"
    return next(_complaints(body), None)


def blocks(content: str | list[Json]) -> list[Json]:
    """A message's content as blocks; a string is one text block."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def signature_of(thinking: str) -> str:
    """What proves that thinking is this server's own."""
    return "sig" + hashlib.sha256(thinking.encode()).hexdigest()


def _complaints(body: Json) -> Iterator[str]:
    messages = body["messages"]
    yield from _bad_tools(body.get("tools", []))
    yield from _bad_blocks(messages)
    if messages[-1]["role"] == "assistant":
        yield "This model does not support assistant message prefill. The conversation must end with a user message."
    for n, message in enumerate(messages):
        if message["role"] not in {"user", "assistant"}:
            yield f"messages.{n}.role: Input should be 'user' or 'assistant'"
        after = messages[n + 1] if n + 1 < len(messages) else None
        yield from _empty_texts(f"messages.{n}", blocks(message["content"]))
        yield from _unanswered(n, message, after)
        yield from _unasked(n, message, messages[n - 1] if n else None)
        yield from _ends_in_thinking(n, message)
    yield from _empty_texts("system", blocks(body.get("system", [])))
    if _marks(body) > 4:
        yield "A maximum of 4 blocks with cache_control may be provided."


NAME, KEY = re.compile(r"[a-zA-Z0-9_-]{1,128}"), re.compile(r"[a-zA-Z0-9_.-]{1,64}")
USED_NAME, ID = re.compile(r"[a-zA-Z0-9_-]{1,200}"), re.compile(r"[a-zA-Z0-9_-]+")
KINDS = ("text", "tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document")


def _bad_tools(tools: list[Json]) -> Iterator[str]:
    for n, tool in enumerate(tools):
        where, schema = f"tools.{n}.custom", tool.get("input_schema") or {}
        if not NAME.fullmatch(tool["name"]):
            yield f"{where}.name: String should match pattern '^{NAME.pattern}$'"
        if schema.get("type") != "object":
            yield f"{where}.input_schema.type: Field required"
        if schema.keys() & {"oneOf", "allOf", "anyOf"}:
            yield f"{where}.input_schema: does not support oneOf, allOf, or anyOf at the top level"
        if any(not KEY.fullmatch(key) for key in schema.get("properties") or {}):
            yield f"{where}.input_schema.properties: Property keys should match pattern '^{KEY.pattern}$'"
    names = [tool["name"] for tool in tools]
    if len(set(names)) < len(names):
        yield "tools: Tool names must be unique."


def _bad_blocks(messages: list[Json]) -> Iterator[str]:
    seen: set[str] = set()
    for n, message in enumerate(messages):
        for place, block in enumerate(blocks(message["content"])):
            where, kind = f"messages.{n}.content.{place}", block["type"]
            if kind not in KINDS:
                yield f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags"
            if kind == "thinking" and "signature" not in block:
                yield f"{where}.thinking.signature: Field required"
            if kind == "thinking" and block.get("signature") != signature_of(block["thinking"]):
                yield f"{where}: Invalid `signature` in `thinking` block"
            if kind == "tool_use":
                if not isinstance(block["id"], str) or not ID.fullmatch(block["id"]):
                    yield f"{where}.tool_use.id: String should match pattern '^{ID.pattern}$'"
                if not USED_NAME.fullmatch(block["name"]):
                    yield f"{where}.tool_use.name: String should match pattern '^{USED_NAME.pattern}$'"
                if block["id"] in seen:
                    yield f"{where}: `tool_use` ids must be unique"
                seen.add(block["id"])


def _empty_texts(where: str, content: list[Json]) -> Iterator[str]:
    if not content and where != "system":
        yield f"{where}: content must be non-empty"
    for block in content:
        if block["type"] == "text" and not block["text"].strip():
            yield f"{where}: text content blocks must contain non-whitespace text"
        if block["type"] == "tool_result" and block.get("is_error") and not block.get("content"):
            yield f"{where}: content cannot be empty if `is_error` is true"
        if "cache_control" in block and block["type"] in {"thinking", "redacted_thinking"}:
            yield f"{where}: cache_control cannot be set for thinking blocks"


def _unanswered(n: int, message: Json, after: Json | None) -> Iterator[str]:
    asked = _ids(message, "tool_use", "id")
    answered = _ids(after, "tool_result", "tool_use_id") if after and after["role"] == "user" else []
    lost = [call for call in asked if call not in answered]
    if lost:
        yield f"messages.{n}: `tool_use` ids were found without `tool_result` blocks immediately after: {lost}"


def _unasked(n: int, message: Json, before: Json | None) -> Iterator[str]:
    asked = _ids(before, "tool_use", "id") if before else []
    for call in _ids(message, "tool_result", "tool_use_id"):
        if call not in asked:
            yield f"messages.{n}: unexpected `tool_use_id` found in `tool_result` blocks: {call}"
    kinds = [block["type"] == "tool_result" for block in blocks(message["content"])]
    if kinds != sorted(kinds, reverse=True):
        yield f"messages.{n}: `tool_result` blocks must come first"


def _ends_in_thinking(n: int, message: Json) -> Iterator[str]:
    content = blocks(message["content"])
    if content and content[-1]["type"] in {"thinking", "redacted_thinking"}:
        yield f"messages.{n}: The final block in an assistant message cannot be `thinking`."


def _ids(message: Json | None, kind: str, field: str) -> list[str]:
    return [block[field] for block in blocks(message["content"]) if block["type"] == kind] if message else []


def _marks(body: Json) -> int:
    places = [*blocks(body.get("system", [])), *body.get("tools", [])]
    places += [block for message in body["messages"] for block in blocks(message["content"])]
    return sum("cache_control" in place for place in places)
