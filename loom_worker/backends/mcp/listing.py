"""What a server offers, as far as it can be used: tools with their hints, and why others were left out."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from loom_worker.backends.mcp.schema import fitted, plain, short, visible
from loom_worker.backends.tool_schemas import Unfit
from loom_worker.core.values.agents import McpServer
from loom_worker.core.values.json import Json

MAX_TOOLS = 128
"""Of one server; those beyond are left out."""
MAX_DESCRIPTION_CHARS = 1024
MAX_NAME_CHARS = 64
"""What providers take; the names of servers and tools are cut to this together."""
MAX_OWN_NAME_CHARS = 256
"""Of a tool's name on its server."""
_DIGEST_CHARS = 8


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as its server describes it, cleaned."""

    name: str
    """The server's own; calls use it."""
    description: str
    input_schema: Json
    says_read_only: bool = False
    says_idempotent: bool = False


@dataclass(frozen=True, slots=True)
class ToolListing:
    """All of one server."""

    tools: tuple[ListedTool, ...] = ()
    problems: tuple[str, ...] = field(default=())
    """Why tools were left out."""

    def as_json(self) -> Json:
        """What from_json reads."""
        tools = [[t.name, t.description, t.input_schema, t.says_read_only, t.says_idempotent] for t in self.tools]
        return {"tools": tools, "problems": list(self.problems)}

    @classmethod
    def from_json(cls, data: Json) -> "ToolListing":
        """Read what as_json wrote.

        Raises:
            KeyError, TypeError: something else wrote it.
        """
        return cls(tuple(ListedTool(*each) for each in data["tools"]), tuple(data["problems"]))


def listing(raw: Sequence[object]) -> ToolListing:
    """Take over what a server sent; a tool that cannot be used costs only itself."""
    tools: dict[str, ListedTool] = {}
    problems: list[str] = []
    for place, one in enumerate(raw[:MAX_TOOLS]):
        try:
            tool = _listed(one)
            if tool.name in tools:
                raise Unfit("its name is taken by one before it")
            tools[tool.name] = tool
        except Unfit as why:
            problems.append(f"the tool {_called(one, place)} was left out: {why}")
    if len(raw) > MAX_TOOLS:
        problems.append(f"only the first {MAX_TOOLS} tools were taken")
    return ToolListing(tuple(tools.values()), tuple(problems))


def chosen(found: ToolListing, server: McpServer) -> tuple[tuple[ListedTool, ...], tuple[str, ...]]:
    """The tools that the agent's file wants, and what it wants in vain."""
    if server.tools is None:
        return found.tools, ()
    by_name = {tool.name: tool for tool in found.tools}
    absent = [name for name in dict.fromkeys(server.tools) if name not in by_name]
    kept = tuple(by_name[name] for name in dict.fromkeys(server.tools) if name in by_name)
    return kept, tuple(f"it has no usable tool {plain(name, 60)!r}" for name in absent)


def names(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Names fit for every provider, one for each (server, tool): ``server__tool``.

    Where that is too long, or two would be the same, the end is a digest of both names, so that a name depends on
    no order.
    """
    wanted = {pair: re.sub(r"[^A-Za-z0-9_-]", "_", "__".join(pair)) for pair in pairs}
    many = Counter(wanted.values())
    return {
        pair: name if many[name] == 1 and len(name) <= MAX_NAME_CHARS else _digested(pair, name)
        for pair, name in wanted.items()
    }


def _digested(pair: tuple[str, str], name: str) -> str:
    digest = hashlib.sha256("\0".join(pair).encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return f"{name[: MAX_NAME_CHARS - _DIGEST_CHARS - 1]}_{digest}"


def _listed(one: object) -> ListedTool:
    if not isinstance(one, dict):
        raise Unfit("it is not an object")
    name, description = one.get("name"), one.get("description") or ""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_OWN_NAME_CHARS or visible(name) != name:
        raise Unfit(f"its name is not 1-{MAX_OWN_NAME_CHARS} visible characters")
    if not isinstance(description, str):
        raise Unfit("its description is not a text")
    execution = one.get("execution")
    if isinstance(execution, dict) and execution.get("taskSupport") == "required":
        raise Unfit("it can only be called as a task (execution.taskSupport), which Loom does not support")
    hints = one.get("annotations")
    hints = hints if isinstance(hints, dict) else {}
    return ListedTool(
        name,
        short(visible(description).strip(), MAX_DESCRIPTION_CHARS),
        fitted(one.get("inputSchema")),
        says_read_only=hints.get("readOnlyHint") is True,
        says_idempotent=hints.get("idempotentHint") is True,
    )


def _called(one: object, place: int) -> str:
    name = one.get("name") if isinstance(one, dict) else None
    return repr(plain(name, 60)) if isinstance(name, str) else f"at place {place}"
