"""What a call gave, as values: no class of the SDK leaves this folder."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.json import Json

MAX_RESULT_BYTES = 10_000_000
"""Of a result in UTF-8; more is cut."""


def value(result: Mapping[str, Any]) -> object:
    """Text, or a JSON value, from a CallToolResult as JSON.

    Structured content is the result; the text next to it says the same. Bytes are not for a model: only
    their kind and number stay.

    Raises:
        ToolFailed: the tool says that it failed.
    """
    content = result.get("content")
    parts = [_part(block) for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    if result.get("isError"):
        raise ToolFailed(_text(parts) or "the server says that it failed, and not why")
    if result.get("structuredContent") is not None:
        return _bounded(_with_bytes(result["structuredContent"], parts))
    if all(isinstance(part, str) for part in parts):
        return cut("\n".join(map(str, parts)))
    return _bounded([{"type": "text", "text": part} if isinstance(part, str) else part for part in parts])


def cut(text: str) -> str:
    """At most MAX_RESULT_BYTES of it, between two characters; its end then says how long it was."""
    if len(text) * 4 <= MAX_RESULT_BYTES or (size := len(text.encode("utf-8", "replace"))) <= MAX_RESULT_BYTES:
        return text
    kept = text.encode("utf-8", "replace")[:MAX_RESULT_BYTES].decode("utf-8", "ignore")
    return f"{kept}\n[cut: the first {MAX_RESULT_BYTES} of {size} bytes]"


def _part(block: Json) -> str | Json:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "audio" as kind, "data": str(data)}:
            return _bytes(kind, block.get("mimeType"), data)
        case {"type": "resource", "resource": {"text": str(text), **about}}:
            return {"type": "resource", "uri": about.get("uri"), "mime_type": about.get("mimeType"), "text": text}
        case {"type": "resource", "resource": {"blob": str(data), **about}}:
            return {**_bytes("resource", about.get("mimeType"), data), "uri": about.get("uri")}
        case {"type": "resource_link"}:
            names = {"name": "name", "title": "title", "description": "description", "mimeType": "mime_type"}
            known = {ours: block[theirs] for theirs, ours in names.items() if block.get(theirs) is not None}
            return {"type": "resource_link", "uri": block.get("uri"), **known}
        case _:
            return {"type": str(block.get("type", "unknown"))}


def _bytes(kind: str, mime_type: object, data: str) -> Json:
    """How many bytes the base64 text stands for, without decoding it."""
    return {"type": kind, "mime_type": mime_type, "bytes": len(data) * 3 // 4 - data[-2:].count("=")}


def _with_bytes(structured: object, parts: Sequence[str | Json]) -> object:
    others = [part for part in parts if not isinstance(part, str)]
    return {"structured": structured, "content": others} if others else structured


def _bounded(found: object) -> object:
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    whole = cut(text)
    return found if whole is text else whole


def _text(parts: Sequence[str | Json]) -> str:
    return cut("\n".join(part if isinstance(part, str) else json.dumps(part) for part in parts)).strip()


CODE = -32099
"""Of errors that we answer ourselves in the server's stead; the last of those JSON-RPC leaves to implementations."""
EXPIRED, UNREACHABLE, REFUSED = "expired", "unreachable", "refused"


class Lost(Exception):
    """The session is over; str() says why."""


class Expired(Lost):
    """The server refused a request (HTTP 4xx), mostly since it forgot the session: a new one may ask again, once.

    Its argument is the ToolFailed to raise if that is refused as well.
    """


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group, which is what the SDK's task groups raise; of any other error, itself."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error


def said(error: BaseException) -> str:
    """What an error says, or at least what it is."""
    first = next(leaves(error))
    return str(first).split("\n")[0] or type(first).__name__
