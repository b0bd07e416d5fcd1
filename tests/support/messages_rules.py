"""What the Messages API refuses: the rules that a client breaks most easily, with the real texts' gist."""

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


def _complaints(body: Json) -> Iterator[str]:
    messages = body["messages"]
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
