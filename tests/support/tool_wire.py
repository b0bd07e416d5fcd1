"""What a request to the model says of tools and their results."""

from typing import Any

from loom_worker.core.text import fence_key

Json = dict[str, Any]


def results(body: Json) -> list[Json]:
    """The tool_result blocks of the newest message."""
    content = body["messages"][-1]["content"]
    return [block for block in content if block["type"] == "tool_result"]


def data(block: Json, turn_id: str) -> str:
    """What stands inside a result's fence; AssertionError if that is not one unbroken fence around it."""
    key = fence_key(turn_id)
    first, *lines = block["content"].split("\n")
    end = lines.index(f"</data {key}>")
    assert first == f"<data {key}>"
    assert block["content"].lower().count(key) == 2
    return "\n".join(lines[:end])


def note(block: Json, turn_id: str) -> str:
    """What Loom itself says behind a result; empty if nothing."""
    text: str = block["content"].partition(f"</data {fence_key(turn_id)}>")[2]
    return text.removeprefix("\n")


def tools(body: Json) -> set[str]:
    """The names of all tools that the model may see."""
    return {tool["name"] for tool in body["tools"]}
